"""State in Spark's map, one call of Spark after the other, with replacements for Spark's state of a slot.

They refuse what Spark only warns about, once for each call and in the logs of the user.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pandas as pd
import pytest
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from dsv2 import ExecutionEnvironment
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import OperatorKind
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.state import StateDeclaration, StateDeclarations
from runtime_spark import StateLayout
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.rows import COLUMNS, Row
from runtime_spark.frames.state_history import JOURNAL, StateHistory
from runtime_spark.frames.worker import load_job, pack_job
from runtime_spark.source.feeds import IndexedFeed
from runtime_spark.source.source_read import IndexRange
from runtime_spark.task import map_stage, stage
from runtime_spark.task.map_stage import MapStage

COUNT = StateDeclarations.value_state("count", int, default=0)


class Visit(NamedTuple):
    """A visit of ``key``, which registers a timer ``delay`` ms later, or forgets the key."""

    key: str
    delay: int | None = None
    forget: bool = False


class Visits(OneInputStreamProcessFunction[Visit, Any]):
    """Emits how often the key and any key have come, and timers, each with the time of the micro-batch."""

    dsv2_remember_keys = False

    def __init__(self) -> None:
        self.all = 0

    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: Visit, output: Any, ctx: Any) -> None:
        count, now = ctx.state_manager.get_state(COUNT), ctx.processing_time_manager.current_time()
        self.all += 1
        if record.forget:
            count.clear()
            return
        count.update(count.value() + 1)
        output.collect((record.key, count.value(), self.all, now))
        if record.delay is not None:
            ctx.processing_time_manager.register_timer(now + record.delay)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        now = ctx.processing_time_manager.current_time()
        output.collect((ctx.state_manager.current_key, "alarm", timestamp, now))


class Value:
    """Replaces a ``ValueState``."""

    def __init__(self) -> None:
        self.kept: tuple[Any, ...] | None = None

    def exists(self) -> bool:
        return self.kept is not None

    def get(self) -> tuple[Any, ...]:
        assert self.kept is not None, "Spark warns: there is no value"
        return self.kept

    def update(self, value: tuple[Any, ...]) -> None:
        self.kept = value


class Map:
    """Replaces a ``MapState``."""

    def __init__(self) -> None:
        self.kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:  # noqa: N802 - Spark's name
        return self.kept.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:  # noqa: N802
        self.kept[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:  # noqa: N802
        del self.kept[key]


class Slot:
    """Spark's state of one slot. Also replaces its ``StatefulProcessorHandle``."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.maps: dict[str, Map] = {}
        self.timers: list[int] = []

    def getValueState(self, name: str, schema: Any) -> Value:  # noqa: N802
        return self.values.setdefault(name, Value())

    def getMapState(self, name: str, key_schema: Any, value_schema: Any) -> Map:  # noqa: N802
        return self.maps.setdefault(name, Map())

    def listTimers(self) -> Iterator[int]:  # noqa: N802
        return iter(self.timers)

    def registerTimer(self, time: int) -> None:  # noqa: N802
        assert time not in self.timers, "Spark warns: it is there already"
        self.timers = sorted([*self.timers, time])

    def deleteTimer(self, time: int) -> None:  # noqa: N802
        assert time in self.timers, "Spark warns: it is not there"
        self.timers = [timer for timer in self.timers if timer != time]


class Job:
    """One subtask of ``Visits``, called as Spark does: each micro-batch with a new processor."""

    def __init__(self, *, timed: bool = True, history: StateHistory | None = None) -> None:
        self.slot = Slot()
        self.woken: list[int] = []  # the times for which Spark has called without rows
        self._timed = timed
        env = ExecutionEnvironment.get_instance("local")
        stream = env.from_source(CollectionSource[Visit]([])).key_by(lambda visit: visit.key)
        stream.process(Visits()).with_uid("visits").to_sink(CollectSink())
        self._plan = env.build_plan()
        self.layout = Layout.of(self._plan, state=StateLayout.MAP)
        self._packed = pack_job(self._plan, self.layout, TypeRegistry.of(self._plan), history=history)
        (head,) = self._plan.chains
        self.number = self.layout.slots[head, 0]

    def batch(self, now: int, *visits: Visit) -> list[Any]:
        """Run a micro-batch and return its output. Without visits Spark calls the subtask only if a timer is due."""
        processor = MapStage(self._packed, 0, timed=self._timed)
        processor.init(self.slot)  # type: ignore[arg-type]
        times = TimerValues(now) if self._timed else TimerValues()
        sent: list[Any] = []
        if visits:
            frames = self.frames(now, visits)
            sent += self._decoded(processor.handleInputRows((self.number,), frames, times))
        for timer in [timer for timer in self.slot.timers if timer <= now]:
            self.woken.append(timer)
            sent += self._decoded(processor.handleExpiredTimer((self.number,), times, ExpiredTimerInfo(timer)))
            self.slot.deleteTimer(timer)
        processor.close()
        return sent

    def frames(self, now: int, visits: Iterable[Visit]) -> Iterator[pd.DataFrame]:
        """Visits as Spark passes them: a few rows at a time."""
        source = next(operator for operator in self._plan.operators if operator.kind is OperatorKind.SOURCE)
        for seq, visit in enumerate(visits):
            feed = IndexedFeed(CollectionSource([visit]))
            (rows,) = feed.rows(load_job(self._packed), source, IndexRange(0, 0, 1, first=False, last=False))
            own: list[Row] = [(slot, channel, seq, data) for slot, channel, _, data in rows if slot == self.number]
            yield pd.DataFrame([(*row, now) for row in own], columns=[*COLUMNS, "now_ms"])

    def _decoded(self, frames: Iterable[pd.DataFrame]) -> list[Any]:
        codec = load_job(self._packed).codec()
        sinks = {slot for (operator, _), slot in self.layout.slots.items() if slot != self.number}
        rows = itertools.chain.from_iterable(frame.itertuples(index=False, name=None) for frame in frames)
        return [
            record
            for slot, _, _, data in rows
            if slot in sinks
            for record in decode_frame(codec, data, "it")[0].records
        ]


def pages(job: Job) -> set[tuple[Any, ...]]:
    """The keys of the pages in the map."""
    (only,) = job.slot.maps.values()
    return {key for key in only.kept if key[0] != JOURNAL}


def test_state_is_kept_between_micro_batches() -> None:
    job = Job()
    assert job.batch(1_000, Visit("a"), Visit("b"), Visit("a")) == [
        ("a", 1, 1, 1_000), ("b", 1, 2, 1_000), ("a", 2, 3, 1_000),
    ]  # fmt: skip
    assert job.batch(2_000, Visit("b"), Visit("a")) == [("b", 2, 4, 2_000), ("a", 3, 5, 2_000)]


def test_store_without_the_changes_of_a_batch_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = itertools.count()
    monkeypatch.setattr(stage, "batch_id", lambda: next(number))
    first = Job(history=StateHistory(UUID(int=1), 0, {}))
    for name in "abcd":
        first.batch(1_000, Visit(name))
    second = Job(history=StateHistory(UUID(int=1), 4, {("visits", 0): 3}))
    second.slot = first.slot
    places = [key for key in first.slot.maps["pages"].kept if key[0] == JOURNAL]
    assert [place for _, place in places] == [0, 1, 2, 3]
    whole = first.slot.maps["pages"].kept.pop(places[2])
    with pytest.raises(
        Exception, match=r"State of .*uid 'visits'.* is incomplete: the entries that micro-batch 2 wrote"
    ):
        second.batch(2_000, Visit("a"))
    first.slot.maps["pages"].kept[places[2]] = whole
    number = itertools.count(4)
    assert second.batch(2_000, Visit("a")) == [("a", 2, 5, 2_000)]


def test_keys_are_spread_over_pages() -> None:
    job = Job()
    users = [Visit(f"user {number}", delay=10**9) for number in range(300)]
    job.batch(1_000, *users)
    assert len([name for name, _ in pages(job) if name.endswith("keys")]) > 5
    assert [count for _, count, *_ in job.batch(2_000, *users)] == [2] * 300


def test_small_value_does_not_grow_with_the_keys() -> None:
    job, small = Job(), Job()
    small.batch(1_000, Visit("user 0"))
    job.batch(1_000, *(Visit(f"user {number}") for number in range(300)))
    sizes = [len(slot.values["subtask"].get()[0]) for slot in (small.slot, job.slot)]
    assert sizes[1] < sizes[0] + 100
    held = b"".join(blob for (blob,) in job.slot.maps["pages"].kept.values())
    assert all(f"user {number}".encode() in held for number in range(300))


def test_pages_of_forgotten_keys_are_removed() -> None:
    job = Job()
    job.batch(1_000, *(Visit(f"user {number}") for number in range(100)))
    assert pages(job)
    job.batch(2_000, *(Visit(f"user {number}", forget=True) for number in range(100)))
    assert not pages(job)


@pytest.mark.parametrize("timed", [True, False])
def test_time_is_that_of_the_micro_batch(timed: bool) -> None:
    """Spark passes the time only to stages with timers."""
    job = Job(timed=timed)
    assert [job.batch(now, Visit("a"))[0][-1] for now in (5_000, 5_001, 9_999)] == [5_000, 5_001, 9_999]


def test_stage_without_timers_registers_none() -> None:
    job = Job(timed=False)
    job.batch(1_000, Visit("a", delay=10))
    assert job.slot.timers == []


def test_one_spark_timer_for_the_earliest() -> None:
    job = Job()
    for now, delay, earliest in ((1_000, 500, 1_500), (1_001, 800, 1_500), (1_002, 300, 1_302), (1_003, 299, 1_302)):
        job.batch(now, Visit(f"key {delay}", delay=delay))
        assert job.slot.timers == [earliest]


def test_timer_fires_without_rows_and_the_next_is_registered() -> None:
    job = Job()
    job.batch(1_000, Visit("a", delay=500), Visit("b", delay=700))
    assert job.batch(1_499) == []
    assert job.batch(1_510) == [("a", "alarm", 1_500, 1_510)]
    assert job.slot.timers == [1_700]
    assert job.batch(1_700) == [("b", "alarm", 1_700, 1_700)]
    assert job.slot.timers == []


def test_timer_that_fires_with_rows_fires_once() -> None:
    job = Job()
    job.batch(1_000, Visit("a", delay=500), Visit("a", delay=900))
    assert job.batch(1_600, Visit("b")) == [("a", "alarm", 1_500, 1_600), ("b", 1, 3, 1_600)]
    assert job.slot.timers == [1_900]
    assert job.batch(2_000, Visit("b")) == [("a", "alarm", 1_900, 2_000), ("b", 2, 4, 2_000)]
    assert job.slot.timers == job.woken == []


class Frames:
    """Replaces a DataFrame on its way into the stage."""

    def __init__(self) -> None:
        self.added: dict[str, Any] = {}
        self.grouped_by = ""
        self.time_mode = ""

    def withColumn(self, name: str, column: Any) -> Frames:  # noqa: N802 - Spark's name
        self.added[name] = column
        return self

    def groupBy(self, name: str) -> Frames:  # noqa: N802
        self.grouped_by = name
        return self

    def transformWithStateInPandas(  # noqa: N802
        self, processor: Any, schema: Any, output_mode: str, time_mode: str
    ) -> Frames:
        self.time_mode = time_mode
        return self


@pytest.mark.parametrize(("timed", "mode"), [(True, "ProcessingTime"), (False, "None")])
def test_time_mode_depends_on_timers(timed: bool, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its other mode Spark would run micro-batches without rows all the time."""
    functions = SimpleNamespace(current_timestamp=lambda: "its time", unix_millis=lambda time: f"{time} in ms")
    monkeypatch.setattr(map_stage, "F", functions)
    frames = Frames()
    map_stage.with_map_state(frames, b"", 0, timed=timed)  # type: ignore[arg-type]
    assert frames.time_mode == mode
    assert (frames.grouped_by, frames.added) == ("group", {"now_ms": "its time in ms"})


def test_rows_for_other_levels_pass_without_the_time() -> None:
    job = Job()
    (sink,) = set(job.layout.addresses) - {job.number}
    rows = [(sink, 0, 0, b"one"), (sink, 0, 1, b"two")]
    frames = [pd.DataFrame([(*row, 1_000)], columns=[*COLUMNS, "now_ms"]) for row in rows]
    processor = MapStage(job._packed, 0, timed=True)
    processor.init(job.slot)  # type: ignore[arg-type]
    passed = list(processor.handleInputRows((sink,), iter(frames), TimerValues(1_000)))
    assert [tuple(frame.columns) for frame in passed] == [COLUMNS, COLUMNS]
    assert [row for frame in passed for row in frame.itertuples(index=False, name=None)] == rows
    assert job.slot.values["subtask"].kept is None
