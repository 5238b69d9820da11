"""The input of an operator that waits until the broadcast side was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from dsv2.errors import JobError
from dsv2.graph import WaitForBroadcast
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.operator.function_instance import FunctionInstance


class WaitingInput:
    """Blocks the first gate until the watermark of ``wait`` arrives from the broadcast side, or its end.

    ``gates``: The inputs, which may be added later.
    """

    def __init__(self, wait: WaitForBroadcast, gates: Sequence[InputGate], instance: FunctionInstance) -> None:
        self._wait = wait
        self._gates = gates
        self._instance = instance

    def begin(self) -> None:
        """Wait from now on."""
        self._gates[0].block(self._wait.max_records, self._on_full)

    def continue_restored(self) -> None:
        """Called after the gate was restored, which may have new channels."""
        if self._gates[0].blocked:
            self.begin()

    def on_watermark(self, identifier: str, value: Any) -> None:
        """Process a combined watermark of the broadcast side."""
        if self._wait.is_over(identifier, value):
            self._gates[0].unblock()

    def on_end(self) -> None:
        """Called when the broadcast side has ended."""
        self._gates[0].unblock()

    def _on_full(self) -> NoReturn:
        raise JobError(
            f"{self._instance.place}: more than {self._wait.max_records} records wait for the broadcast side, and "
            f"{self._wait} has not arrived. Check that the broadcast side sends it, read less of the main side in a "
            f"micro-batch, or increase max_records of WaitForBroadcast."
        )
