"""Event time of splits: in one reader, from one micro-batch to the next, and in a whole job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.errors import ConfigurationError, PlanError, UserFunctionError
from dsv2.extension.event_time import (
    EventTimeExtension,
    EventTimeWatermarkGeneratorBuilder,
    OneInputEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
)
from dsv2.local import LocalRuntime
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, NOTHING_SENT, ReaderOrder, Report, SourceOffset, orders
from dsv2.runtime.sources.split_watermarks import ReaderClock, SplitTime, combined
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource, Portion, RoundRobinSplitAssigner, WatermarkStrategy
from dsv2.spi import FailedRecordError
from dsv2.testing import ManualClock
from tests.durations import ms
from tests.spans import Item, Span, Spans, number_of
from tests.support import local_environment, operator_named

SECOND = timedelta(seconds=1)


def seven(record: object) -> int:
    return 7


def builder() -> EventTimeWatermarkGeneratorBuilder[Item]:
    return EventTimeExtension.new_watermark_generator_builder(number_of)


# --- One reader -------------------------------------------------------------------------------------------------------


def times(*splits: tuple[int | None, str]) -> list[SplitTime]:
    """Splits with their watermarks. "idle" and "last" mark a split as such."""
    return [SplitTime(watermark, "idle" in said, "last" in said) for watermark, said in splits]


# fmt: off
COMBINED: list[tuple[list[SplitTime], int | None, int | None]] = [
    # the splits, the watermark sent so far, the watermark to send
    (times(), None, None),
    (times((5, "")), None, 5),
    (times((5, ""), (3, "")), None, 3),
    (times((5, ""), (None, "")), None, None),         # a split without a watermark is waited for
    (times((5, ""), (None, "idle")), None, 5),        # unless it is idle
    (times((5, ""), (3, "idle")), None, 5),
    (times((5, "idle"), (3, "idle")), 2, 5),          # all idle: the furthest counts
    (times((5, "idle"), (None, "idle")), None, 5),
    (times((5, "idle"), (3, "idle")), 5, None),
    (times((5, "idle"), (3, "idle")), 6, None),
    (times((None, "idle")), None, None),
    (times((5, ""), (3, "")), 3, None),               # nothing new
    (times((5, ""), (2, "")), 3, 5),                  # a split that lags behind is not waited for
    (times((2, "")), 3, None),
    (times((None, "")), 3, None),
    (times((5, "last"), (3, "")), None, 3),
    (times((2, "last"), (3, "")), None, 3),           # it ends here and is not waited for
    (times((4, "last"), (7, "last")), None, 4),       # both end here
    (times((4, "last"), (7, "idle")), None, 4),
    (times((4, "last"), (None, "")), None, None),
]
# fmt: on


@pytest.mark.parametrize(("splits", "sent", "expected"), COMBINED)
def test_watermark_of_a_reader_is_the_minimum_of_its_splits(
    splits: list[SplitTime], sent: int | None, expected: int | None
) -> None:
    assert combined(splits, sent) == expected
    assert combined(reversed(splits), sent) == expected


def clock_of(strategy: WatermarkStrategy[Any], sent: int | None = None, **watermarks: int | None) -> ReaderClock:
    return ReaderClock(strategy, {name: SplitTime(time, False, False) for name, time in watermarks.items()}, sent)


def items(name: str, *numbers: int) -> list[Item]:
    return [Item(name, number) for number in numbers]


def test_periodic_watermark_follows_the_last_record() -> None:
    clock = clock_of(builder().with_max_out_of_order_time(timedelta(milliseconds=2)).build_as_watermark_strategy(), a=3)
    (piece,) = clock.take("a", RecordBatch(items("a", 5, 20, 9)))
    assert piece == (RecordBatch(items("a", 5, 20, 9), [5, 20, 9]), None)
    list(clock.take("a", RecordBatch(items("a", 1))))  # late, so it changes nothing
    assert (clock.finish(), clock.sent, clock.finish()) == (17, 17, None)


def test_per_event_watermark_follows_its_record() -> None:
    clock = clock_of(builder().per_event_watermark().build_as_watermark_strategy(), a=None, b=6)
    pieces = list(clock.take("a", RecordBatch(items("a", 3, 3, 5, 9, 10))))
    assert pieces == [
        (RecordBatch(items("a", 3), [3]), 2),
        (RecordBatch(items("a", 3, 5), [3, 5]), 4),
        (RecordBatch(items("a", 9), [9]), 6),  # limited by the other split
        (RecordBatch(items("a", 10), [10]), None),
    ]


def test_source_timestamps_are_used_without_an_extractor() -> None:
    strategy = EventTimeExtension.new_watermark_strategy_builder().per_event_watermark().build_as_watermark_strategy()
    pieces = list(clock_of(strategy, a=None).take("a", RecordBatch(items("a", 0, 1, 2), (70, 60, 80))))
    assert pieces == [(RecordBatch(items("a", 0), (70,)), 69), (RecordBatch(items("a", 1, 2), (60, 80)), 79)]


@pytest.mark.parametrize("given", [None, (5, None, 7), (5, 9.5, 7), (None, None, None)])
def test_record_without_a_timestamp_is_reported(given: Any) -> None:
    strategy = EventTimeExtension.new_watermark_strategy_builder().build_as_watermark_strategy()
    with pytest.raises(FailedRecordError) as caught:
        list(clock_of(strategy, a=None).take("a", RecordBatch(items("a", 0, 2, 4), given)))
    assert caught.value.record == Item("a", 0 if given is None or given[0] is None else 2)
    assert "but None is" in str(caught.value.__cause__) or "but 9.5 is" in str(caught.value.__cause__)


def test_no_watermark_strategy_still_assigns_timestamps() -> None:
    clock = clock_of(builder().no_watermark().build_as_watermark_strategy(), a=None)
    assert [batch.timestamps for batch, _ in clock.take("a", RecordBatch(items("a", 3, 5)))] == [[3, 5]]
    assert clock.finish() is None


@pytest.mark.parametrize(
    ("broken", "record"), [(lambda item: item.number / 2, 0), (lambda item: 1 // (2 - item.number), 2)]
)
def test_failing_extractor_is_reported_with_the_record(broken: Any, record: int) -> None:
    strategy = EventTimeExtension.new_watermark_generator_builder(broken).build_as_watermark_strategy()
    with pytest.raises(FailedRecordError) as caught:
        list(clock_of(strategy, a=None).take("a", RecordBatch(items("a", 0, 2, 4))))
    assert caught.value.record == Item("a", record)


# --- From one micro-batch to the next ---------------------------------------------------------------------------------


class Driver:
    """A job without tasks: requests offsets from the coordinator, and reports the watermarks that the test gives."""

    def __init__(self, source: Spans, strategy: WatermarkStrategy[Any] | None, parallelism: int = 2) -> None:
        env = local_environment(parallelism)
        env.from_source(source, watermarks=strategy).with_uid("in").to_sink(CollectSink())
        self.source = source
        self.operator = operator_named(env.build_plan(), "in")
        self.clock = ManualClock()
        self.offset: SourceOffset = BEFORE_START
        self.reports: list[Report] = []
        self.restart()

    def restart(self) -> None:
        self.offset = json.loads(json.dumps(self.offset))
        self.coordinator = SourceCoordinator(self.source, self.operator, self.clock)

    def batch(self, later: int = 0, **watermarks: int) -> dict[int, ReaderOrder]:
        """The next orders of the readers, ``later`` ms after the last. Splits reach ``watermarks`` in it."""
        self.clock.advance(ms(later))
        before = self.offset
        self.offset = self.coordinator.next(before, None, reports=self.reports)
        if self.offset == before:
            return {}
        found = {order.subtask: order for order in orders(self.offset, self.source.split_serializer)}
        self.reports = [self._report(order, watermarks) for order in found.values()]
        return found

    def _report(self, order: ReaderOrder, watermarks: dict[str, int]) -> Report:
        names = [split.stop.name for split in order.splits]
        splits = {split.stop.name: watermarks.get(split.stop.name, split.watermark) for split in order.splits}
        after = [SplitTime(splits[split.stop.name], split.idle, split.last) for split in order.splits]
        sent = combined(after, order.sent)
        assert names == list(splits)
        return {
            "batch": order.batch,
            "subtask": order.subtask,
            "parallelism": self.operator.parallelism,
            "splits": splits,
            "sent": order.sent if sent is None else sent,
            "sender": NOTHING_SENT,
        }


def signals_of(found: dict[int, ReaderOrder]) -> dict[int, tuple[str, ...]]:
    return {subtask: order.signals for subtask, order in found.items()}


class SpansWithEmptyPortions(Spans):
    """Answers with an empty portion if there is nothing new."""

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span]:
        return super().advance(split, limit) or Portion(split, size=0)


def spans(ends: dict[str, int], kind: type[Spans] = Spans, **options: Any) -> Spans:
    return kind(ends, bounded=False, assigner=RoundRobinSplitAssigner(), **options)


IDLE_AFTER_A_SECOND = builder().with_idleness(SECOND).build_as_watermark_strategy()


def test_reader_without_splits_is_idle() -> None:
    source = spans({"a": 1}, discovery_interval=ms(1))
    driver = Driver(source, None)
    assert signals_of(driver.batch()) == {0: (), 1: ("idle",)}
    assert driver.batch(10_000) == {}
    source.ends["b"] = 0
    assert signals_of(driver.batch(1)) == {1: ("active",)}


@pytest.mark.parametrize("kind", [Spans, SpansWithEmptyPortions])
def test_split_without_data_becomes_idle(kind: type[Spans]) -> None:
    source = spans({"a": 1, "b": 1, "c": 1}, kind)
    driver = Driver(source, IDLE_AFTER_A_SECOND)
    assert signals_of(driver.batch(a=4, b=4, c=2)) == {0: (), 1: ()}
    source.ends |= {"a": 2}
    assert signals_of(driver.batch(999, a=9)) == {0: ()}
    # b is the only split of its reader. c no longer holds back the other split of reader 0.
    found = driver.batch(1)
    assert signals_of(found) == {0: ("watermark",), 1: ("idle",)}
    assert [(split.stop.name, split.watermark, split.idle) for split in found[0].splits] == [
        ("a", 9, False),
        ("c", 2, True),
    ]
    assert driver.batch(1) == {}
    assert signals_of(driver.batch(999)) == {0: ("idle",)}
    source.ends |= {"b": 2, "c": 3}
    found = driver.batch(1)
    assert signals_of(found) == {0: ("active",), 1: ("active",)}
    assert [split.idle for split in found[0].splits] == [True, False]


def test_furthest_split_counts_once_all_are_idle() -> None:
    """The result is the same if the slower split becomes idle first or last."""
    source = spans({"a": 1, "b": 1})
    driver = Driver(source, IDLE_AFTER_A_SECOND, parallelism=1)
    driver.batch(a=9, b=4)
    found = driver.batch(1000)
    assert signals_of(found) == {0: ("idle", "watermark")}
    assert [(split.watermark, split.idle) for split in found[0].splits] == [(9, True), (4, True)]


def test_reader_whose_splits_have_ended_is_idle() -> None:
    class Ending(Spans):
        def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
            return Portion(Span(split.name, split.end, split.end), last=True)

    source = Ending({"a": 3}, bounded=False, discovery_interval=ms(1))
    driver = Driver(source, None, parallelism=1)
    assert signals_of(driver.batch()) == {0: ()}
    source.ends["b"] = 2
    assert signals_of(driver.batch(1)) == {0: ()}
    assert signals_of(driver.batch(1)) == {0: ("idle",)}
    assert driver.batch(1) == {}
    source.ends["c"] = 2
    assert signals_of(driver.batch(1)) == {0: ("active",)}


def test_idle_reader_is_active_for_its_last_records() -> None:
    driver = Driver(Spans({"a": 3}, assigner=RoundRobinSplitAssigner()), IDLE_AFTER_A_SECOND)
    driver.source.advance = lambda split, limit: None  # type: ignore[method-assign]  # for a while
    assert signals_of(driver.batch()) == {0: (), 1: ()}
    assert signals_of(driver.batch(1000)) == {0: ("idle",)}
    del driver.source.advance
    found = driver.batch(1)
    assert signals_of(found) == {0: ("active",)}
    assert found[0].last


def test_reports_of_readers_are_in_the_next_offset() -> None:
    source = spans({"a": 1, "b": 1, "c": 1})
    driver = Driver(source, IDLE_AFTER_A_SECOND)
    driver.batch(a=7, b=5, c=3)
    assert [split["watermark"] for split in driver.offset["readers"][0]["splits"]] == [None, None]
    source.ends["b"] = 2
    driver.batch(b=6)
    first, second = driver.offset["readers"]
    assert [split["watermark"] for split in first["splits"]] == [7, 3]
    assert (first["sent"], second["sent"]) == (3, 5)
    driver.restart()
    source.ends["a"] = 2
    found = driver.batch()
    assert [(split.stop.name, split.watermark) for split in found[0].splits] == [("a", 7), ("c", 3)]
    assert found[0].sent == 3


def test_reports_of_another_micro_batch_are_ignored() -> None:
    source = spans({"a": 1})
    driver = Driver(source, IDLE_AFTER_A_SECOND, parallelism=1)
    driver.batch(a=7)
    driver.reports[0]["batch"] = 5
    source.ends["a"] = 2
    driver.batch()
    assert driver.offset["readers"][0]["splits"][0]["watermark"] is None


@pytest.mark.parametrize("parallelism", [1, 2])
def test_idle_timeout_continues_over_a_restart(parallelism: int) -> None:
    driver = Driver(spans({"a": 1, "b": 1}), IDLE_AFTER_A_SECOND)
    driver.batch(a=4, b=4)
    again = Driver(driver.source, IDLE_AFTER_A_SECOND, parallelism)
    again.clock, again.offset, again.reports = driver.clock, driver.offset, driver.reports
    again.restart()
    assert "idle" not in {signals for by_reader in signals_of(again.batch(999)).values() for signals in by_reader}
    assert {signals[-1] for signals in signals_of(again.batch(1)).values()} == {"idle"}


def test_idle_split_stays_idle_after_a_restart() -> None:
    source = spans({"a": 1, "b": 1})
    driver = Driver(source, IDLE_AFTER_A_SECOND)
    driver.batch(a=4, b=4)
    assert signals_of(driver.batch(1000)) == {0: ("idle",), 1: ("idle",)}
    driver.restart()
    assert driver.batch() == {}
    source.ends["a"] = 2
    assert signals_of(driver.batch()) == {0: ("active",)}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_another_parallelism_repeats_the_status_of_readers(parallelism: int) -> None:
    source = spans({"a": 1, "b": 1})
    driver = Driver(source, IDLE_AFTER_A_SECOND)
    driver.batch(a=4, b=6)
    driver.batch(1000)
    again = Driver(source, IDLE_AFTER_A_SECOND, parallelism)
    again.offset, again.reports = driver.offset, driver.reports
    again.restart()
    source.ends["b"] = 2
    found = again.batch()
    assert {split.stop.name: split.watermark for order in found.values() for split in order.splits} == {"a": 4, "b": 6}
    b_goes_on = ("active", "watermark")  # not yet sent by its new reader
    idle = {1: {0: b_goes_on}, 3: {0: ("idle", "watermark"), 1: b_goes_on, 2: ("idle",)}}
    assert signals_of(found) == idle[parallelism]


def test_without_idleness_nothing_becomes_idle() -> None:
    driver = Driver(spans({"a": 1, "b": 1}), builder().build_as_watermark_strategy())
    driver.batch(a=4, b=4)
    assert driver.batch(10**9) == {}


# --- Whole jobs -------------------------------------------------------------------------------------------------------


class Recorder(OneInputEventTimeStreamProcessFunction[Item, str]):
    """Emits its input in order."""

    def process_record(self, record: Item, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        output.collect(f"{record.span}{ctx.timestamp}")

    def on_event_time_watermark(self, timestamp: int, output: Collector[str], ctx: NonPartitionedContext[str]) -> None:
        output.collect(f"< {timestamp}")


def heard(ends: dict[str, int], strategy: WatermarkStrategy[Item], **options: Any) -> list[str]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(2,), **options))
    sink = CollectSink[str]()
    env.from_source(Spans(ends), watermarks=strategy).process(Recorder()).to_sink(sink)
    env.execute()
    return sink.results


@pytest.mark.parametrize("checks", [True, False])
def test_splits_of_a_reader_wait_for_each_other(checks: bool) -> None:
    # Each micro-batch has two records, one of each split. Then comes the rest of the longer split.
    found = heard({"a": 2, "b": 5}, builder().build_as_watermark_strategy(), checks=checks)
    assert found == ["a0", "b0", "< -1", "a1", "b1", "< 0", "b2", "b3", "< 2", "b4", "< 3", f"< {2**63 - 1}"]


def test_per_event_watermarks_come_between_the_records() -> None:
    found = heard({"a": 3}, builder().per_event_watermark().build_as_watermark_strategy())
    assert found == ["a0", "< -1", "a1", "< 0", "a2", "< 1", f"< {2**63 - 1}"]


class Late(Spans):
    """Has nothing to read until it was polled ``patience`` times."""

    patience = 60
    asked = 0

    def refresh(self) -> None:
        self.asked += 1

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        return super().advance(split, limit) if self.asked > self.patience else None


class Times(TwoInputNonBroadcastEventTimeStreamProcessFunction[Any, Any, Any]):
    """Forwards records and emits event time."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process_record_from_first_input(self, record: Any, output: Collector[Any], ctx: Any) -> None:
        output.collect(record)

    def process_record_from_second_input(self, record: Any, output: Collector[Any], ctx: Any) -> None:
        output.collect(record)

    def on_event_time_watermark(self, timestamp: int, output: Collector[Any], ctx: Any) -> None:
        output.collect((self.name, timestamp))


def output_with_late_source(idle: timedelta, late: Iterable[str] = ("late",)) -> list[Any]:
    """Output of two operators with two inputs, one after the other, when a source has no data for a long time."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(1,), clock=ManualClock(step=ms(10))))
    strategy = builder().with_idleness(idle).build_as_watermark_strategy()
    steady = env.from_source(Spans({"steady": 40}), watermarks=strategy)
    other = env.from_source(Late(dict.fromkeys(late, 60)), watermarks=strategy)
    third = env.from_source(Spans({"third": 50}), watermarks=strategy)
    first = steady.connect_and_process(other, Times("first"))
    sink = CollectSink[Any]()
    first.connect_and_process(third, Times("second")).to_sink(sink)
    env.execute()
    return sink.results


def test_idle_source_does_not_hold_back_other_inputs() -> None:
    waiting, continuing = output_with_late_source(timedelta(0)), output_with_late_source(timedelta(milliseconds=200))
    for name, last in (("first", 38), ("second", 48)):
        before = [entry for entry in waiting[: waiting.index(Item("late", 0))] if entry[0] == name]
        assert before == []
        before = [entry for entry in continuing[: continuing.index(Item("late", 0))] if entry[0] == name]
        assert before[-1] == (name, last)
        # Active again: its records are late up to the position of the others, and event time advances when it has
        # caught up.
        after = [entry for entry in continuing[continuing.index(Item("late", 0)) :] if entry[0] == name]
        assert [time for _, time in after] == sorted(time for _, time in after)
        assert after[-1] == (name, 2**63 - 1)


class Stamped(Spans):
    """Assigns timestamps to its records, ten times their number, except to the record ``without``."""

    def __init__(self, ends: dict[str, int], without: int | None = None) -> None:
        super().__init__(ends)
        self.without = without

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        for run in super().read(start, stop):
            stamps = [None if item.number == self.without else item.number * 10 for item in run.records]
            yield RecordBatch(run.records, stamps)


def heard_of(source: Stamped, strategy: WatermarkStrategy[object]) -> list[str]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(2,)))
    sink = CollectSink[str]()
    env.from_source(source, watermarks=strategy).process(Recorder()).to_sink(sink)
    env.execute()
    return sink.results


def test_source_may_assign_timestamps() -> None:
    strategy = EventTimeExtension.new_watermark_strategy_builder().build_as_watermark_strategy()
    found = heard_of(Stamped({"a": 2, "b": 3}), strategy)
    assert found == ["a0", "b0", "< -1", "a10", "b10", "< 9", "b20", "< 19", f"< {2**63 - 1}"]


def test_record_without_source_timestamp_is_named() -> None:
    strategy = EventTimeExtension.new_watermark_strategy_builder().build_as_watermark_strategy()
    with pytest.raises(UserFunctionError, match=r"NoneType\. If the source has no timestamps, extract") as caught:
        heard_of(Stamped({"a": 4}, without=2), strategy)
    assert (caught.value.callback, caught.value.record) == ("read", repr(Item("a", 2)))


def test_extractor_overrides_source_timestamps() -> None:
    found = heard_of(
        Stamped({"a": 2}), EventTimeExtension.new_watermark_generator_builder(seven).build_as_watermark_strategy()
    )
    assert found == ["a7", "a7", "< 6", f"< {2**63 - 1}"]


def test_failing_extractor_is_named() -> None:
    def broken(item: Item) -> int:
        return 1 // (2 - item.number)

    strategy = EventTimeExtension.new_watermark_generator_builder(broken)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as caught:
        heard({"a": 4}, strategy.build_as_watermark_strategy())
    assert (caught.value.callback, caught.value.record) == ("extract_timestamp", repr(Item("a", 2)))


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_only_sources_with_splits_accept_watermarks() -> None:
    env = local_environment()
    with pytest.raises(PlanError, match="CollectionSource has no splits, so watermarks does not apply"):
        env.from_source(CollectionSource([Item("a", 1)]), watermarks=builder().build_as_watermark_strategy())


def test_invalid_durations() -> None:
    with pytest.raises(ConfigurationError, match="idleness must be 0 or more, not -1000 ms"):
        builder().with_idleness(-SECOND).build_as_watermark_strategy()
    strategy = builder().build_as_watermark_strategy()
    with pytest.raises(ConfigurationError, match="max_drift must be 0 or more, not -1000 ms"):
        strategy.with_watermark_alignment("g", -SECOND)
    with pytest.raises(ConfigurationError, match="update_interval must be at least 1 ms, not 0 ms"):
        strategy.with_watermark_alignment("g", SECOND, timedelta(0))
    with pytest.raises(ConfigurationError, match="requires watermarks"):
        builder().no_watermark().build_as_watermark_strategy().with_watermark_alignment("g", SECOND)
