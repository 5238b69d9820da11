"""Sends watermarks and other control elements along the outputs of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsv2.runtime.exchange.control_log import WATERMARK
from dsv2.runtime.exchange.emitter import Emitter
from dsv2.runtime.operator.time_sender import TimeSender
from dsv2.runtime.state.timers import BatchTime


class OutputControls:
    """The control elements that one operator sends in one subtask.

    Args:
        outputs: An emitter for each output, side outputs last.
        time: The time of the current micro-batch.
    """

    def __init__(self, outputs: Sequence[Emitter], time: BatchTime) -> None:
        self._outputs = outputs
        self._time = time
        self.event_time = TimeSender(self.send)
        """Sends event time and its status."""

    def send(self, kind: int, identifier: str, value: Any) -> None:
        """Send a control element along all outputs."""
        for output in self._outputs:
            output.control(kind, identifier, value)

    def emit_watermark(self, identifier: str, value: Any, output: int | None) -> None:
        """Send a watermark that user code emits, along one output or along all (None)."""
        if output is None:
            self.event_time.emit(identifier, value, self._time.now_ms)
        else:
            self._outputs[output].control(WATERMARK, identifier, value)

    def records_sent(self) -> list[int]:
        """Return the number of records that each output has sent."""
        return [output.records_sent for output in self._outputs]
