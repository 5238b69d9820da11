"""A savepoint of a job that had begun a further micro-batch, of which sinks may have a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dsv2.base.folders import LocalFolder
from dsv2.errors import IncompatibleCheckpointError
from dsv2.savepoint.metadata import read_info, write_info
from dsv2.sinks import CollectSink, ForeachBatchSink, Sink
from dsv2.testing import Stop, TestSource
from tests.support import local_environment


def forget(records: list[int], batch_id: int) -> None:
    """A function that relies on the id of the micro-batch."""


def run(sink: Sink[int], **options: Any) -> Any:
    env = local_environment()
    env.from_source(TestSource[int]([1, Stop(), 2, Stop()])).with_uid("in").to_sink(sink).with_uid("out")
    job = env.execute_async("job", **options)
    job.await_termination()
    return job


@pytest.fixture
def savepoint(tmp_path: Path) -> str:
    """One of a job that crashed in its second micro-batch."""
    path: str = run(ForeachBatchSink(forget)).savepoint(tmp_path / "savepoint")
    folder = LocalFolder(path)
    write_info(folder, replace(read_info(folder), has_begun_next=True))
    return path


def test_sink_that_relies_on_the_same_records_is_named(savepoint: str, tmp_path: Path) -> None:
    said = r"sink .*'out'.* may have written a part of micro-batch 1, .* stop_with_savepoint.* as_new_job=True"
    with pytest.raises(IncompatibleCheckpointError, match=said):
        run(ForeachBatchSink(forget), savepoint=savepoint, checkpoint_location=tmp_path / "checkpoint")


def test_new_jobs_and_other_sinks_may_start(savepoint: str, tmp_path: Path) -> None:
    start = {"savepoint": savepoint, "checkpoint_location": tmp_path / "checkpoint"}
    run(ForeachBatchSink(forget), **start, as_new_job=True)
    run(ForeachBatchSink(forget), savepoint=savepoint)  # without a checkpoint it is a new job
    start["checkpoint_location"] = tmp_path / "other"
    run(sink := CollectSink[int](), **start)
    assert sink.results == [2]
