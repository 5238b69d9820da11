"""Frames in the tasks of Spark after the stages, which write to sinks and convert records to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.checkpoint.task_report import TaskReport
from dsv2.errors import SchemaError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import FileSink, ParallelSink, SinkBatch, SinkInfo, SinkRunInfo
from runtime_spark.frames.failures import job_failure
from runtime_spark.frames.layout import REPORT_SLOT, Layout
from runtime_spark.frames.rows import FrameEncoder, to_arrow
from runtime_spark.frames.worker import load_job, pack_job
from runtime_spark.sink import intermediate_frames as passages
from runtime_spark.sink import record_frames as decoded
from runtime_spark.sink.dataframe_function import RowsSink
from runtime_spark.sink.sinks import ParallelSinks


class Word(NamedTuple):
    word: str
    number: int


class Rows:
    """Replaces a DataFrame of frames: only what the tasks of sinks do with it."""

    sparkSession = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"})  # noqa: N815 - Spark's name

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def where(self, slots: list[int]) -> Rows:
        return Rows([row for row in self._rows if row["slot"] in slots])

    def select(self, *names: str) -> Rows:
        return Rows([{name: row[name] for name in names} for row in self._rows])

    def repartition(self, partitions: int, name: str) -> Rows:
        return self

    def sortWithinPartitions(self, *names: str) -> Rows:  # noqa: N802 - Spark's name
        return Rows(sorted(self._rows, key=lambda row: [row[name] for name in names]))

    def mapInArrow(self, function: Callable[[Iterable[Any]], Iterator[pa.RecordBatch]], schema: Any) -> Rows:  # noqa: N802
        batches = (pa.RecordBatch.from_pylist([row]) for row in self._rows)
        return Rows([row for batch in function(batches) for row in batch.to_pylist()])

    def collect(self) -> list[dict[str, Any]]:
        return self._rows


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions on columns, which need a session in Spark."""
    functions = SimpleNamespace(col=lambda name: SimpleNamespace(isin=lambda slots: slots))
    for module in (decoded, passages):
        monkeypatch.setattr(module, "F", functions)


class Job:
    """Words that reach one sink with two subtasks."""

    def __init__(self, sink: Any) -> None:
        env = ExecutionEnvironment.get_instance("local")
        env.set_parallelism(2)
        env.from_collection([Word("", 0)]).to_sink(sink)
        self.plan: Plan = env.build_plan()
        self.layout = Layout.of(self.plan)
        self.packed = pack_job(self.plan, self.layout, TypeRegistry.of(self.plan))

    @property
    def sink(self) -> Operator:
        return next(operator for operator in self.plan.operators if operator.kind is OperatorKind.SINK)

    def frames(self, *frames: tuple[int, int, list[Word]]) -> Any:
        """Frames of ``(subtask, channel, words)``, and a report."""
        encoder = FrameEncoder(self.plan, self.layout, load_job(self.packed).codec())
        for subtask, channel, words in frames:
            encoder.emit(Frame(self.sink.id, subtask, channel, RecordBatch(words), []))
        encoder.report(REPORT)
        return Rows(to_arrow(encoder.take()).to_pylist())


REPORT = TaskReport([SubtaskReport("sink", 0)])
WRITTEN: list[tuple[int, list[Word]]] = []


class Kept(ParallelSink[Word]):
    """Keeps the words of each subtask."""

    def begin(self, info: SinkInfo, first_batch: int) -> None:
        WRITTEN.append((-1, []))

    def write(self, batch: SinkBatch[Word]) -> None:
        WRITTEN.append((batch.subtask, [word for records in batch.batches for word in records.records]))


A, B, C, D = (Word(letter, number) for number, letter in enumerate("abcd"))


RUN = SinkRunInfo("run")


def test_subtasks_of_a_sink_write_their_records_in_order() -> None:
    job = Job(Kept())
    sinks = ParallelSinks([job.sink], job.layout, job.packed, "job", RUN)
    WRITTEN.clear()
    sinks.begin(3)
    for batch_id in (3, 4):
        frames = job.frames((0, 1, [C]), (0, 0, [A, B]), (0, 0, []), (0, 1, [D]), (1, 0, []))
        rows: list[Any] = sinks.write(frames, batch_id)
        assert [row["slot"] for row in rows] == [REPORT_SLOT]  # all that is not for the sinks
    # A subtask without records has nothing to write.
    assert [(-1, []), *[(0, [A, B, C, D])] * 2] == WRITTEN


def test_sinks_receive_no_frames_without_records() -> None:
    job = Job(Kept())
    slots = [row["slot"] for row in job.frames((0, 0, []), (1, 0, [A])).collect()]
    assert slots == [*job.layout.slots_of(job.sink)[1:], REPORT_SLOT]


def test_records_of_a_sink_become_rows() -> None:
    job = Job(FileSink("out", schema=Word, partition_by=["word"]))

    def rows(*words: Word) -> list[dict[str, Any]]:
        frames = job.frames((0, 0, [*words]), (1, 0, []))
        return decoded.decoded(frames, job.sink, job.layout, job.packed, Word, ["word", "number"]).collect()  # type: ignore[return-value]

    assert rows(A, B) == [A._asdict(), B._asdict()]
    for name in ("", "__HIVE_DEFAULT_PARTITION__"):
        with pytest.raises(Exception, match=r"empty string, or .* in the column 'word' of partition_by") as raised:
            rows(A, Word(name, 1))
        assert isinstance(job_failure(raised.value, "job"), SchemaError)


class Reports:
    """Replaces an accumulator."""

    def __init__(self) -> None:
        self.value: list[bytes] = []

    def add(self, payloads: list[bytes]) -> None:
        self.value += payloads


def test_records_that_reach_a_dataframe_become_rows_and_reports_pass_by_it() -> None:
    job, reports = Job(RowsSink(Word)), Reports()
    frames = job.frames((0, 0, [A]), (1, 0, [B, C]), (1, 0, []))
    rows: Any = decoded.decoded(frames, job.sink, job.layout, job.packed, Word, reports=reports)  # type: ignore[arg-type]
    assert rows.collect() == [A._asdict(), B._asdict(), C._asdict()]
    assert TaskReport.decoded(reports.value) == REPORT
