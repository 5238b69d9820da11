"""Barriers: between two of them a function receives exactly what each channel of each input has sent between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dsv2.functions import OneInputStreamProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.watermark import LongWatermark, WatermarkDeclaration, new_builder
from tests.conformance.functions import NUMBERS
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.watermarks import Recorder, TwoInputRecorder, send

BLOCK = 4  # numbers between two barriers
SKIPPED = 1  # the id that the subtasks with an odd index do not send


def sends(lane: int, number: int) -> bool:
    """Return whether the subtask ``lane`` sends the barrier ``number``."""
    return number != SKIPPED or lane % 2 == 0


class Cutter(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Forwards numbers with the index of the subtask, and sends a barrier after each block of them."""

    def __init__(self, declaration: WatermarkDeclaration) -> None:
        self.declaration = declaration
        self.block: int | None = None

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [self.declaration]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record // BLOCK != self.block:
            self._cut(ctx.non_partitioned_context)
            self.block = record // BLOCK
        output.collect((ctx.task_info.index_of_this_subtask, record))

    def end_input(self, ctx: Any) -> None:
        self._cut(ctx)

    def _cut(self, ctx: Any) -> None:
        if self.block is not None and sends(ctx.task_info.index_of_this_subtask, self.block):
            send(ctx, self.declaration, self.block)


class WithRules(TwoInputBroadcastStreamProcessFunction[Any, Any, Any]):
    """Emits each record with the number of rules, which it has received from the broadcast side."""

    def __init__(self) -> None:
        self.rules: list[int] = []

    def process_record_from_non_broadcast_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect((ctx.task_info.index_of_this_subtask, record, len(self.rules)))

    def process_record_from_broadcast_input(self, record: tuple[int, int], ctx: Any) -> None:
        self.rules.append(record[1])


Shape = Literal["one input", "two inputs", "union"]


@dataclass(frozen=True)
class Cut(Program):
    """Between two barriers a function receives exactly what each channel has sent between them."""

    shape: Shape

    @property
    def name(self) -> str:
        return f"cut-{self.shape.replace(' ', '-')}"

    def build(self, p: Pipeline) -> None:
        declaration = new_builder(self.name).type_long().barrier().build()
        numbers = p.source(NUMBERS).process(Cutter(declaration)).shuffle()
        if self.shape == "one input":
            first = numbers.process(Recorder())
            p.collect(first.second, "seen")
            after: Any = first.first
        elif self.shape == "two inputs":
            after = numbers.connect_and_process(
                p.source(NUMBERS).process(Cutter(declaration)), TwoInputRecorder(declaration)
            )
            p.collect(after, "seen")
        else:
            others = p.source(NUMBERS).process(Cutter(declaration)).shuffle()
            first = p.source(NUMBERS).process(Cutter(declaration)).union(others).process(Recorder())
            p.collect(first.second, "seen")
            after = first.first
        p.collect(after.shuffle().process(Recorder()).second, "after")

    def check(self, run: Run) -> None:
        copies = 1 if self.shape == "one input" else 2
        last = NUMBERS[-1] // BLOCK
        for subtask in range(run.parallelism):
            check_cut(run, [element for index, element in run.out("seen") if index == subtask])
            after = [element for index, element in run.out("after") if index == subtask]
            ids = [element.value for element in after if isinstance(element, LongWatermark)]
            assert ids == list(range(last + 1)), "each barrier is forwarded once"
        records = [element[1] for _, element in run.out("seen") if not isinstance(element, LongWatermark)]
        assert sorted(records) == sorted([*NUMBERS] * copies)


def check_cut(run: Run, seen: Sequence[Any]) -> None:
    """Check that records come after the barrier before them on their channel, and before the one after them."""
    reached = -1
    for element in seen:
        if isinstance(element, LongWatermark):
            assert element.value == reached + 1, "each id is delivered once, in order"
            reached = element.value
            continue
        lane, number = element
        block = number // BLOCK
        after = block if sends(lane, block) else block + 1
        before = block - 1 if sends(lane, block - 1) else block - 2
        assert before <= reached < after, element
    assert reached == NUMBERS[-1] // BLOCK


class Rules(Program):
    """Rules switch at the same point in every stream: records see the rules of the barriers before them."""

    def build(self, p: Pipeline) -> None:
        declaration = new_builder("rules-cut").type_long().barrier().build()
        rules = p.source(NUMBERS, 1).process(Cutter(declaration)).with_parallelism(1)
        numbers = p.source(NUMBERS).process(Cutter(declaration))
        p.collect(numbers.connect_and_process(rules.broadcast(), WithRules()))

    def check(self, run: Run) -> None:
        assert len(run.out()) == len(NUMBERS)
        for _, (lane, number), rules in run.out():
            block = number // BLOCK
            before = block - 1 if sends(lane, block - 1) else block - 2
            after = block if sends(lane, block) else block + 1
            assert BLOCK * (before + 1) <= rules <= BLOCK * (after + 1)


PROGRAMS: Sequence[Program] = (Cut("one input"), Cut("two inputs"), Cut("union"), Rules())
