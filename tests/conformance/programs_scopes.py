"""Programs for watermarks with a scope: addressed, along one output, expiring, per key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from dsv2 import (
    Collector,
    NonPartitionedContext,
    OutputTag,
    PartitionedContext,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
)
from dsv2.functions import OneInputStreamProcessFunction, TwoOutputStreamProcessFunction
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark import KeyedWatermark, LongWatermarkDeclaration, WatermarkDeclaration, new_builder
from tests.conformance.functions import NUMBERS, mod3
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.watermarks import Recorder, Sender, check_received, values


class Addressed(Program):
    """Only the last of three functions receives the watermark, although it is declared to be ignored."""

    def declaration(self, uid: str) -> LongWatermarkDeclaration:
        builder = new_builder("addressed").type_long().combine_function_max().default_handling_strategy_ignore()
        return builder.deliver_to(uid).build()

    def build(self, p: Pipeline) -> None:
        last = p.uid("last")
        sender = p.source(NUMBERS).process(Sender(self.declaration(last), lambda number: number))
        first = sender.shuffle().process(Recorder())
        second = first.first.key_by(mod3).process(Recorder()).with_uid(p.uid("second"))
        third = second.first.shuffle().process(Recorder()).with_uid(last)
        after = third.first.shuffle().process(Recorder())
        for name, stream in (("first", first), ("second", second), ("third", third), ("after", after)):
            p.collect(stream.second, name)

    def check(self, run: Run) -> None:
        for subtask in range(run.parallelism):
            for name in ("first", "second", "after"):
                assert values(run, name, subtask) == []
            received = values(run, "third", subtask)
            assert max(received) == max(NUMBERS)
            assert set(received) <= set(NUMBERS)
            if run.parallelism == 1:
                assert received == list(NUMBERS)


ASIDE = OutputTag("aside", int)
HERE = new_builder("along-one-output").type_long().combine_function_max().build()


class SendAlong(TwoOutputStreamProcessFunction[int, int, int]):
    """Passes each record to all outputs, with a watermark along the second one, and a last one along the third."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [HERE]

    def declare_outputs(self) -> Sequence[OutputTag[int]]:
        return [ASIDE]

    def process_record(
        self,
        record: int,
        first_output: Collector[int],
        second_output: Collector[int],
        ctx: TwoOutputPartitionedContext[int, int],
    ) -> None:
        first_output.collect(record)
        second_output.collect(record)
        ctx.output(ASIDE, record)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(HERE.new_watermark(record), output="second")

    def end_input(self, ctx: TwoOutputNonPartitionedContext[int, int]) -> None:
        ctx.watermark_manager.emit_watermark(HERE.new_watermark(-1), output=ASIDE)


class AlongOneOutput(Program):
    """A watermark goes along the output that the function names."""

    def build(self, p: Pipeline) -> None:
        sent = p.source(NUMBERS).process(SendAlong())
        for name, stream in (("first", sent.first), ("second", sent.second), ("aside", sent.side_output(ASIDE))):
            p.collect(stream.shuffle().process(Recorder()).second, name)

    def check(self, run: Run) -> None:
        lanes = range(run.parallelism)
        check_received(run, HERE, "second", [NUMBERS[lane :: run.parallelism] for lane in lanes], run.parallelism)
        for subtask in lanes:
            assert values(run, "first", subtask) == []
            assert values(run, "aside", subtask) == [-1]
            assert values(run, "second", subtask)


class LongLived(Program):
    """Values that do not expire while the job runs are combined as any others."""

    declaration = (
        new_builder("long-lived")
        .type_long()
        .combine_wait_for_all_channels(True)
        .expire_after(timedelta(days=1))
        .build()
    )

    @staticmethod
    def value_of(number: int) -> int:
        return (5, 5, 7, 3, 8, 8)[number // 4 + number % 4]

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS).process(Sender(self.declaration, self.value_of))
        p.collect(sender.shuffle().process(Recorder()).second, "first")

    def check(self, run: Run) -> None:
        sent = [
            [self.value_of(number) for number in NUMBERS[lane :: run.parallelism]] for lane in range(run.parallelism)
        ]
        check_received(run, self.declaration, "first", sent, run.parallelism)


COMPLETE = new_builder("complete").type_bool().combine_wait_for_all_channels(True).per_key(int).build()
COUNT = StateDeclarations.value_state("count", int, default=0)
KEYS = sorted(set(map(mod3, NUMBERS)))


class Completing(OneInputStreamProcessFunction[int, int]):
    """Passes records on. At the end it declares each key complete: first False, then True."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [COMPLETE]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        output.collect(record)

    def end_input(self, ctx: NonPartitionedContext[int]) -> None:
        for value in (False, True):
            for key in KEYS:
                ctx.watermark_manager.emit_watermark(COMPLETE.new_watermark(value, key=key))


class Totals(OneInputStreamProcessFunction[int, tuple[int, bool, int]]):
    """Emits what it hears of a key, with the number of its records so far."""

    def uses_states(self) -> Sequence[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: PartitionedContext[Any]) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)

    def on_key_watermark(
        self,
        watermark: KeyedWatermark[bool, int],
        output: Collector[tuple[int, bool, int]],
        ctx: PartitionedContext[tuple[int, bool, int]],
    ) -> None:
        assert ctx.state_manager.current_key == watermark.key
        output.collect((watermark.key, watermark.value, ctx.state_manager.get_state(COUNT).value()))


class GroupedTotals(Totals):
    """Receives the records of a key together."""

    def process_records(self, records: Sequence[int], output: Any, ctx: PartitionedContext[Any]) -> None:
        for record in records:
            self.process_record(record, output, ctx)


class PerKey(Program):
    """All records of a key have arrived once all subtasks have declared it complete."""

    def build(self, p: Pipeline) -> None:
        completing = p.source(NUMBERS).process(Completing())
        for name, function in (("single", Totals()), ("grouped", GroupedTotals())):
            totals = completing.map(int).key_by(mod3).process(function).with_uid(p.uid(name))
            p.collect(totals, name)

    def check(self, run: Run) -> None:
        for name in ("single", "grouped"):
            last = {key: (value, count) for key, value, count in run.out(name)}
            assert last == {key: (True, sum(mod3(number) == key for number in NUMBERS)) for key in KEYS}


WITH_STATE = (PerKey(),)
PROGRAMS = (Addressed(), AlongOneOutput(), LongLived(), *WITH_STATE)
