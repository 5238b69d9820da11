"""The frames of sources without Spark: what tasks of a batch job read, and what to_dataframe refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dsv2 import CollectSink, ErrorPolicy
from dsv2.base.clock import SystemClock
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.errors import ConfigurationError
from dsv2.model.context import RuntimeExecutionMode
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sources import DataGeneratorSource
from runtime_spark.frames.layout import REPORT_SLOT, Layout
from runtime_spark.frames.worker import load_job, pack_job
from runtime_spark.source.sources import SourceOptions, source_frames
from tests.spans import Spans
from tests.support import local_environment
from tests.unit.jobs.test_stuck_watermarks import strategy


class Session:
    """Replaces a session: a range of one partition, whose only task runs at once."""

    def range(self, start: int, end: int, step: int, partitions: int) -> Session:
        self._numbers = range(start, end, step)
        return self

    def mapInArrow(  # noqa: N802 - Spark's name
        self, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
    ) -> list[dict[str, Any]]:
        batches = [pa.RecordBatch.from_pydict({"id": [number]}) for number in self._numbers]
        return [row for batch in function(batches) for row in batch.to_pylist()]


@pytest.mark.parametrize("source", [DataGeneratorSource(int, count=7), Spans({"a": 7})])
def test_tasks_of_a_batch_job_read_all_records(source: Any) -> None:
    env = local_environment(2)
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    env.from_source(source).to_sink(CollectSink())
    plan = env.build_plan()
    packed = pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))
    session: Any = Session()
    rows: Any = source_frames(session, plan, packed, "job", SystemClock(), SourceOptions())
    codec = load_job(packed).codec()
    payloads = [row["payload"] for row in rows if row["slot"] != REPORT_SLOT]
    records = [record for payload in payloads for record in decode_frame(codec, payload, "a frame")[0].records]
    assert len(records) == len(set(records)) == 7


def frames_of(source: Any, policy: ErrorPolicy | None = None, **options: Any) -> None:
    env = local_environment()
    stream = env.from_source(source, **options)
    if policy is not None:
        stream.with_error_policy(policy)
    stream.to_sink(CollectSink())
    no_session: Any = None
    source_frames(no_session, env.build_plan(), b"", "job", SystemClock(), SourceOptions())


def test_total_limit_requires_a_job(tmp_path: Path) -> None:
    source = FilesSource(tmp_path, text_lines(str))
    with pytest.raises(
        ConfigurationError, match=r"has limit\(total=\.\.\.\), which requires a job that execute starts"
    ):
        frames_of(source, ErrorPolicy().skip(ValueError).limit(total=3))


def test_watermarks_of_a_source_require_a_job() -> None:
    with pytest.raises(ConfigurationError, match="has its own watermarks, which require a job that execute starts"):
        frames_of(Spans({"a": 2}), watermarks=strategy())
