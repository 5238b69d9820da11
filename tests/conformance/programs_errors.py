"""Programs for error policies: what is skipped leaves nothing behind, and dead letters are a stream."""

from __future__ import annotations

from typing import Any

from dsv2 import Collector, DeadLetter, ErrorPolicy, NonPartitionedContext, PartitionedContext
from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.conformance.functions import NUMBERS, is_of_others, mod3, one_key
from tests.conformance.harness import Pipeline, Program, Run
from tests.durations import ms
from tests.windows import FlinkGenerator

SKIP = ErrorPolicy().skip(ValueError)
LETTERS = ErrorPolicy().dead_letter(ValueError)
TOTAL = StateDeclarations.value_state("total", int, default=0)
ODD = [number for number in NUMBERS if number % 2]
EVEN = [number for number in NUMBERS if number % 2 == 0]


def refuse_odd(number: int) -> None:
    """Fails for odd numbers."""
    if number % 2:
        raise ValueError(f"odd: {number}")


class SumOfEven(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Adds to the total of a key and emits it. For odd numbers it fails afterwards."""

    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL]

    def process_record(self, record: int, output: Collector[tuple[int, int]], ctx: PartitionedContext[Any]) -> None:
        total = ctx.state_manager.get_state(TOTAL)
        total.update(total.value() + record)
        output.collect((record, total.value()))
        refuse_odd(record)


def even_key(record: int) -> int:
    """A key selector that fails for odd numbers."""
    refuse_odd(record)
    return 0


def even(record: int) -> int:
    """A function for ``map``."""
    refuse_odd(record)
    return record


def described(letter: DeadLetter[int]) -> tuple[Any, ...]:
    """The parts of a dead letter that do not depend on the setting."""
    return letter.operator.rpartition("/")[2], letter.callback, letter.key, letter.record, letter.error_message


class SkippedRecords(Program):
    """Records that fail are skipped, or become dead letters, in keyed functions, ``map`` and key selectors."""

    def build(self, p: Pipeline) -> None:
        source = p.source(NUMBERS)
        summed = source.key_by(one_key).process(SumOfEven()).with_error_policy(LETTERS).with_uid(p.uid("sum"))
        p.collect(summed, "sums")
        p.collect(summed.dead_letters(int).map(described), "letters")
        p.collect(source.map(even).with_error_policy(SKIP), "mapped")
        selected = source.key_by(even_key).process(SumOfEven()).with_error_policy(LETTERS).with_uid(p.uid("select"))
        p.collect(selected, "selected")
        p.collect(selected.dead_letters(int).map(described), "unselected")

    def check(self, run: Run) -> None:
        for name in ("sums", "selected"):
            assert sorted(number for number, _ in run.out(name)) == EVEN
            assert max(total for _, total in run.out(name)) == sum(EVEN)
        run.expect_all(*(("sum", "process_record", 0, n, f"odd: {n}") for n in ODD), name="letters")
        run.expect_all(*(("select", "key selector", None, n, f"odd: {n}") for n in ODD), name="unselected")
        run.expect_all(*EVEN, name="mapped")
        assert run.progress("sum").counters["errors_dead_lettered"] == len(ODD)


class Retried(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Fails twice for each number. Its field counts calls, which are not undone."""

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}

    def process_record(self, record: int, output: Collector[tuple[int, int]], ctx: PartitionedContext[Any]) -> None:
        self.calls[record] = self.calls.get(record, 0) + 1
        output.collect((record, self.calls[record]))
        if self.calls[record] < 3:
            raise ConnectionError("try again")


class RetriedRecords(Program):
    """A retried record is emitted once."""

    def build(self, p: Pipeline) -> None:
        policy = ErrorPolicy().retry(ConnectionError, times=2)
        p.collect(p.source(NUMBERS).process(Retried()).with_error_policy(policy).with_uid(p.uid("retried")))

    def check(self, run: Run) -> None:
        run.expect_all(*((number, 3) for number in NUMBERS))
        assert run.progress("retried").counters["errors_retried"] == 2 * len(NUMBERS)


class FailsOnRules(TwoInputBroadcastStreamProcessFunction[int, int, int]):
    """Fails for odd rules and odd records."""

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        refuse_odd(record)

    def process_record_from_broadcast_input(self, record: int, ctx: NonPartitionedContext[int]) -> None:
        refuse_odd(record)
        ctx.metric_group.counter("rules").inc()


class FailsTwice(TwoOutputStreamProcessFunction[int, int, int]):
    """Emits to both outputs before it fails."""

    def process_record(self, record: int, first_output: Any, second_output: Any, ctx: Any) -> None:
        first_output.collect(record)
        second_output.collect(-record)
        refuse_odd(record)


CLOSED = new_builder("errors: closed").type_long().combine_function_min().build()


class Closes(OneInputStreamProcessFunction[int, int]):
    """Emits a watermark for each number before it fails for odd ones."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [CLOSED]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(CLOSED.new_watermark(record))
        refuse_odd(record)


class FailsOnWatermarks(OneInputStreamProcessFunction[int, int]):
    """Emits watermarks as records. It fails for multiples of 4, and at the end."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if not is_of_others(watermark) and watermark.identifier == CLOSED.identifier:
            output.collect(watermark.value)
            if watermark.value % 4 == 0:
                raise ValueError
        return WatermarkHandlingResult.PEEK

    def end_input(self, ctx: NonPartitionedContext[int]) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(-1))
        raise ValueError


class OtherCallbacks(Program):
    """Broadcast records, both outputs, emitted watermarks, callbacks for watermarks and the end of input."""

    def build(self, p: Pipeline) -> None:
        source, other = p.source(NUMBERS), p.source(NUMBERS)
        ruled = source.connect_and_process(other.broadcast(), FailsOnRules()).with_error_policy(SKIP)
        p.collect(ruled.with_uid(p.uid("ruled")), "ruled")
        both = source.process(FailsTwice()).with_error_policy(SKIP)
        p.collect(both.first, "first")
        p.collect(both.second, "second")
        closed = p.source(NUMBERS, 1).process(Closes()).with_parallelism(1).with_error_policy(SKIP)
        heard = closed.process(FailsOnWatermarks()).with_parallelism(1).with_error_policy(SKIP)
        p.collect(heard, "heard")
        p.collect(heard.process(FailsOnWatermarks()).with_parallelism(1).with_error_policy(SKIP), "forwarded")

    def check(self, run: Run) -> None:
        run.expect_all(*EVEN, name="ruled")
        assert run.progress("ruled").counters["rules"] == len(EVEN) * run.parallelism
        run.expect_all(*EVEN, name="first")
        run.expect_all(*(-number for number in EVEN), name="second")
        assert run.out("heard") == [2, 6, 10]
        assert run.out("forwarded") == [2, 6, 10]  # a failed callback does not hold a watermark back


class FailsOnTimers(OneInputEventTimeStreamProcessFunction[int, int]):
    """Registers a timer for each record. Timers fail at odd times, after they have emitted."""

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self.timers = event_time_manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.timers.register_timer(record)
        if record == 4:
            raise ValueError

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(timestamp)
        refuse_odd(timestamp)


class FailsInWindows(OneInputWindowStreamProcessFunction[int, tuple[int, ...]]):
    """Fails for record 5, and for the window with record 0."""

    def on_record(self, record: int, output: Any, ctx: Any, window: Any) -> None:
        window.put_record(record)
        if record == 5:
            raise ValueError

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(tuple(sorted(window.get_all_records())))
        if 0 in window.get_all_records():
            raise ValueError


class TimersAndWindows(Program):
    """A timer or window that fails is skipped, and nothing of it remains."""

    def build(self, p: Pipeline) -> None:
        timed = p.source(NUMBERS, 1).process(FlinkGenerator(int)).with_parallelism(1).key_by(mod3)
        p.collect(timed.process(FailsOnTimers()).with_error_policy(SKIP), "timers")
        windowed = timed.window(WindowStrategy.tumbling(ms(6))).process(FailsInWindows()).with_error_policy(LETTERS)
        p.collect(windowed, "windows")
        p.collect(windowed.dead_letters(object).map(callback_of), "letters")
        sessions = timed.window(WindowStrategy.session(ms(4))).process(FailsInWindows()).with_error_policy(SKIP)
        p.collect(sessions, "sessions")

    def check(self, run: Run) -> None:
        run.expect_all(*(number for number in EVEN if number != 4), name="timers")
        run.expect_all((1, 4), (2,), (6, 9), (7, 10), (8, 11), name="windows")
        run.expect_all(("on_record", 2, 5), ("on_trigger", 0, None), name="letters")
        run.expect_all((1, 4, 7, 10), (2,), (8, 11), name="sessions")


def callback_of(letter: DeadLetter[object]) -> tuple[Any, ...]:
    """Return the callback, key and record that failed."""
    return letter.callback, letter.key, letter.record


class StoredLetters(Program):
    """Dead letters that nothing reads are stored, each once, in keyed functions and in ``map``."""

    def build(self, p: Pipeline) -> None:
        source = p.source(NUMBERS)
        summed = source.key_by(mod3).process(SumOfEven()).with_error_policy(LETTERS).with_uid(p.uid("sum"))
        p.collect(summed, "sums")
        mapped = source.map(even).with_error_policy(LETTERS).with_uid(p.uid("mapped"))
        p.collect(mapped, "mapped")

    def check(self, run: Run) -> None:
        assert sorted(number for number, _ in run.out("sums")) == EVEN
        run.expect_all(*EVEN, name="mapped")
        for name in ("sum", "mapped"):
            letters = run.letters(name)
            assert sorted(int(letter.record or 0) for letter in letters) == ODD
            assert all(letter.error_message == f"odd: {letter.record}" for letter in letters)
            assert all(letter.payload is not None and letter.input == 0 for letter in letters)
        assert all(letter.key == str(mod3(int(letter.record or 0))) for letter in run.letters("sum"))


PROGRAMS: tuple[Program, ...] = (
    SkippedRecords(),
    RetriedRecords(),
    OtherCallbacks(),
    TimersAndWindows(),
    StoredLetters(),
)
