"""Faults of watermarks that functions take over, emit or do not receive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsv2.runtime.operator import timed_calls
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.operator.output_controls import OutputControls
from tests.proofs.mutations.mutation import Mutation, nothing


def _forward_always(original: Any) -> Any:
    def is_forwarded(result: Any, strategy: Any) -> bool:
        return True

    return is_forwarded


def _without_repetition(original: Any) -> Any:
    def create(self: Any, *parts: Any) -> None:
        original(self, *parts)
        sender = self._controls.event_time
        send = sender.emit

        def emit(identifier: str, value: Any, now_ms: int) -> None:
            if self._watermarks.get(identifier) != value:
                self._watermarks[identifier] = value
                send(identifier, value, now_ms)

        sender.emit = emit

    return create


def _as_addressed(original: Any) -> Any:
    def on_generalized(self: Any, input_index: int, identifier: str, value: Any) -> None:
        self.operator = replace(self.operator, passes_on=frozenset())
        original(self, input_index, identifier, value)

    return on_generalized


FUNCTIONS = [
    Mutation("a watermark that the function takes over is forwarded",
     "functions, two operators, 2 subtasks, takes over 1, MIN (wait for none)", "cut", timed_calls, "is_forwarded",
     _forward_always),
    Mutation("a watermark that the function emits is lost",
     "functions, two operators, 2 subtasks, emits around records, MIN (wait for none) and MIN (wait for none)",
     "progress", OutputControls, "emit_watermark", nothing),
    Mutation("an aligned watermark that the function emits again is lost",
     "functions, two operators, 2 subtasks, emits behind records, MIN (wait for none) and MIN (aligned)", "blocked",
     OperatorTask, "__init__", _without_repetition),
    Mutation("an operator acts on a watermark that is addressed to others",
     "functions, two operators, 2 subtasks, addressed to the second, MIN (wait for all)", "progress", OperatorTask,
     "_on_generalized", _as_addressed),
]  # fmt: skip
