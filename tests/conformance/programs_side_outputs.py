"""Programs for side outputs, on every kind of function and stream."""

from __future__ import annotations

from typing import Any

from dsv2 import Collector, NonPartitionedContext, OutputTag, PartitionedContext
from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import JoinMode, join
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.state import aggregate_of
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.conformance.functions import (
    NUMBERS,
    Located,
    PassTwo,
    Stamped,
    check_keys,
    is_of_others,
    itself,
    mod3,
    one_key,
    value_of,
)
from tests.conformance.harness import Pipeline, Program, Run
from tests.durations import ms
from tests.windows import FlinkGenerator

SMALL = OutputTag("small", int)
LARGE = OutputTag("large", int)
NOTES = OutputTag("notes", str)
DROPPED = OutputTag("dropped", int)
TAGS = (SMALL, LARGE, NOTES, DROPPED)
ALL = list(NUMBERS)


class Sort(OneInputStreamProcessFunction[int, int]):
    """Emits even numbers, and odd ones to two of four side outputs."""

    def declare_outputs(self) -> tuple[OutputTag[Any], ...]:
        return TAGS

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        if record % 2 == 0:
            output.collect(record)
            return
        ctx.output(SMALL if record < 6 else LARGE, record)
        ctx.output(NOTES, f"odd {record}")
        ctx.output(DROPPED, record)


class SideOutputs(Program):
    """Each record goes to the output that it was emitted to, any number of readers reads it, or none."""

    def build(self, p: Pipeline) -> None:
        source = p.source(NUMBERS)
        for name, stream in (("rows", source), ("keys", source.key_by(mod3)), ("all", source.global_())):
            result: Any = stream.process(Sort())
            p.collect(result, name)
            p.collect(result.side_output(SMALL), f"{name} small")
            p.collect(result.side_output(LARGE), f"{name} large")
            p.collect(result.side_output(LARGE).key_by(mod3).process(Located(keyed=True)), f"{name} keyed")
            p.collect(result.side_output(NOTES), f"{name} notes")

    def check(self, run: Run) -> None:
        for name in ("rows", "keys", "all"):
            run.expect_all(0, 2, 4, 6, 8, 10, name=name)
            run.expect_all(1, 3, 5, name=f"{name} small")
            run.expect_all(7, 9, 11, name=f"{name} large")
            run.expect_all(*(f"odd {number}" for number in (1, 3, 5, 7, 9, 11)), name=f"{name} notes")
            assert sorted(map(value_of, run.out(f"{name} keyed"))) == [7, 9, 11]
            check_keys(run.parallelism, run.out(f"{name} keyed"))
        run.expect_channel_order(int, name="rows large")


class SplitThreeWays(TwoOutputStreamProcessFunction[int, int, str]):
    """Has three outputs."""

    def declare_outputs(self) -> tuple[OutputTag[Any], ...]:
        return (NOTES,)

    def process_record(self, record: int, first_output: Any, second_output: Any, ctx: Any) -> None:
        (first_output, second_output)[record % 2].collect(record)
        ctx.output(NOTES, f"seen {record}")


class MergeWithNotes(TwoInputNonBroadcastStreamProcessFunction[int, int, int]):
    """Emits its first input, and notes for both."""

    def declare_outputs(self) -> tuple[OutputTag[Any], ...]:
        return (NOTES,)

    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        ctx.output(NOTES, f"first {record}")

    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None:
        ctx.output(NOTES, f"second {record}")


class RulesWithNotes(TwoInputBroadcastStreamProcessFunction[int, int, int]):
    """Emits its main input, and notes for broadcast records, which have no collector."""

    def declare_outputs(self) -> tuple[OutputTag[Any], ...]:
        return (NOTES,)

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_broadcast_input(self, record: int, ctx: NonPartitionedContext[int]) -> None:
        ctx.output(NOTES, f"rule {record} in {ctx.task_info.index_of_this_subtask}")


def sort_in_callable(record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
    """A callable declares no outputs: those that are read exist."""
    (output.collect if record < 6 else lambda one: ctx.output(LARGE, one))(record)


class SideOutputsOfEveryKind(Program):
    """Functions with two outputs, two inputs, a broadcast input, and plain callables have side outputs."""

    def build(self, p: Pipeline) -> None:
        source, other = p.source(NUMBERS), p.source(NUMBERS)
        split = source.process(SplitThreeWays())
        p.collect(split.first, "even")
        p.collect(split.second, "odd")
        p.collect(split.side_output(NOTES), "split")
        all_split = source.global_().process(SplitThreeWays())
        p.collect(all_split.first.connect_and_process(all_split.side_output(NOTES), PassTwo()), "global")
        all_split.second.process(lambda record, output, ctx: None)
        merged = source.key_by(mod3).connect_and_process(other.key_by(mod3), MergeWithNotes(), mod3)
        p.collect(merged, "merged")
        p.collect(merged.side_output(NOTES), "both")
        ruled = source.connect_and_process(other.broadcast(), RulesWithNotes())
        p.collect(ruled, "ruled")
        p.collect(ruled.side_output(NOTES), "rules")
        called = source.process(sort_in_callable)
        p.collect(called, "small")
        p.collect(called.side_output(LARGE), "large")

    def check(self, run: Run) -> None:
        run.expect_all(*range(0, 12, 2), name="even")
        run.expect_all(*range(1, 12, 2), name="odd")
        run.expect_all(*(f"seen {number}" for number in ALL), name="split")
        run.expect_all(*range(0, 12, 2), *(f"seen {number}" for number in ALL), name="global")
        run.expect_all(*ALL, name="merged")
        run.expect_all(*(f"{which} {number}" for which in ("first", "second") for number in ALL), name="both")
        run.expect_all(*ALL, name="ruled")
        run.expect_all(*(f"rule {n} in {subtask}" for n in ALL for subtask in range(run.parallelism)), name="rules")
        run.expect_all(*range(6), name="small")
        run.expect_all(*range(6, 12), name="large")


HALF = new_builder("side outputs: half").type_bool().combine_function_and().combine_wait_for_all_channels(True).build()


class HalfTime(OneInputStreamProcessFunction[int, int]):
    """Emits everything to the side: records, notes for watermarks and the end. A watermark follows number 5."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [HALF]

    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [NOTES]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        ctx.output(NOTES, f"{record}")
        if record == 5:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(HALF.new_watermark(True))

    def end_input(self, ctx: NonPartitionedContext[int]) -> None:
        ctx.output(NOTES, "end")


class NotesInOrder(OneInputStreamProcessFunction[str, str]):
    """Emits its input, and notes for the watermark to both of its outputs."""

    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [NOTES]

    def process_record(self, record: str, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        output.collect(record)

    def on_watermark(
        self, watermark: Watermark, output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        if not is_of_others(watermark) and watermark.identifier == HALF.identifier:
            output.collect("half")
            ctx.output(NOTES, "half")
        return WatermarkHandlingResult.PEEK


class WatermarksOnSideOutputs(Program):
    """Watermarks and the end go to side outputs as to every output, in order, chained or not."""

    def build(self, p: Pipeline) -> None:
        noted = p.source(NUMBERS, 1).process(HalfTime()).with_parallelism(1)
        notes = noted.side_output(NOTES)
        chained = notes.process(NotesInOrder()).with_parallelism(1)
        p.collect(chained, "chained")
        p.collect(chained.side_output(NOTES), "halves")
        p.collect(notes.shuffle().process(NotesInOrder()).with_parallelism(1), "exchanged")
        p.collect(noted, "main")

    def check(self, run: Run) -> None:
        expected = [*map(str, range(6)), "half", *map(str, range(6, 12)), "end"]
        assert run.out("chained") == expected
        assert run.out("exchanged") == expected
        assert run.out("halves") == ["half"]
        assert run.out("main") == []


STAMPS = OutputTag("stamps", tuple)
TIMES = (1, 2, 12, 25)


class Late5(OneInputEventTimeStreamProcessFunction[int, int]):
    """Emits to the side when a record arrives and 5 ms later."""

    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [STAMPS]

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self.timers = event_time_manager

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        ctx.output(STAMPS, ("record", record))
        self.timers.register_timer(record + 5)

    def on_event_timer(self, timestamp: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        ctx.output(STAMPS, ("timer", timestamp))


class WindowWithSide(OneInputWindowStreamProcessFunction[int, int]):
    """Emits to the side from every callback."""

    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [STAMPS]

    def on_record(self, record: int, output: Any, ctx: Any, window: Any) -> None:
        window.put_record(record)
        ctx.output(STAMPS, ("record", record))

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        ctx.output(STAMPS, ("trigger", sum(window.get_all_records())))

    def on_clear(self, output: Any, ctx: Any, window: Any) -> None:
        ctx.output(STAMPS, ("clear", window.start_time))


def add(value: int, so_far: int) -> int:
    """The function of a sum."""
    return value + so_far


def sum_to_side(total: int, window: Any, ctx: PartitionedContext[int]) -> int:
    """The result of a window, also on the side."""
    ctx.output(STAMPS, ("sum", total))
    return total


def pair_to_side(left: int, right: int, output: Collector[Any], ctx: Any) -> None:
    """Joins to the side."""
    ctx.output(STAMPS, ("pair", left, right))


class TimestampsOfSideOutputs(Program):
    """A record on a side output has the timestamp that it would have on the main output."""

    def build(self, p: Pipeline) -> None:
        source = p.source((*TIMES, 3), 1)
        timed = source.process(FlinkGenerator(itself)).with_parallelism(1).key_by(one_key)
        patient = source.process(FlinkGenerator(itself, 30)).with_parallelism(1).key_by(one_key)
        ten = WindowStrategy.tumbling(ms(10))
        results: dict[str, Any] = {
            "timers": timed.process(Late5()),
            "windows": timed.window(ten).process(WindowWithSide()),
            "sums": timed.window(ten).aggregate(aggregate_of(int, add, int), sum_to_side),
            "joins": patient.connect_and_process(patient, join(pair_to_side, JoinMode.interval(ms(-1), ms(1)))),
        }
        for name, result in results.items():
            p.collect(result.side_output(STAMPS).process(Stamped()), name)
            p.collect(result, f"{name} main")

    def check(self, run: Run) -> None:
        run.expect_all(
            *((("record", time), time) for time in (*TIMES, 3)),
            *((("timer", time + 5), time + 5) for time in (*TIMES, 3)),
            name="timers",
        )
        run.expect_all(
            *((("record", time), time) for time in TIMES),
            *((("trigger", total), end) for total, end in ((3, 9), (12, 19), (25, 29))),
            *((("clear", start), start + 9) for start in (0, 10, 20)),
            name="windows",
        )
        run.expect_all((("sum", 3), 9), (("sum", 12), 19), (("sum", 25), 29), name="sums")
        pairs = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (12, 12), (25, 25)]
        run.expect_all(*((("pair", left, right), max(left, right)) for left, right in pairs), name="joins")
        for name in ("timers", "windows", "joins"):
            assert run.out(f"{name} main") == []


PROGRAMS: tuple[Program, ...] = (
    SideOutputs(),
    SideOutputsOfEveryKind(),
    WatermarksOnSideOutputs(),
    TimestampsOfSideOutputs(),
)
