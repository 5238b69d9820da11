"""Common parts of watermark programs: functions that emit and log them, and the legal results of several channels.

The reading order of several channels is open, and ended channels no longer count. Where that makes a difference, the
result is compared with all legal ones (``tests.oracles.channels``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.watermark import (
    BoolWatermark,
    BoolWatermarkDeclaration,
    LongWatermark,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
)
from tests.conformance.functions import is_of_others
from tests.conformance.harness import Run
from tests.oracles.channels import Rule, Signal, is_legal

PEEK, POLL = WatermarkHandlingResult.PEEK, WatermarkHandlingResult.POLL


def send(ctx: Any, declaration: WatermarkDeclaration, value: int) -> None:
    """Emit ``value``, as a bool if declared so."""
    if isinstance(declaration, BoolWatermarkDeclaration):
        ctx.watermark_manager.emit_watermark(declaration.new_watermark(bool(value)))
    else:
        ctx.watermark_manager.emit_watermark(declaration.new_watermark(value))


class Sender(OneInputStreamProcessFunction[int, int]):
    """Forwards each record, followed by ``value_of(record)`` as a watermark, unless that is None."""

    def __init__(self, declaration: WatermarkDeclaration, value_of: Callable[[int], int | None]) -> None:
        self.declaration = declaration
        self.value_of = value_of

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [self.declaration]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        if (value := self.value_of(record)) is not None:
            send(ctx.non_partitioned_context, self.declaration, value)


class SendAtEnd(OneInputStreamProcessFunction[Any, Any]):
    """Forwards records, and sends ``value`` at the end."""

    def __init__(self, declaration: WatermarkDeclaration, value: int) -> None:
        self.declaration = declaration
        self.value = value

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [self.declaration]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def end_input(self, ctx: Any) -> None:
        send(ctx, self.declaration, self.value)


class TwoInputRecorder(TwoInputNonBroadcastStreamProcessFunction[Any, Any, tuple[int, Any]]):
    """Emits records of both inputs, and the watermark ``declaration``, which comes from the first, as Recorder does."""

    def __init__(self, declaration: WatermarkDeclaration) -> None:
        self.declaration = declaration

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect((ctx.task_info.index_of_this_subtask, record))

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect((ctx.task_info.index_of_this_subtask, record))

    def on_watermark_from_first_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if self.declaration.matches(watermark):
            output.collect((ctx.task_info.index_of_this_subtask, watermark))
        return PEEK

    def on_watermark_from_second_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        assert watermark.identifier != self.declaration.identifier, "a barrier comes from the first input"
        return PEEK


class Recorder(TwoOutputStreamProcessFunction[Any, Any, tuple[int, Any]]):
    """Forwards records to its first output, and logs everything to its second, as (subtask, element).

    ``answer``: its result for watermarks.
    """

    def __init__(self, answer: WatermarkHandlingResult = PEEK) -> None:
        self.answer = answer

    def process_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None:
        first_output.collect(record)
        second_output.collect((ctx.task_info.index_of_this_subtask, record))

    def on_watermark(
        self, watermark: Watermark, first_output: Any, second_output: Any, ctx: Any
    ) -> WatermarkHandlingResult:
        if is_of_others(watermark):
            return PEEK
        second_output.collect((ctx.task_info.index_of_this_subtask, watermark))
        return self.answer


class SidesRecorder:
    """Emits the watermarks of both inputs as (subtask, input, value)."""

    def _first(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self._emit(1, watermark, output, ctx)

    def _second(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self._emit(2, watermark, output, ctx)

    def _emit(self, side: int, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if not is_of_others(watermark):
            output.collect((ctx.task_info.index_of_this_subtask, side, watermark.value))
        return PEEK


# Typed Any so that every kind can use them.
FROM_FIRST: Any = SidesRecorder._first
FROM_SECOND: Any = SidesRecorder._second


def among(*numbers: int) -> Callable[[int], int | None]:
    """A watermark for each of ``numbers``."""
    return lambda number: number if number in numbers else None


def signals(run: Run, name: str, subtask: int) -> list[Signal]:
    """The watermarks that subtask ``subtask`` logged to the sink ``name``."""
    return [
        Signal(seen.identifier, seen.value)
        for index, seen in run.out(name)
        if index == subtask and isinstance(seen, LongWatermark | BoolWatermark)
    ]


def values(run: Run, name: str, subtask: int) -> list[int]:
    """Their values."""
    return [signal.value for signal in signals(run, name, subtask)]


def check_received(
    run: Run, declaration: WatermarkDeclaration, name: str, sent: Sequence[Sequence[int]], subtasks: int
) -> None:
    """Check that every subtask received a legal combination of the channels, one for each of ``sent``."""
    rules = {declaration.identifier: Rule.of(declaration)}
    channels = [[Signal(declaration.identifier, value) for value in channel] for channel in sent]
    for subtask in range(subtasks):
        received = signals(run, name, subtask)
        assert is_legal(rules, channels, received), (name, sent, received)
