"""Programs for windows (FLIP-501): those of Flink's ``WindowITCase``, and observations of Flink 2.3.0.

The first ones read element ``i`` at ``i`` seconds, as Flink's do, but fewer elements. Each channel is in order, so
nothing is late for any number of channels. The others read one channel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dsv2 import Collector, OutputTag, PartitionedContext
from dsv2.extension.window import (
    CountEvictor,
    OneInputWindowStreamProcessFunction,
    TimestampCombiner,
    TimeType,
    TwoOutputWindowStreamProcessFunction,
    WindowAssigner,
    WindowContext,
    WindowStrategy,
)
from dsv2.state import StateDeclaration, StateDeclarations, aggregate_of
from tests.conformance.functions import Stamped, itself, one_key, parity
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.timing import per_event
from tests.durations import ms
from tests.windows import Event, FlinkGenerator, TwoInputWindowRecorder, WindowRecorder

ELEMENTS: Sequence[int] = range(20)
SECOND = 1000
LATE = OutputTag("late", int)
TEN_SECONDS = WindowStrategy.tumbling(ms(10 * SECOND))


def seconds(element: int) -> int:
    """The time of an element, in ms."""
    return element * SECOND


def gap_of(element: int) -> int:
    """A longer gap for one element, in ms."""
    return 20 if element == 1 else 3


class TenAndThree(WindowAssigner[int]):
    """Assigns a record to the tumbling window of 10 ms, and to a window of 3 ms that it starts."""

    def assign_windows(self, record: int, timestamp: int) -> list[tuple[int, int]]:
        start = timestamp // 10 * 10
        return [(start, start + 10), (timestamp, timestamp + 3)]


def with_breaks(element: int) -> int:
    """The time of an element in ms, with a break of five seconds after every five elements."""
    return (element + element // 5 * 5) * SECOND


def fired(events: Iterable[Event]) -> list[Event]:
    """Key, start, end and records of each firing. The records are sorted because several channels come in any order."""
    triggers = [event[1:] for event in events if event[0] == "trigger"]
    return sorted((key, start, end, *map(sorted, records)) for key, start, end, *records in triggers)


def in_windows(*spans: tuple[int, int], inputs: int = 1) -> list[Event]:
    """The expected firings for the elements, keyed by parity, in windows of these seconds."""
    windows = [(k, s, e, [n for n in ELEMENTS if s <= n < e and n % 2 == k]) for s, e in spans for k in (0, 1)]
    return sorted((k, s * SECOND, e * SECOND, *[found] * inputs) for k, s, e, found in windows if found)


class OneInputWindows(Program):
    """testOneInputWindowFunctionWithEventTimeGlobalWindow, …TumblingWindow, …SlidingWindow, …TumblingWindowUseGlobal-
    Stream."""

    def build(self, p: Pipeline) -> None:
        timed = p.source(ELEMENTS).process(FlinkGenerator(seconds))
        keyed = timed.key_by(parity)
        p.collect(keyed.window(WindowStrategy.global_()).process(WindowRecorder()), "global")
        p.collect(keyed.window(TEN_SECONDS).process(WindowRecorder()), "tumbling")
        p.collect(
            keyed.window(WindowStrategy.sliding(ms(10 * SECOND), ms(SECOND))).process(WindowRecorder()), "sliding"
        )
        p.collect(
            timed.global_().window(WindowStrategy.tumbling(ms(5 * SECOND))).process(WindowRecorder()), "global stream"
        )

    def check(self, run: Run) -> None:
        assert fired(run.out("global")) == [(key, -1, -1, [n for n in ELEMENTS if n % 2 == key]) for key in (0, 1)]
        assert fired(run.out("tumbling")) == in_windows((0, 10), (10, 20))
        assert {len(records) for _, _, _, records in fired(run.out("tumbling"))} == {5}
        assert fired(run.out("sliding")) == in_windows(*((start, start + 10) for start in range(-9, 20)))
        five = [(0, s * SECOND, (s + 5) * SECOND, [*range(s, s + 5)]) for s in range(0, 20, 5)]
        assert fired(run.out("global stream")) == five
        for name in ("global", "tumbling", "sliding", "global stream"):
            # Every window is cleared once, after it has fired. Flink never clears the global window.
            for key in (0, 1):
                events = [event[:4] for event in run.out(name) if event[1] == key]
                assert all(events.index(("clear", *e[1:])) > events.index(e) for e in events if e[0] == "trigger")
            assert len(run.out(name)) == 2 * len(fired(run.out(name)))


class SessionWindows(Program):
    """testOneInputWindowFunctionWithEventTimeSessionWindow."""

    def build(self, p: Pipeline) -> None:
        timed = p.source(ELEMENTS).process(FlinkGenerator(with_breaks))
        p.collect(timed.key_by(one_key).window(WindowStrategy.session(ms(3 * SECOND))).process(WindowRecorder()))

    def check(self, run: Run) -> None:
        firsts = range(0, 20, 5)
        sessions = [(with_breaks(first), [*range(first, first + 5)]) for first in firsts]
        assert fired(run.out()) == [(0, start, start + 7 * SECOND, elements) for start, elements in sessions]


class TimestampsOfResults(Program):
    """Results with the timestamp of the first or the last record of their window."""

    CHOICES: Sequence[TimestampCombiner] = (TimestampCombiner.EARLIEST, TimestampCombiner.LATEST)

    def build(self, p: Pipeline) -> None:
        keyed = p.source(ELEMENTS).process(FlinkGenerator(seconds)).key_by(parity)
        for choice in self.CHOICES:
            windows = keyed.window(TEN_SECONDS.with_timestamps(choice))
            p.collect(windows.reduce(max).process(Stamped()), f"{choice.value} of tumbling")
            sessions = keyed.window(WindowStrategy.session(ms(3 * SECOND)).with_timestamps(choice))
            p.collect(sessions.reduce(max).process(Stamped()), f"{choice.value} of sessions")

    def check(self, run: Run) -> None:
        for choice, element in zip(self.CHOICES, (0, 8), strict=True):
            found = [(start + 8 + odd, (start + element + odd) * SECOND) for start in (0, 10) for odd in (0, 1)]
            run.expect_all(*found, name=f"{choice.value} of tumbling")
        run.expect_all((18, 0), (19, SECOND), name="earliest of sessions")
        run.expect_all((18, 18 * SECOND), (19, 19 * SECOND), name="latest of sessions")


SUM = StateDeclarations.value_state("sum", int, 0)
COUNT = StateDeclarations.value_state("count", int, 0)


class CountAndSum(OneInputWindowStreamProcessFunction[int, tuple[int, int]]):
    """Keeps no records, but two states of each window."""

    def use_window_states(self) -> Collection[StateDeclaration]:
        return SUM, COUNT

    def on_record(self, record: int, output: Any, ctx: Any, window: WindowContext) -> None:
        for state, amount in ((SUM, record), (COUNT, 1)):
            handle = window.get_window_state(state)
            handle.update(handle.value() + amount)

    def on_trigger(self, output: Any, ctx: Any, window: WindowContext) -> None:
        output.collect((window.get_window_state(COUNT).value(), window.get_window_state(SUM).value()))


class WindowStateAggregates(Program):
    """testOneInputWindowFunctionWithEventTimeTumblingWindowUseWindowStateToAgg."""

    def build(self, p: Pipeline) -> None:
        timed = p.source(ELEMENTS).process(FlinkGenerator(seconds))
        p.collect(timed.key_by(one_key).window(WindowStrategy.tumbling(ms(5 * SECOND))).process(CountAndSum()))

    def check(self, run: Run) -> None:
        run.expect(*((5, sum(range(first, first + 5))) for first in range(0, 20, 5)))


class TwoInputWindows(Program):
    """testTwoInputWindowFunctionWithEventTimeTumblingWindow, and the other windows."""

    def build(self, p: Pipeline) -> None:
        left, right = (p.source(ELEMENTS).process(FlinkGenerator(seconds)) for _ in range(2))
        keyed, other = left.key_by(parity), right.key_by(parity)
        p.collect(keyed.window(TEN_SECONDS).connect_and_process(other, TwoInputWindowRecorder()), "tumbling")
        p.collect(
            keyed.window(WindowStrategy.session(ms(2 * SECOND))).connect_and_process(other, TwoInputWindowRecorder()),
            "session",
        )
        both = (
            left.global_()
            .window(WindowStrategy.global_())
            .connect_and_process(right.global_(), TwoInputWindowRecorder())
        )
        p.collect(both, "global")
        kept = keyed.window(TEN_SECONDS).connect_and_process(other, TwoInputWindowRecorder(), second_part)
        p.collect(kept.process(with_key), "kept")

    def check(self, run: Run) -> None:
        assert fired(run.out("tumbling")) == in_windows((0, 10), (10, 20), inputs=2)
        # Elements of one parity are two seconds apart, so their sessions touch.
        evens, odds = [*range(0, 20, 2)], [*range(1, 20, 2)]
        assert fired(run.out("session")) == [(0, 0, 20000, evens, evens), (1, 1000, 21000, odds, odds)]
        assert fired(run.out("global")) == [(0, -1, -1, [*ELEMENTS], [*ELEMENTS])]
        # In Flink the same function with a key selector for its output emits nothing.
        assert fired(event for _, event in run.out("kept")) == fired(run.out("tumbling"))
        assert all(key == event[1] for key, event in run.out("kept"))


def second_part(event: Event) -> int:
    """The key of an event."""
    key: int = event[1]
    return key


def with_key(event: Event, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
    """Emits the key of a record."""
    output.collect((ctx.state_manager.current_key, event))


class ToBoth(TwoOutputWindowStreamProcessFunction[int, Event, Event]):
    """Emits the contents of a window to both outputs."""

    def on_trigger(self, first_output: Any, second_output: Any, ctx: Any, window: Any) -> None:
        event = "trigger", ctx.state_manager.current_key, window.start_time, window.end_time, window.get_all_records()
        first_output.collect(event)
        second_output.collect(event)


class TwoOutputWindows(Program):
    """testTwoOutputWindowFunctionWithEventTimeTumblingWindow."""

    def build(self, p: Pipeline) -> None:
        timed = p.source(ELEMENTS).process(FlinkGenerator(seconds))
        both = timed.key_by(parity).window(TEN_SECONDS).process(ToBoth())
        p.collect(both.first, "first")
        p.collect(both.second, "second")

    def check(self, run: Run) -> None:
        for name in ("first", "second"):
            assert fired(run.out(name)) == in_windows((0, 10), (10, 20))


class FoldingWindows(Program):
    """Windows that keep no records, also in processing time: open windows fire at the end of input."""

    def build(self, p: Pipeline) -> None:
        timed = p.source(ELEMENTS).process(FlinkGenerator(seconds))
        keyed = timed.key_by(parity)
        total = aggregate_of(int, add, int)
        p.collect(keyed.window(TEN_SECONDS).aggregate(total, result_event), "aggregate")
        p.collect(keyed.window(WindowStrategy.session(ms(2 * SECOND))).reduce(max), "reduce")
        # The first window since the epoch, which contains all current times.
        ages = WindowStrategy.tumbling(ms(10**15), TimeType.PROCESSING)
        p.collect(p.source(ELEMENTS).key_by(parity).window(ages).aggregate(total, result_event), "processing time")
        p.collect(timed.window(WindowStrategy.global_()).aggregate(total), "of each subtask")

    def check(self, run: Run) -> None:
        sums = [(key, s, e, sum(found)) for key, s, e, found in in_windows((0, 10), (10, 20))]
        run.expect_all(*sums, name="aggregate")
        run.expect_all(18, 19, name="reduce")
        # Flink drops windows of processing time that are open at the end of input.
        run.expect_all((0, 0, 10**15, 90), (1, 0, 10**15, 100), name="processing time")
        run.expect_all(
            *(sum(ELEMENTS[first :: run.parallelism]) for first in range(run.parallelism)), name="of each subtask"
        )


def add(element: int, total: int) -> int:
    """A sum."""
    return total + element


def result_event(total: int, window: WindowContext, ctx: PartitionedContext[Any]) -> tuple[object, int, int, int]:
    """A result with its key and window."""
    return ctx.state_manager.current_key, window.start_time, window.end_time, total


def trigger(start: int, end: int, *times: int) -> Event:
    """The firing of a window."""
    return ("trigger", 0, start, end, times)


def clear(start: int, end: int) -> Event:
    """The removal of a window."""
    return ("clear", 0, start, end)


def late(time: int) -> Event:
    """A late record."""
    return ("late", 0, time)


def one_channel(p: Pipeline, program: Program) -> Any:
    """The times for ``program``, in order through one channel."""
    times = OBSERVED_TIMES if isinstance(program, Observed) else OTHER_TIMES
    return p.source(times, 1).filter(OfProgram(program.name)).with_parallelism(1).map(time_of).with_parallelism(1)


@dataclass(frozen=True)
class Observed(Program):
    """One channel of records, which are their times in ms, with watermarks as Flink's generator emits them."""

    said: str
    strategy: WindowStrategy
    times: tuple[int, ...]
    events: tuple[Event, ...]
    of_records: bool = False

    @property
    def name(self) -> str:
        return self.said

    def build(self, p: Pipeline) -> None:
        timed = one_channel(p, self).process(FlinkGenerator(itself)).with_parallelism(1)
        p.collect(timed.key_by(one_key).window(self.strategy).process(WindowRecorder(self.of_records)))

    def check(self, run: Run) -> None:
        run.expect(*self.events)


OBSERVED = (
    Observed(
        "tumbling, nothing late allowed (E14s)",
        WindowStrategy.tumbling(ms(10)),
        (1, 2, 12, 5, 30),
        (
            *(trigger(0, 10, 1, 2), clear(0, 10), late(5)),
            *(trigger(10, 20, 12), clear(10, 20), trigger(30, 40, 30), clear(30, 40)),
        ),
    ),
    Observed(
        "tumbling, 20 ms late allowed (E14t)",
        WindowStrategy.tumbling(ms(10)).with_allowed_lateness(ms(20)),
        (1, 2, 12, 5, 40, 6),
        (
            *(trigger(0, 10, 1, 2), trigger(0, 10, 1, 2, 5)),
            *(trigger(10, 20, 12), clear(0, 10), clear(10, 20), late(6), trigger(40, 50, 40), clear(40, 50)),
        ),
    ),
    Observed(
        "session (E15)",
        WindowStrategy.session(ms(10)),
        (1, 2, 8, 30, 31),
        (trigger(1, 18, 1, 2, 8), clear(1, 18), trigger(30, 41, 30, 31), clear(30, 41)),
    ),
    Observed(
        "session, 20 ms late allowed",
        WindowStrategy.session(ms(10)).with_allowed_lateness(ms(20)),
        (1, 5, 30, 12, 60, 5),
        (
            *(trigger(1, 15, 1, 5), trigger(1, 22, 1, 5, 12), trigger(30, 40, 30), clear(1, 22), clear(30, 40)),
            *(late(5), trigger(60, 70, 60), clear(60, 70)),
        ),
    ),
    Observed(
        "session with a gap for each record",
        WindowStrategy.session(gap_of),
        (1, 8, 30, 31),
        (trigger(1, 21, 1, 8), clear(1, 21), trigger(30, 34, 30, 31), clear(30, 34)),
    ),
    Observed(
        "an assigner of the program",
        WindowStrategy.assigned_by(TenAndThree()),
        (1, 2, 12, 30),
        (
            *(trigger(1, 4, 1), clear(1, 4), trigger(2, 5, 2), clear(2, 5), trigger(0, 10, 1, 2), clear(0, 10)),
            *(trigger(12, 15, 12), clear(12, 15), trigger(10, 20, 12), clear(10, 20)),
            *(trigger(30, 33, 30), clear(30, 33), trigger(30, 40, 30), clear(30, 40)),
        ),
    ),
    Observed(
        "sliding windows of records, as in the documentation of Kafka Streams",
        WindowStrategy.of_records(ms(5)),
        (8, 9, 12),
        (
            *(trigger(3, 9, 8), clear(3, 9), trigger(4, 10, 8, 9), clear(4, 10), trigger(7, 13, 8, 9, 12)),
            *(clear(7, 13), trigger(9, 15, 9, 12), clear(9, 15), trigger(10, 16, 12), clear(10, 16)),
        ),
    ),
    Observed(
        "an evictor",
        WindowStrategy.tumbling(ms(10)).with_evictor(CountEvictor(2)),
        (1, 2, 5, 12),
        (trigger(0, 10, 2, 5), clear(0, 10), trigger(10, 20, 12), clear(10, 20)),
    ),
    Observed(
        "session as seen by records (H4)",
        WindowStrategy.session(ms(10)),
        (1, 5),
        (("record", 0, 1, 11, 1), ("record", 0, 5, 15, 5), trigger(1, 15, 1, 5), clear(1, 15)),
        of_records=True,
    ),
    Observed(
        "sliding (E15g)",
        WindowStrategy.sliding(ms(10), ms(5)),
        (1, 7, 12),
        (
            *(trigger(-5, 5, 1), clear(-5, 5), trigger(0, 10, 1, 7), clear(0, 10)),
            *(trigger(5, 15, 7, 12), clear(5, 15), trigger(10, 20, 12), clear(10, 20)),
        ),
    ),
    Observed(
        "the watermark of a record makes its like late (H1)",
        WindowStrategy.tumbling(ms(10)),
        (9, 9),
        (trigger(0, 10, 9), clear(0, 10), late(9)),
    ),
    Observed(
        "count",
        WindowStrategy.count(2),
        (5, 1, 9),
        (trigger(-1, -1, 5, 1), clear(-1, -1), trigger(-1, -1, 9), clear(-1, -1)),
    ),
    Observed(
        "early firing",
        WindowStrategy.tumbling(ms(100)).with_early_firing(ms(10), TimeType.EVENT),
        (1, 12, 13, 30),
        (trigger(0, 100, 1, 12), trigger(0, 100, 1, 12, 13, 30), trigger(0, 100, 1, 12, 13, 30), clear(0, 100)),
    ),
)


class WindowsBehindWindows(Program):
    """E1: the watermark that fires a window is forwarded after the window's output.

    In Flink it is forwarded first, so the second window drops all output of the first one except the last.
    """

    TIMES = (1, 2, 12, 25)

    def build(self, p: Pipeline) -> None:
        timed = one_channel(p, self).process(FlinkGenerator(itself)).with_parallelism(1)
        strategy, total = WindowStrategy.tumbling(ms(10)), aggregate_of(int, add, int)
        sums = timed.key_by(one_key).window(strategy).aggregate(total)
        p.collect(sums.key_by(one_key).window(strategy).process(WindowRecorder()))

    def check(self, run: Run) -> None:
        firsts = (trigger(0, 10, 3), clear(0, 10), trigger(10, 20, 12), clear(10, 20))
        run.expect(*firsts, trigger(20, 30, 25), clear(20, 30))


def larger(one: int, other: int) -> int:
    """Reduces to the maximum."""
    return max(one, other)


class TimestampsOfWindows(Program):
    """Output of windows has their last ms as timestamp (as in Flink). Late records keep theirs."""

    TIMES = (1, 2, 12, 3)

    def build(self, p: Pipeline) -> None:
        timed = one_channel(p, self).process(FlinkGenerator(itself)).with_parallelism(1).key_by(one_key)
        both = timed.window(WindowStrategy.tumbling(ms(10))).with_late_output(LATE).reduce(larger)
        p.collect(both.process(Stamped()), "results")
        p.collect(both.side_output(LATE).process(Stamped()), "late")

    def check(self, run: Run) -> None:
        run.expect((2, 9), (12, 19), name="results")
        run.expect((3, 3), name="late")


class OwnGenerator(Program):
    """The same as H1 with dsv2's generator, whose watermarks allow records of equal time."""

    TIMES = (9, 9, 19, 10, 8)

    def build(self, p: Pipeline) -> None:
        mine = one_channel(p, self)
        timed = mine.process(per_event(itself)).with_parallelism(1)
        p.collect(timed.key_by(one_key).window(WindowStrategy.tumbling(ms(10))).process(WindowRecorder()))

    def check(self, run: Run) -> None:
        run.expect(trigger(0, 10, 9, 9), clear(0, 10), late(8), trigger(10, 20, 19, 10), clear(10, 20))


class GlobalWindowWithoutKeys(Program):
    """E15b: on a non-keyed stream the global window of a subtask fires once, at the end, and is cleared.

    In Flink ``on_clear`` is never called for global windows.
    """

    TIMES = (1, 2, 8)

    def build(self, p: Pipeline) -> None:
        timed = one_channel(p, self).process(FlinkGenerator(itself)).with_parallelism(1)
        p.collect(timed.window(WindowStrategy.global_()).process(WindowRecorder()).with_parallelism(1))

    def check(self, run: Run) -> None:
        assert run.out() == [trigger(-1, -1, 1, 2, 8), clear(-1, -1)]


class TwoInputsOfOneChannel(Program):
    """F3c: both sides of each window. A side without records is an empty list, and null in Flink."""

    LEFT, RIGHT = (1, 2, 12), (3, 4)
    TIMES = LEFT + RIGHT

    def build(self, p: Pipeline) -> None:
        mine = one_channel(p, self)
        left, right = (
            mine.filter(times.__contains__).with_parallelism(1).process(FlinkGenerator(itself)).with_parallelism(1)
            for times in (self.LEFT, self.RIGHT)
        )
        both = (
            left.key_by(one_key)
            .window(WindowStrategy.tumbling(ms(10)))
            .connect_and_process(right.key_by(one_key), TwoInputWindowRecorder())
        )
        p.collect(both)

    def check(self, run: Run) -> None:
        first, second = ("trigger", 0, 0, 10, (1, 2), (3, 4)), ("trigger", 0, 10, 20, (12,), ())
        run.expect(first, clear(0, 10), second, clear(10, 20))


@dataclass(frozen=True)
class OfProgram:
    """Selects the records of the program ``name``."""

    name: str

    def __call__(self, record: tuple[str, int]) -> bool:
        return record[0] == self.name


def time_of(record: tuple[str, int]) -> int:
    """The time of a record."""
    return record[1]


OTHERS = (
    WindowsBehindWindows(),
    TimestampsOfWindows(),
    OwnGenerator(),
    GlobalWindowWithoutKeys(),
    TwoInputsOfOneChannel(),
)
# A single source for all of them would be the longest of all sources and have the most micro-batches.
OBSERVED_TIMES = [(program.name, time) for program in OBSERVED for time in program.times]
OTHER_TIMES = [(program.name, time) for program in OTHERS for time in program.TIMES]

PROGRAMS: Sequence[Program] = (
    OneInputWindows(),
    SessionWindows(),
    TimestampsOfResults(),
    WindowStateAggregates(),
    TwoInputWindows(),
    TwoOutputWindows(),
    FoldingWindows(),
    *OBSERVED,
    *OTHERS,
)
