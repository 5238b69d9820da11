"""Side outputs keep the types of their tags."""

from __future__ import annotations

from datetime import date
from typing import Any, assert_type

from dsv2 import (
    Collector,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    OutputTag,
    PartitionedContext,
    RuntimeContext,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
)
from dsv2.extension.join import JoinFunction
from dsv2.streams import ConfiguredGlobalStream, ConfiguredStream
from dsv2.testing import HarnessOutput, OneInputHarness
from tests.typing.given import Given

DAYS = OutputTag("days", date)
PAIRS = OutputTag("pairs", tuple[int, str])
EITHER = OutputTag[int | str]("either")


class Sorts(OneInputStreamProcessFunction[int, bytes]):
    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [DAYS, PAIRS, EITHER]

    def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        ctx.output(DAYS, date(2020, 1, record))
        ctx.output(EITHER, record)

    def end_input(self, ctx: NonPartitionedContext[bytes]) -> None:
        ctx.output(EITHER, "end")


class Pairs(JoinFunction[int, date, bytes]):
    def declare_outputs(self) -> tuple[OutputTag[date]]:
        return (DAYS,)

    def process_record(self, left: int, right: date, output: Collector[bytes], ctx: RuntimeContext) -> None:
        ctx.output(DAYS, right)


def tags() -> None:
    assert_type(DAYS, OutputTag[date])
    assert_type(PAIRS, OutputTag[tuple[int, str]])


def streams(g: Given) -> None:
    result = g.keyed.process(Sorts()).with_uid("sorts")
    assert_type(result.side_output(DAYS), ConfiguredStream[date])
    assert_type(result.side_output(PAIRS).with_name("sorts"), ConfiguredStream[tuple[int, str]])
    assert_type(g.keyed.process(Sorts(), g.key_of_bytes).side_output(EITHER), ConfiguredStream[int | str])
    assert_type(g.global_.process(Sorts()).side_output(DAYS), ConfiguredGlobalStream[date])
    assert_type(g.non_keyed.process(g.two_out).side_output(DAYS), ConfiguredStream[date])
    assert_type(g.global_.process(g.two_out).side_output(DAYS), ConfiguredGlobalStream[date])
    kept = g.keyed.process(g.two_out, first_key_selector=g.key_of_bytes, second_key_selector=g.key_of_list)
    assert_type(kept.side_output(DAYS), ConfiguredStream[date])
    assert_type(
        g.non_keyed.connect_and_process(g.other_broadcast, g.with_side).side_output(DAYS), ConfiguredStream[date]
    )


def contexts(
    two: TwoOutputPartitionedContext[int, str], whole: TwoOutputNonPartitionedContext[int, str], any_: RuntimeContext
) -> None:
    two.output(PAIRS, (1, "a"))
    whole.output(EITHER, 1)
    any_.output(DAYS, date.today())


def harnesses() -> None:
    harness = OneInputHarness(Sorts(), side_outputs=[DAYS])
    assert_type(harness.side_output(DAYS), HarnessOutput[date])
    assert_type(harness.side_output(PAIRS).records, list[tuple[int, str]])
