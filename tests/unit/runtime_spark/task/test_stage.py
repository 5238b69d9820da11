"""A level as a stage, one micro-batch of one slot at a time, and as Spark calls it in its workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

import pandas as pd
import pytest

from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.checkpoint.task_report import TaskReport
from dsv2.errors import UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.local import LocalRuntime
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.page_store import PageStores, in_blob, in_entries
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource, DataGeneratorSource, IndexedSource, Source
from dsv2.testing import ManualClock
from runtime_spark import StateLayout
from runtime_spark.frames import state_limit
from runtime_spark.frames.failures import job_failure
from runtime_spark.frames.layout import REPORT_SLOT, Layout
from runtime_spark.frames.rows import COLUMNS, OUTPUT_BYTES, FrameEncoder, Row, to_arrow
from runtime_spark.frames.state_limit import StateSizes
from runtime_spark.frames.worker import load_job, pack_job
from runtime_spark.source import source_read
from runtime_spark.source.feeds import IndexedFeed, SplitFeed, whole_orders
from runtime_spark.source.frame_source import Feed, feed_for
from runtime_spark.source.source_read import IndexRange
from runtime_spark.task import stage
from runtime_spark.task.stage import batch_stage, streaming_stage
from tests.spans import Spans, number_of
from tests.support import KeptEntries, two_inputs
from tests.unit.runtime_spark.task.test_map_stage import Visit, Visits


class NoState:
    """A slot that was never written."""

    now_ms = 0
    journal = None

    def __init__(self, layout: StateLayout) -> None:
        self._layout = layout

    def page_stores(self, codec: Codec) -> PageStores:
        return in_blob if self._layout is StateLayout.BLOB else in_entries(KeptEntries(), codec)

    def read(self) -> bytes | bytearray | None:
        return None

    def write(self, blob: bytearray) -> None: ...

    def wake_at(self, deadline_ms: int | None) -> None: ...


class Remembering(OneInputStreamProcessFunction[bytes, int]):
    """Keeps its records in a field, which is checked in either layout. ``most`` limits it to the newest records."""

    def __init__(self, most: int | None = None) -> None:
        self.kept: list[bytes] = []
        self.most = most

    def process_record(self, record: bytes, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        self.kept.append(record)
        if self.most is not None:
            self.kept = self.kept[-self.most :]


class Kept(NoState):
    """The checkpointed state of one slot."""

    blob: bytes | bytearray | None = None

    def read(self) -> bytes | bytearray | None:
        return self.blob

    def write(self, blob: bytearray) -> None:
        self.blob = blob


class Slot:
    """The only slot of a job. ``run`` returns its reports after a micro-batch with one more record."""

    def __init__(self, layout: StateLayout, function: Remembering, state: Kept) -> None:
        env = ExecutionEnvironment.get_instance("local")
        env.from_collection([b""]).process(function).with_uid("f").to_sink(CollectSink())
        self.plan = env.build_plan()
        self.layout = Layout.of(self.plan, state=layout)
        registry = TypeRegistry.of(self.plan)
        self._packed = pack_job(self.plan, self.layout, registry)
        self._codec = Codec(registry)
        (self._head,) = self.plan.chains
        self._state = state

    def run(self, record: bytes) -> list[SubtaskReport]:
        encoder = FrameEncoder(self.plan, self.layout, self._codec)
        encoder.emit(Frame(self._head, 0, 0, RecordBatch([record]), []))
        frames = pd.DataFrame([row[1:] for row in encoder.take()], columns=["channel", "seq", "payload"])
        slot = self.layout.slots[self._head, 0]
        sent = pd.concat(stage.run_slot(self._packed, 0, slot, iter([frames]), self._state))
        return TaskReport.decoded(sent[sent["slot"] == REPORT_SLOT]["payload"]).subtasks


LAYOUTS = pytest.mark.parametrize("layout", StateLayout)


@LAYOUTS
def test_job_with_too_large_state_can_be_corrected(layout: StateLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_limit, "LARGEST_STATE", 10_000)
    state = Kept(layout)
    greedy = Slot(layout, Remembering(), state)
    greedy.run(b"a" * 6_000)
    before = state.blob
    with pytest.raises(Exception, match="has grown to") as raised:
        greedy.run(b"b" * 6_000)
    assert state.blob == before
    said = str(job_failure(raised.value, "job"))
    assert "(uid 'f'), subtask 0: its state has grown to" in said
    assert "start it again from the same checkpoint" in said
    assert ("function fields and states of the subtask" in said) == (layout is StateLayout.MAP)

    Slot(layout, Remembering(most=1), state).run(b"b" * 6_000)
    assert state.blob != before


@LAYOUTS
def test_state_size_warnings_start_at_half_the_limit(
    layout: StateLayout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_limit, "LARGEST_STATE", 80_000)
    job = Slot(layout, Remembering(), Kept(layout))
    sizes = StateSizes(job.plan, job.layout)
    warned = []
    for _ in range(7):
        caplog.clear()
        (report,) = job.run(b"a" * 10_000)
        sizes.note([report])
        sizes.note([report])
        warned.append([record.getMessage() for record in caplog.records])
    assert [len(messages) for messages in warned] == [0, 0, 0, 1, 1, 1, 1]
    assert "(uid 'f'), subtask 0: its state has grown to 4" in warned[3][0]
    assert "At 80000 bytes the job will fail." in warned[3][0]
    assert (report.state_bytes or 0) > 70_000


@LAYOUTS
def test_slow_state_is_warned_of_at_64_mb_and_when_it_doubles(
    layout: StateLayout, caplog: pytest.LogCaptureFixture
) -> None:
    job = Slot(layout, Remembering(), Kept(layout))
    sizes = StateSizes(job.plan, job.layout)
    said = {}
    for mb in (63, 64, 65, 127, 128, 300, 511, 512, 600, 640, 650):
        caplog.clear()
        sizes.note([SubtaskReport("f", 0, state_bytes=mb << 20)])
        said[mb] = [record.getMessage() for record in caplog.records]
    assert {mb for mb, messages in said.items() if messages} == {64, 128, 300, 512, 640}
    (first,) = said[64]
    assert "(uid 'f'), subtask 0: its state has grown to 64 MB. Each micro-batch reads and writes all of it" in first
    assert "which takes about 0.3 to 1.3 s. " in first
    assert ("with StateLayout.MAP, where" in first) == (layout is StateLayout.BLOB)
    assert "docs/state.md" in first
    assert "the job will fail" in said[512][0]


@LAYOUTS
def test_subtasks_of_one_task_share_a_limit(
    layout: StateLayout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_limit, "LARGEST_OF_A_TASK", 2_000)
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(4)
    env.from_collection([b""]).key_by(len).process(Remembering()).with_uid("f").to_sink(CollectSink())
    plan = env.build_plan()
    sizes = StateSizes(plan, Layout.of(plan, partitions=2, state=layout))
    for size in (400, 600):
        assert not caplog.records
        sizes.note([SubtaskReport("f", subtask, state_bytes=size) for subtask in range(4)])
    messages = [record.getMessage() for record in caplog.records]
    if layout is StateLayout.BLOB:
        assert len(messages) == 2
        assert all("share a Spark task: their states have grown to 1200 bytes. At 2000" in said for said in messages)
    else:
        assert messages == []


# --- As Spark calls stages in its workers -----------------------------------------------------------------------------


ENDS = {"a": 40, "b": 7, "c": 0, "d": 23}


class BatchJob:
    """A job in BATCH mode without Spark. Each stage receives its rows in one partition."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.layout = Layout.of(plan)
        self.packed = pack_job(plan, self.layout, TypeRegistry.of(plan))

    def source_rows(self) -> list[Row]:
        """The frames of the sources, or the orders to read them."""
        rows: list[Row] = []
        for operator in self.plan.operators:
            if operator.kind is OperatorKind.SOURCE:
                feed, portions = self._feed(operator)
                feed = feed_for(self.plan, operator.id, feed)
                job = load_job(self.packed)
                rows += [row for portion in portions for part in feed.rows(job, operator, portion) for row in part]
        return rows

    def _feed(self, operator: Operator) -> tuple[Feed, list[Any]]:
        source = operator.body
        if isinstance(source, IndexedSource):
            assert source.count is not None
            ranges = [IndexRange(subtask, 0, source.count, True, True) for subtask in range(operator.parallelism)]
            return IndexedFeed(source), ranges
        assert isinstance(source, Source)
        return SplitFeed(source), [*whole_orders(source, operator, ManualClock())]

    def run(self, rows: list[Any]) -> list[Any]:
        """Pass ``rows`` through the levels."""
        for level in range(len(self.layout.levels)):
            placed = sorted(rows, key=lambda row: (row[0], row[2], row[1]))
            run = batch_stage(self.packed, level, now_ms=0)
            sent = run(to_arrow([row]) for row in placed)
            rows = [
                row for batch in sent for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            ]
        return rows

    def records(self, rows: Iterable[Row]) -> list[Any]:
        """The records that reach the sink."""
        return [record for slot, *_, data in rows if slot != REPORT_SLOT for record in records_of(self.packed, data)]


class Number(OneInputStreamProcessFunction[Any, Any]):
    """Numbers the records in its subtask."""

    closed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.count = 0

    def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        self.count += 1
        output.collect((record, self.count))

    def close(self) -> None:
        self.closed.append(self.count)


def environment(runtime: Any = "local") -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(runtime)
    env.set_parallelism(2)
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    return env


BOTH = ("process_record_from_first_input", "process_record_from_second_input")


def twice(record: int, output: Collector[Any], ctx: Any) -> None:
    output.collect((record, record))


def pair(record: int) -> tuple[int, int]:
    return record, record


def is_odd(number: int) -> bool:
    return number % 2 == 1


def build(env: ExecutionEnvironment, sink: CollectSink[Any]) -> None:
    """Two sources that the subtasks read themselves, with splits and with indices, three others, and two levels."""
    read = env.from_source(DataGeneratorSource(int, count=40_000)).filter(is_odd)
    listed = env.from_collection([7, 8]).shuffle()
    numbers = read.connect_and_process(listed, two_inputs(**dict.fromkeys(BOTH, twice)))
    spans = env.from_source(Spans(ENDS)).map(number_of).process(Number())
    split = env.from_source(Spans(ENDS)).map(number_of).map(pair).shuffle()
    counted = env.from_source(DataGeneratorSource(int, count=40_000)).map(pair).shuffle()
    spans.union(numbers, split, counted).key_by(min).process(Number()).to_sink(sink)


@pytest.mark.parametrize("output_bytes", [OUTPUT_BYTES, 1], ids=["whole", "in pieces"])
def test_batch_stages_give_what_the_local_runtime_gives(monkeypatch: pytest.MonkeyPatch, output_bytes: int) -> None:
    for module in (stage, source_read):
        monkeypatch.setattr(module, "OUTPUT_BYTES", output_bytes)
    expected = CollectSink[Any]()
    local = environment(LocalRuntime())
    build(local, expected)
    local.execute("batch")
    env = environment()
    build(env, CollectSink())
    job = BatchJob(env.build_plan())
    assert len(job.plan.read_by) == 2
    found = job.records(job.run(job.source_rows()))
    assert len(found) == 20_000 + 2 + 70 + 70 + 40_000
    assert Counter(record for record, _ in found) == Counter(record for record, _ in expected.results)


def test_rows_for_other_slots_pass_together() -> None:
    env = environment()
    env.from_collection([1]).key_by(bool).process(Number()).key_by(min).process(Number()).to_sink(CollectSink())
    job = BatchJob(env.build_plan())
    own, later = ([job.layout.slots[head, 0] for head in level] for level in job.layout.levels)
    passing = to_arrow([(REPORT_SLOT, 0, 0, b"report"), *((later[0], 0, seq, b"frame") for seq in range(3))])
    sent = batch_stage(job.packed, 0, now_ms=0)([passing, passing])
    assert own != later
    assert [*sent] == [passing, passing]


def test_missing_end_of_a_source_is_reported() -> None:
    env = environment()
    env.from_collection([1, 2, 3]).key_by(bool).process(Number()).with_uid("number").to_sink(CollectSink())
    job = BatchJob(env.build_plan())
    rows = job.source_rows()
    with pytest.raises(Exception, match=r"uid 'number'\), subtask 0 did not receive the end of its input"):
        job.run(rows[:1])


def test_reader_that_fails_closes_its_subtask() -> None:
    def unreadable(index: int) -> int:
        raise OSError("not readable")

    env = environment()
    env.set_parallelism(1)
    env.from_source(DataGeneratorSource(unreadable, count=3)).process(Number()).to_sink(CollectSink())
    job = BatchJob(env.build_plan())
    Number.closed.clear()
    with pytest.raises(Exception, match="not readable") as raised:
        job.run(job.source_rows())
    assert isinstance(job_failure(raised.value, "job"), UserFunctionError)
    assert Number.closed == [0]


class State:
    """Replaces the ``GroupState`` of a slot."""

    def __init__(self) -> None:
        self.kept: tuple[bytes, ...] | None = None
        self.now = 0
        self.timeouts: list[int] = []

    @property
    def exists(self) -> bool:
        return self.kept is not None

    @property
    def get(self) -> tuple[bytes, ...]:
        assert self.kept is not None
        return self.kept

    def update(self, value: tuple[bytes, ...]) -> None:
        self.kept = value

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 - Spark's name
        return self.now

    def setTimeoutDuration(self, ms: int) -> None:  # noqa: N802
        self.timeouts.append(ms)


@pytest.mark.parametrize("timed", [True, False])
def test_state_and_timeouts_of_a_stage_with_one_value(timed: bool) -> None:
    env = ExecutionEnvironment.get_instance("local")
    visits = env.from_source(CollectionSource[Visit]([])).key_by(key_of)
    visits.process(Visits()).with_uid("visits").to_sink(CollectSink())
    plan = env.build_plan()
    layout = Layout.of(plan)
    packed = pack_job(plan, layout, TypeRegistry.of(plan))
    (head,) = plan.chains
    slot, state, run = layout.slots[head, 0], State(), streaming_stage(packed, 0, timed=timed)

    def batch(now: int, *records: Visit) -> list[Any]:
        state.now = now
        encoder = FrameEncoder(plan, layout, load_job(packed).codec())
        encoder.emit(Frame(head, 0, 0, RecordBatch(records), []))
        frames = pd.DataFrame([row[1:] for row in encoder.take()], columns=list(COLUMNS[1:]))
        sent = run((slot,), iter([frames]), state)  # type: ignore[arg-type]
        rows = [row for frame in sent for row in frame.itertuples(index=False, name=None)]
        return [record for slot, *_, data in rows if slot >= 0 for record in records_of(packed, data)]

    assert batch(1_000, Visit("a", delay=500), Visit("b")) == [("a", 1, 1, 1_000), ("b", 1, 2, 1_000)]
    assert batch(1_400, Visit("a")) == [("a", 2, 3, 1_400)]
    late = [("a", "alarm", 1_500, 1_600), ("a", 3, 4, 1_600)]
    assert batch(1_600, Visit("a")) == late
    assert state.timeouts == ([500, 100] if timed else [])


def key_of(visit: Visit) -> str:
    return visit.key


def records_of(packed: bytes, data: bytes) -> list[Any]:
    return [*decode_frame(load_job(packed).codec(), data, "a frame")[0].records]
