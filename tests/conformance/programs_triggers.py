"""Programs for triggers of windows, compared with lists that Flink's rules produce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import (
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    OneInputWindowContext,
    OneInputWindowStreamProcessFunction,
    PurgingTrigger,
    TriggerContext,
    TriggerResult,
    WindowStrategy,
    WindowTrigger,
)
from dsv2.state import AggregateFunction, aggregate_of
from tests.conformance.functions import itself, mod3
from tests.conformance.harness import Pipeline, Program, Run
from tests.durations import ms

MANY: Sequence[int] = range(40)


class Show(OneInputWindowStreamProcessFunction[int, tuple[int, ...]]):
    """Emits the records of each firing."""

    def on_trigger(self, output: Any, ctx: Any, window: OneInputWindowContext[int]) -> None:
        output.collect(tuple(window.get_all_records()))


def of_key(key: int) -> list[int]:
    """The records with a key."""
    return [number for number in MANY if mod3(number) == key]


def pieces(size: int) -> Iterator[tuple[int, ...]]:
    """The complete pieces of ``size`` records of each key."""
    for key in range(3):
        records = of_key(key)
        for first in range(0, len(records) - size + 1, size):
            yield tuple(records[first : first + size])


def distance(last: int, record: int) -> int:
    """The difference of two records."""
    return abs(record - last)


class CountTriggers(Program):
    """A count trigger keeps the records, unless it purges. Records that have not fired at the end are dropped."""

    def build(self, p: Pipeline) -> None:
        numbers, everything = p.source(MANY, 1).key_by(mod3), WindowStrategy.global_()
        purging = everything.with_trigger(PurgingTrigger(CountTrigger(4)))
        add: AggregateFunction[int, int, int] = aggregate_of(int, lambda value, total: total + value, int)
        p.collect(numbers.window(everything.with_trigger(CountTrigger(4))).process(Show()), "kept")
        p.collect(numbers.window(purging).process(Show()), "purged")
        p.collect(numbers.window(purging).aggregate(add), "added")

    def check(self, run: Run) -> None:
        kept = [tuple(of_key(key)[:count]) for key in range(3) for count in range(4, len(of_key(key)) + 1, 4)]
        run.expect_all(*kept, name="kept")
        run.expect_all(*pieces(4), name="purged")
        run.expect_all(*map(sum, pieces(4)), name="added")


class DeltaTriggers(Program):
    """A delta trigger fires when the difference from the record of the last firing exceeds the threshold."""

    def build(self, p: Pipeline) -> None:
        trigger = PurgingTrigger(DeltaTrigger(10, distance))
        strategy = WindowStrategy.global_().with_trigger(trigger)
        p.collect(p.source(MANY, 1).key_by(mod3).window(strategy).process(Show()))

    def check(self, run: Run) -> None:
        expected = []
        for key in range(3):
            held, last = list[int](), key
            for record in of_key(key):
                held.append(record)
                if distance(last, record) > 10:
                    expected.append(tuple(held))
                    held, last = [], record
        run.expect_all(*expected)


class CountOrEnd(WindowTrigger[int]):
    """Fires and purges after ``count`` records, and what is left at the end of the window."""

    def __init__(self, count: int) -> None:
        self.at_count, self.at_end = CountTrigger(count), EventTimeTrigger()

    def on_record(self, record: int, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        self.at_end.on_record(record, timestamp, ctx)
        fires = self.at_count.on_record(record, timestamp, ctx).fires
        return TriggerResult.FIRE_AND_PURGE if fires else TriggerResult.CONTINUE

    def on_event_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        return self.at_end.on_event_time(timestamp, ctx)


class CustomTrigger(Program):
    """A trigger of the user, in windows that end."""

    SIZE = 20

    def build(self, p: Pipeline) -> None:
        timed = p.timed(MANY, itself)
        strategy = WindowStrategy.tumbling(ms(self.SIZE)).with_trigger(CountOrEnd(3))
        p.collect(timed.key_by(mod3).window(strategy).process(Show()))

    def check(self, run: Run) -> None:
        expected = []
        for key in range(3):
            for start in range(0, len(MANY), self.SIZE):
                records = [number for number in of_key(key) if start <= number < start + self.SIZE]
                expected += [tuple(records[first : first + 3]) for first in range(0, len(records), 3)]
        run.expect_all(*expected)


class TriggeredSessions(Program):
    """The counts of sessions that merge are added."""

    TIMES: Sequence[int] = (0, 100, 50, 300, 310, 320, 330)

    def build(self, p: Pipeline) -> None:
        generator = EventTimeExtension.new_watermark_generator_builder(itself).per_event_watermark()
        unordered = generator.with_max_out_of_order_time(ms(1_000)).build_as_process_function()
        timed = p.source(self.TIMES, 1).process(unordered).with_parallelism(1)
        strategy = WindowStrategy.session(ms(60)).with_trigger(PurgingTrigger(CountTrigger(3)))
        p.collect(timed.key_by(lambda number: 0).window(strategy).process(Show()))

    def check(self, run: Run) -> None:
        assert [sorted(records) for records in run.out()] == [[0, 50, 100], [300, 310, 320]]


PROGRAMS = (CountTriggers(), DeltaTriggers(), CustomTrigger(), TriggeredSessions())
