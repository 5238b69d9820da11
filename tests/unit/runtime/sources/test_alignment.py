"""Watermark alignment: decisions of the driver, and their effect in a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.errors import JobError
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.runtime.sources.alignment import LocalBoard
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, NOTHING_SENT, Report, SourceOffset, orders
from dsv2.sinks import CollectSink
from dsv2.sources import (
    HybridSource,
    Portion,
    ReaderInfo,
    RoundRobinSplitAssigner,
    Source,
    SplitEnumerator,
    SplitEnumeratorContext,
    WatermarkStrategy,
)
from dsv2.sources.hybrid import HybridSplit
from dsv2.testing import ManualClock
from dsv2.watermark.event_time import LONG_MIN
from tests.durations import ms
from tests.spans import Item, Span, Spans, number_of
from tests.support import local_environment, operator_named

INTERVAL = timedelta(milliseconds=100)


def aligned(drift: int, group: str = "g", *, idle: int = 0, **options: Any) -> WatermarkStrategy[Item]:
    builder = EventTimeExtension.new_watermark_generator_builder(number_of).with_idleness(timedelta(milliseconds=idle))
    strategy = builder.build_as_watermark_strategy()
    return strategy.with_watermark_alignment(group, timedelta(milliseconds=drift), INTERVAL, **options)


class RecordingSpans(Spans):
    """Unbounded spans that record which splits are paused and resumed."""

    def __init__(self, *names: str, **options: Any) -> None:
        super().__init__(dict.fromkeys(names, 1), bounded=False, assigner=RoundRobinSplitAssigner(), **options)
        self.paused: list[tuple[list[str], list[str]]] = []

    def pause_or_resume_splits(self, splits_to_pause: Sequence[Span], splits_to_resume: Sequence[Span], /) -> None:
        self.paused.append(([span.name for span in splits_to_pause], [span.name for span in splits_to_resume]))

    def grow(self) -> None:
        """Add one record to each span."""
        self.ends = {name: end + 1 for name, end in self.ends.items()}


def name_of(split: Span | HybridSplit) -> str:
    return str((split.split if isinstance(split, HybridSplit) else split).name)


class Sources:
    """The sources of one job without its tasks. Readers report the watermarks that the test gives."""

    def __init__(self, *sources: tuple[Source[Item, Any, Any], WatermarkStrategy[Item]], parallelism: int = 1) -> None:
        self.env = local_environment(parallelism)
        for number, (source, strategy) in enumerate(sources):
            self.env.from_source(source, watermarks=strategy).with_uid(str(number)).to_sink(CollectSink())
        self.plan = self.env.build_plan()
        self.sources = [source for source, _ in sources]
        self.clock = ManualClock()
        self.offsets: list[SourceOffset] = [BEFORE_START for _ in sources]
        self.reports: list[list[Report]] = [[] for _ in sources]
        self.restart()

    def restart(self) -> None:
        board = LocalBoard(self.plan)
        operators = [operator_named(self.plan, str(number)) for number in range(len(self.sources))]
        self.coordinators = [
            SourceCoordinator(source, operator, self.clock, board)
            for source, operator in zip(self.sources, operators, strict=True)
        ]

    def batch(self, later: int = 100, **reached: int) -> list[str]:
        """Return the splits read in the next micro-batch, which reach the watermarks in ``reached``."""
        self.clock.advance(ms(later))
        read: list[str] = []
        for number, coordinator in enumerate(self.coordinators):
            before = self.offsets[number]
            there = self.offsets[number] = coordinator.next(before, None, reports=self.reports[number])
            if there != before:
                found = orders(there, self.sources[number].split_serializer)
                read += [name_of(portion.stop) for order in found for portion in order.portions]
                self.reports[number] = [
                    {
                        "batch": order.batch,
                        "subtask": order.subtask,
                        "parallelism": len(there["readers"]),
                        "splits": {
                            split.stop.split_id: reached.get(name_of(split.stop), split.watermark)
                            for split in order.splits
                        },
                        "sent": None,
                        "sender": NOTHING_SENT,
                    }
                    for order in found
                ]
        for source in self.sources:
            if isinstance(source, RecordingSpans):
                source.grow()
        return read


def test_sources_wait_within_their_group_only() -> None:
    fast, slow, other = RecordingSpans("fast"), RecordingSpans("slow"), RecordingSpans("other")
    job = Sources((fast, aligned(10)), (slow, aligned(10)), (other, aligned(10, "h")))
    assert job.batch(fast=100, slow=5, other=1000) == ["fast", "slow", "other"]
    assert job.batch(slow=50, other=2000) == ["slow", "other"]
    assert job.batch(slow=95, other=3000) == ["slow", "other"]
    assert job.coordinators[0].waits_for_others
    assert not job.coordinators[1].waits_for_others


def test_group_is_checked_in_intervals() -> None:
    job = Sources((RecordingSpans("fast", "slow"), aligned(10)))
    job.batch(fast=100, slow=5)
    assert job.batch(slow=99) == ["slow"]
    assert job.batch(later=50) == []  # at the last check, "slow" was at 5
    assert job.coordinators[0].resumes_soon
    assert job.batch(later=50, fast=100, slow=99) == ["fast", "slow"]
    assert not job.coordinators[0].resumes_soon


def test_waiting_split_still_waits_after_restart() -> None:
    fast, slow = RecordingSpans("fast"), RecordingSpans("slow")
    job = Sources((fast, aligned(10)), (slow, aligned(10)))
    job.batch(fast=100, slow=5)
    job.batch(fast=200, slow=5)
    assert job.batch(slow=6) == ["slow"]
    job.restart()
    assert job.batch(slow=7) == ["slow"]


class ScriptedSpans(RecordingSpans):
    """Has more records only when the test adds them."""

    def grow(self) -> None: ...


STEP = st.fixed_dictionaries({name: st.tuples(st.booleans(), st.integers(0, 30)) for name in "abc"})


@given(st.lists(STEP, max_size=20))
def test_splits_read_match_a_model(steps: list[dict[str, tuple[bool, int]]]) -> None:
    """Each step has, by split, whether there is new data and by how much it advances event time when read."""
    source = ScriptedSpans("a", "b", "c")
    job = Sources((source, aligned(10, idle=250)))
    times: dict[str, int] = {}
    waiting, idle = {"a", "b", "c"}, set[str]()
    active_at = dict.fromkeys("abc", 0)
    for number, step in enumerate(steps):
        for name in (name for name, (is_new, _) in step.items() if is_new):
            source.ends[name] += 1
            waiting.add(name)
        slowest = min((times.get(name, LONG_MIN) for name in "abc" if name not in idle), default=None)
        paused = {name for name, time in times.items() if slowest is not None and time > slowest + 10}
        read = waiting - paused
        reached = {name: times.get(name, 0) + step[name][1] for name in read}
        assert set(job.batch(**reached)) == read
        for name in "abc":
            if name in read | paused:
                active_at[name] = number
                idle.discard(name)
            elif number - active_at[name] >= 3:  # steps of 100 ms
                idle.add(name)
        times |= reached
        waiting -= read


class Whole(Spans):
    """Its enumerator cannot pause single splits."""

    def create_enumerator(self, ctx: SplitEnumeratorContext[Span], restored: Any, /) -> SplitEnumerator[Span, Any]:
        return _Whole(super().create_enumerator(ctx, restored))


class _Whole(SplitEnumerator[Span, Any]):
    def __init__(self, inner: SplitEnumerator[Span, Any]) -> None:
        self.inner = inner

    def add_reader(self, reader: ReaderInfo[Span], /) -> None:
        self.inner.add_reader(reader)

    def add_splits_back(self, splits: Sequence[Span], subtask: int, /) -> None:
        self.inner.add_splits_back(splits, subtask)

    def refresh(self) -> None:
        self.inner.refresh()

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        return Portion(Span(split.name, split.position + 1, split.end))

    def snapshot_state(self) -> Any:
        return self.inner.snapshot_state()


def whole(*names: str) -> Source[Item, Any, Any]:
    return Whole(dict.fromkeys(names, 9), bounded=False, assigner=RoundRobinSplitAssigner())


def first_of_two(*names: str) -> Source[Item, Any, Any]:
    first = Whole(dict.fromkeys(names, 9), assigner=RoundRobinSplitAssigner())
    return HybridSource([first, RecordingSpans("later")])


both_kinds = pytest.mark.parametrize("whole", [whole, first_of_two], ids=["alone", "hybrid"])


@both_kinds
def test_reader_that_cannot_pause_single_splits_is_refused(whole: Any) -> None:
    with pytest.raises(JobError, match=r"A reader has 2 splits to align, but _(Whole|Enumerator) cannot pause single"):
        Sources((whole("a", "b"), aligned(10))).batch()


@both_kinds
def test_readers_of_one_split_can_be_paused_as_a_whole(whole: Any) -> None:
    job = Sources((whole("fast", "slow"), aligned(10)), parallelism=2)
    job.batch(fast=100, slow=5)
    assert job.batch() == ["slow"]


def test_hybrid_source_pauses_splits_if_its_current_source_does() -> None:
    current = RecordingSpans("fast", "slow")
    job = Sources((HybridSource([Spans({}), current]), aligned(10)))
    assert job.batch(fast=100, slow=5) == ["fast", "slow"]
    current.grow()
    assert job.batch() == ["slow"]
    assert current.paused == [(["fast"], [])]


@both_kinds
def test_whole_readers_can_be_aligned(whole: Any) -> None:
    strategy = aligned(10, allow_unaligned_splits=True)
    job = Sources((whole("fast", "other", "slow"), strategy), parallelism=2)
    job.batch(fast=100, slow=95, other=5)  # "fast" and "slow" share a reader
    assert job.batch(other=80) == ["other"]
    assert job.batch(other=85) == ["other"]
    assert job.batch() == ["fast", "slow", "other"]


# --- In a job ---------------------------------------------------------------------------------------------------------


class Ahead(OneInputEventTimeStreamProcessFunction[Item, int]):
    """Emits how far each record is ahead of event time."""

    def __init__(self) -> None:
        self.time = 0

    def process_record(self, record: Item, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        output.collect(record.number - self.time)

    def on_event_time_watermark(self, timestamp: int, output: Collector[int], ctx: NonPartitionedContext[int]) -> None:
        self.time = timestamp


class Wide(Spans):
    """Each record of the span "fast" advances event time 50 times as far as one of the others."""

    def read(self, start: Span, stop: Span, /) -> Any:
        for run in super().read(start, stop):
            yield type(run)(
                [item._replace(number=item.number * (50 if item.span == "fast" else 1)) for item in run.records]
            )


def furthest(strategy: WatermarkStrategy[Item], *, checks: bool = True) -> tuple[int, int]:
    """Return how far records were ahead of event time at most, and how many records there were."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=checks, clock=ManualClock(step=ms(50))))
    source = Wide({"fast": 200, "slow": 10_000}, limit=200)
    sink = CollectSink[int]()
    ahead = env.from_source(source, watermarks=strategy).with_parallelism(2).process(Ahead()).with_parallelism(1)
    ahead.to_sink(sink)
    env.execute()
    return max(sink.results), len(sink.results)


@pytest.mark.parametrize("checks", [True, False])
def test_records_ahead_stay_within_the_drift(checks: bool) -> None:
    drift, batch = 400, 100 * 50
    found, count = furthest(aligned(drift), checks=checks)
    assert count == 10_200
    assert found <= drift + batch
    without, count = furthest(
        EventTimeExtension.new_watermark_generator_builder(number_of).build_as_watermark_strategy()
    )
    assert count == 10_200
    assert without > 9_000


@pytest.mark.parametrize("step", [0, 30])
def test_aligned_bounded_sources_end(step: int) -> None:
    """A manual clock that stands still moves on while splits are paused."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(3,), clock=ManualClock(step=ms(step))))
    sinks = []
    for ends in ({"fast": 10, "a": 200}, {"b": 100}):
        sinks.append(CollectSink[Item]())
        env.from_source(Wide(ends), watermarks=aligned(20)).with_parallelism(2).to_sink(sinks[-1])
    env.execute()
    assert [len(sink.results) for sink in sinks] == [210, 100]
