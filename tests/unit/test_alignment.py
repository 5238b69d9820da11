"""Splits that are ahead of others in event time wait: decisions on the driver, and what they come to in a job."""

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
    Portion,
    ReaderInfo,
    RoundRobinSplitAssigner,
    SplitEnumerator,
    SplitEnumeratorContext,
    SplitSource,
    WatermarkStrategy,
)
from dsv2.testing import ManualClock
from dsv2.watermark.event_time import LONG_MIN
from tests.durations import ms
from tests.spans import Item, Span, Spans
from tests.support import local_environment, operator_named

INTERVAL = timedelta(milliseconds=100)


def number_of(item: Item) -> int:
    return item.number


def aligned(drift: int, group: str = "g", *, idle: int = 0, **options: Any) -> WatermarkStrategy[Item]:
    builder = EventTimeExtension.new_watermark_generator_builder(number_of).with_idleness(timedelta(milliseconds=idle))
    strategy = builder.build_as_watermark_strategy()
    return strategy.with_watermark_alignment(group, timedelta(milliseconds=drift), INTERVAL, **options)


class Told(Spans):
    """Unbounded spans that note which splits they are told to pause and to resume."""

    def __init__(self, *names: str, **options: Any) -> None:
        super().__init__(dict.fromkeys(names, 1), bounded=False, assigner=RoundRobinSplitAssigner(), **options)
        self.paused: list[tuple[list[str], list[str]]] = []

    def pause_or_resume_splits(self, splits_to_pause: Sequence[Span], splits_to_resume: Sequence[Span], /) -> None:
        self.paused.append(([span.name for span in splits_to_pause], [span.name for span in splits_to_resume]))

    def grow(self) -> None:
        """Have one more record in each span."""
        self.ends = {name: end + 1 for name, end in self.ends.items()}


class Sources:
    """The sources of one job, without its tasks; readers report what they are told to."""

    def __init__(self, *sources: tuple[SplitSource[Item, Span], WatermarkStrategy[Item]], parallelism: int = 1) -> None:
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
        """The splits that are read in the next micro-batch, which have ``reached`` a watermark then."""
        self.clock.advance(ms(later))
        read: list[str] = []
        for number, coordinator in enumerate(self.coordinators):
            before = self.offsets[number]
            there = self.offsets[number] = coordinator.next(before, None, reports=self.reports[number])
            if there != before:
                found = orders(there, self.sources[number].split_serializer)
                read += [portion.stop.name for order in found for portion in order.portions]
                self.reports[number] = [
                    {
                        "batch": order.batch,
                        "subtask": order.subtask,
                        "parallelism": len(there["readers"]),
                        "splits": {
                            split.stop.name: reached.get(split.stop.name, split.watermark) for split in order.splits
                        },
                        "sent": None,
                        "sender": NOTHING_SENT,
                    }
                    for order in found
                ]
        for source in self.sources:
            if isinstance(source, Told):
                source.grow()
        return read


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_split_that_is_ahead_waits_until_the_others_have_come_near(parallelism: int) -> None:
    source = Told("fast", "slow")
    job = Sources((source, aligned(10)), parallelism=parallelism)
    assert job.batch(fast=100, slow=5) == ["fast", "slow"]
    assert job.batch(slow=89) == ["slow"]
    assert not job.coordinators[0].waits_for_others  # but for another split of its own
    assert job.batch(slow=90) == ["slow"]
    assert job.batch(fast=101, slow=95) == ["fast", "slow"]
    assert source.paused == [(["fast"], []), ([], ["fast"])]
    assert job.offsets[0]["max_desired"] == 100


def test_sources_of_one_group_wait_for_each_other_and_others_do_not() -> None:
    fast, slow, other = Told("fast"), Told("slow"), Told("other")
    job = Sources((fast, aligned(10)), (slow, aligned(10)), (other, aligned(10, "h")))
    assert job.batch(fast=100, slow=5, other=1000) == ["fast", "slow", "other"]
    assert job.batch(slow=50, other=2000) == ["slow", "other"]
    assert job.batch(slow=95, other=3000) == ["slow", "other"]
    assert job.coordinators[0].waits_for_others
    assert not job.coordinators[1].waits_for_others


def test_the_group_is_looked_at_in_intervals() -> None:
    job = Sources((Told("fast", "slow"), aligned(10)))
    job.batch(fast=100, slow=5)
    assert job.batch(slow=99) == ["slow"]
    assert job.batch(later=50) == []  # as it was seen last, "slow" is at 5
    assert job.coordinators[0].resumes_soon
    assert job.batch(later=50, fast=100, slow=99) == ["fast", "slow"]
    assert not job.coordinators[0].resumes_soon


def test_a_split_that_has_said_nothing_is_waited_for() -> None:
    job = Sources((Told("fast", "silent"), aligned(10)))
    job.batch(fast=5)
    assert job.batch(fast=100) == ["silent"]  # which may be long before 5
    assert job.batch() == ["silent"]
    assert job.batch(silent=100) == ["silent"]
    assert job.batch() == ["fast", "silent"]


def test_an_idle_split_holds_nobody_back_and_one_that_waits_is_not_idle() -> None:
    source = Told("fast", "slow")
    job = Sources((source, aligned(10, idle=250)))
    job.batch(fast=100, slow=5)
    source.ends["slow"] = 1
    for _ in range(2):
        assert job.batch() == []
        source.ends["slow"] = 1
    assert job.batch() == []  # now it is idle, which is told; "fast" is looked at next
    (reader,) = job.offsets[0]["readers"]
    assert [(split["at"]["name"], split["idle"]) for split in reader["splits"]] == [("fast", False), ("slow", True)]
    source.ends["slow"] = 1
    assert job.batch() == ["fast"]
    (reader,) = job.offsets[0]["readers"]
    assert [(split["at"]["name"], split["idle"]) for split in reader["splits"]] == [("fast", False), ("slow", True)]


def test_what_waits_still_waits_after_a_restart() -> None:
    fast, slow = Told("fast"), Told("slow")
    job = Sources((fast, aligned(10)), (slow, aligned(10)))
    job.batch(fast=100, slow=5)
    job.batch(fast=200, slow=5)
    assert job.batch(slow=6) == ["slow"]
    job.restart()
    assert job.batch(slow=7) == ["slow"]


class Fed(Told):
    """Has more only when it is told so."""

    def grow(self) -> None: ...


STEP = st.fixed_dictionaries({name: st.tuples(st.booleans(), st.integers(0, 30)) for name in "abc"})


@given(st.lists(STEP, max_size=20))
def test_who_is_read_is_what_a_model_says(steps: list[dict[str, tuple[bool, int]]]) -> None:
    """By step and split: whether there is something new, and by how much it moves event time when it is read."""
    source = Fed("a", "b", "c")
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
            elif number - active_at[name] >= 3:  # of 100 ms each
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


def whole(*names: str) -> Whole:
    return Whole(dict.fromkeys(names, 9), bounded=False, assigner=RoundRobinSplitAssigner())


def test_a_reader_of_several_splits_that_cannot_be_paused_singly_is_refused() -> None:
    with pytest.raises(JobError, match=r"A reader has 2 splits to align, but _Whole cannot pause single"):
        Sources((whole("a", "b"), aligned(10))).batch()


def test_readers_of_one_split_each_need_not_pause_single_ones() -> None:
    job = Sources((whole("fast", "slow"), aligned(10)), parallelism=2)
    job.batch(fast=100, slow=5)
    assert job.batch() == ["slow"]


def test_by_a_setting_whole_readers_are_aligned() -> None:
    strategy = aligned(10, allow_unaligned_splits=True)
    job = Sources((whole("fast", "other", "slow"), strategy), parallelism=2)
    job.batch(fast=100, slow=95, other=5)  # "fast" and "slow" have one reader
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
    """A span named "fast" makes 50 times as much event time of each record as others."""

    def read(self, start: Span, stop: Span, /) -> Any:
        for run in super().read(start, stop):
            yield type(run)(
                [item._replace(number=item.number * (50 if item.span == "fast" else 1)) for item in run.records]
            )


def furthest(strategy: WatermarkStrategy[Item], *, fast: bool = False) -> tuple[int, int]:
    """How far a record was ahead of event time at most, and how many there were."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(fast=fast, clock=ManualClock(step=ms(50))))
    source = Wide({"fast": 200, "slow": 10_000}, limit=200)
    sink = CollectSink[int]()
    ahead = env.from_source(source, watermarks=strategy).with_parallelism(2).process(Ahead()).with_parallelism(1)
    ahead.to_sink(sink)
    env.execute()
    return max(sink.results), len(sink.results)


@pytest.mark.parametrize("fast", [False, True])
def test_what_has_to_be_kept_stays_within_the_drift(fast: bool) -> None:
    drift, batch = 400, 100 * 50
    found, count = furthest(aligned(drift), fast=fast)
    assert count == 10_200
    assert found <= drift + batch
    without, count = furthest(
        EventTimeExtension.new_watermark_generator_builder(number_of).build_as_watermark_strategy()
    )
    assert count == 10_200
    assert without > 9_000


def test_two_bounded_sources_in_one_group_come_to_their_end() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(3,), clock=ManualClock(step=ms(30))))
    sinks = []
    for ends in ({"fast": 10, "a": 200}, {"b": 100}):
        sinks.append(CollectSink[Item]())
        env.from_source(Wide(ends), watermarks=aligned(20)).with_parallelism(2).to_sink(sinks[-1])
    env.execute()
    assert [len(sink.results) for sink in sinks] == [210, 100]
