"""The callbacks of each input, by the kind of the operator."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.functions import ProcessFunction
from dsv2.graph import OperatorKind


@dataclass(frozen=True, slots=True)
class InputCallbacks:
    """The names of the callbacks of an input: for a record, for a watermark, and for its end."""

    process: str
    watermark: str
    end: str


_CALLBACKS = {
    OperatorKind.ONE_INPUT: (InputCallbacks("process_record", "on_watermark", "end_input"),),
    OperatorKind.UNION: (InputCallbacks("process_record", "on_watermark", "end_input"),),
    OperatorKind.TWO_OUTPUT: (InputCallbacks("process_record", "on_watermark", "end_input"),),
    OperatorKind.TWO_INPUT: (
        InputCallbacks("process_record_from_first_input", "on_watermark_from_first_input", "end_first_input"),
        InputCallbacks("process_record_from_second_input", "on_watermark_from_second_input", "end_second_input"),
    ),
    OperatorKind.TWO_INPUT_BROADCAST: (
        InputCallbacks(
            "process_record_from_non_broadcast_input",
            "on_watermark_from_non_broadcast_input",
            "end_non_broadcast_input",
        ),
        InputCallbacks(
            "process_record_from_broadcast_input", "on_watermark_from_broadcast_input", "end_broadcast_input"
        ),
    ),
}


def callbacks_of(kind: OperatorKind, number: int) -> InputCallbacks:
    """Return the callbacks of the input ``number`` of an operator of ``kind``."""
    return _CALLBACKS[kind][0 if kind is OperatorKind.UNION else number]


def reacts_to_end(function: ProcessFunction, kind: OperatorKind, number: int) -> bool:
    """Return whether ``function``, of an operator of ``kind``, has a callback for the end of input ``number``."""
    callback = getattr(type(function), callbacks_of(kind, number).end)
    return not callback.__module__.startswith("dsv2.functions.")
