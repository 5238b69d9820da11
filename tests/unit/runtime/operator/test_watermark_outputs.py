"""Watermarks that a function emits along one of its outputs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from dsv2 import (
    Collector,
    ErrorPolicy,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    OutputTag,
    PartitionedContext,
    TwoOutputPartitionedContext,
    TwoOutputStreamProcessFunction,
    WatermarkDeclaration,
    new_builder,
)
from dsv2.errors import ContractError, UndeclaredOutputError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.model import MainOutput
from dsv2.testing import OneInputHarness, TwoOutputHarness

DONE = new_builder("done").type_long().build()
SIDE, OTHER = OutputTag("side", int), OutputTag("other", int)
CHOSEN: list[Any] = []
"""The output along which the functions emit. Tags cannot be records."""


class One(OneInputStreamProcessFunction[Any, Any]):
    """Emits a record to each output, then a watermark along the chosen output."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [DONE, EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION]

    def declare_outputs(self) -> Collection[OutputTag[int]]:
        return [SIDE]

    def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(1)
        ctx.output(SIDE, 1)
        (along,) = CHOSEN
        declaration = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION if record == "time" else DONE
        ctx.non_partitioned_context.watermark_manager.emit_watermark(declaration.new_watermark(7), output=along)


class Two(TwoOutputStreamProcessFunction[Any, int, int]):
    """The same with two outputs."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [DONE]

    def declare_outputs(self) -> Collection[OutputTag[int]]:
        return [SIDE]

    def process_record(
        self,
        record: Any,
        first_output: Collector[int],
        second_output: Collector[int],
        ctx: TwoOutputPartitionedContext[int, int],
    ) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(DONE.new_watermark(7), output=CHOSEN[0])


@pytest.mark.parametrize("policy", [None, ErrorPolicy().skip(ValueError)])
@pytest.mark.parametrize(
    ("along", "main", "side"), [(None, 1, 1), ("first", 1, 0), (MainOutput.FIRST, 1, 0), (SIDE, 0, 1)]
)
def test_one_output(along: Any, main: int, side: int, policy: ErrorPolicy | None) -> None:
    options: Any = {} if policy is None else {"error_policy": policy}
    harness = OneInputHarness(One(), **options)
    CHOSEN[:] = [along]
    harness.input.push("record")
    outputs = harness.output, harness.side_output(SIDE)
    assert [len(output.watermarks) for output in outputs] == [main, side]
    for output in outputs:
        assert output.elements[1:] == output.watermarks, "after the record"


@pytest.mark.parametrize(
    ("along", "sent"),
    [
        (None, [1, 1, 1]),
        ("first", [1, 0, 0]),
        ("second", [0, 1, 0]),
        (MainOutput.SECOND, [0, 1, 0]),
        (OutputTag("side", int), [0, 0, 1]),
    ],
)
def test_two_outputs(along: Any, sent: list[int]) -> None:
    harness = TwoOutputHarness(Two())
    CHOSEN[:] = [along]
    harness.input.push("record")
    outputs = harness.first_output, harness.second_output, harness.side_output(SIDE)
    assert [len(output.watermarks) for output in outputs] == sent


@pytest.mark.parametrize(
    ("along", "kind", "message"),
    [
        ("second", UndeclaredOutputError, "This function has no output 'second'. Its outputs: 'first'."),
        (MainOutput.SECOND, UndeclaredOutputError, "This function has no output"),
        (OTHER, UndeclaredOutputError, "The side output OutputTag('other', int) is not declared by this function"),
        (OutputTag("side", str), UndeclaredOutputError, "is not declared by this function (declared: OutputTag('side"),
        ("third", ContractError, "must be 'first', or the OutputTag of a side output, not 'third'."),
        (1, ContractError, "must be 'first', or the OutputTag of a side output, not 1."),
        ([], ContractError, "not []."),
        ("time", ContractError, "Event time concerns all outputs: call emit_watermark without output"),
    ],
)
def test_other_outputs_are_refused(along: Any, kind: type[Exception], message: str) -> None:
    harness = OneInputHarness(One())
    CHOSEN[:] = ["first" if along == "time" else along]
    with pytest.raises(UserFunctionError) as caught:
        harness.input.push(along if along == "time" else "record")
    assert f"{kind.__name__}: " in str(caught.value)
    assert message in str(caught.value)


def test_all_callbacks_can_emit_along_an_output() -> None:
    class AtTheEnd(One):
        def end_input(self, ctx: NonPartitionedContext[Any]) -> None:
            ctx.watermark_manager.emit_watermark(DONE.new_watermark(9), output=SIDE)

    harness = OneInputHarness(AtTheEnd())
    harness.end()
    assert harness.side_output(SIDE).watermarks == [DONE.new_watermark(9)]
    assert harness.output.watermarks == []
