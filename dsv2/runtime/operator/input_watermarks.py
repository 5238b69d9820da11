"""Forwards the generalized watermarks of an operator's inputs, combined over the inputs if they are declared so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsv2.errors import JobError
from dsv2.graph import Operator, OperatorKind
from dsv2.runtime.exchange.control_log import WATERMARK
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.combiner import Combiner, new_combiner
from dsv2.watermark.expiry import ExpiringCombiner


class InputWatermarks:
    """The combiners of one operator in one subtask, one for each identifier that is combined.

    Args:
        operator: The operator.
        declarations: The declarations of the job, by identifier.
        inactive: Returns the inputs that are idle or have ended.
        send: Sends a control element downstream.
        now: Returns the processing time in ms.
    """

    def __init__(
        self,
        operator: Operator,
        declarations: Mapping[str, WatermarkDeclaration],
        inactive: Callable[[], set[int]],
        send: Callable[[int, str, Any], None],
        now: Callable[[], int],
    ) -> None:
        self._operator = operator
        self._declarations = declarations
        self._inactive = inactive
        self._send = send
        self._now = now
        self._combiners: dict[str, Combiner] = {}

    def forward(self, input_index: int, declaration: WatermarkDeclaration, value: Any) -> None:
        """Forward a watermark of an input."""
        if self._is_combined(declaration):
            combiner = self._combiner(declaration)
            self._send_combined(declaration.identifier, combiner, combiner.update(input_index, value))
        else:
            self._send(WATERMARK, declaration.identifier, value)

    def refresh(self, input_index: int, identifier: str, value: Any) -> None:
        """Forward a watermark of an input again, so that it does not expire further down."""
        self.forward(input_index, self._declarations[identifier], value)

    def set_idle(self, input_index: int, idle: bool) -> None:
        """Called when an input becomes idle or active."""
        for identifier, combiner in self._combiners.items():
            change = combiner.deactivate if idle else combiner.activate
            self._send_combined(identifier, combiner, change(input_index))

    def end(self, input_index: int) -> None:
        """Called when an input has ended."""
        for identifier, combiner in self._combiners.items():
            self._send_combined(identifier, combiner, combiner.end(input_index))

    def expire(self, now_ms: int) -> None:
        """Forget the values of inputs that have expired at ``now_ms``."""
        for identifier, combiner in self._combiners.items():
            if isinstance(combiner, ExpiringCombiner):
                self._send_combined(identifier, combiner, combiner.expire(now_ms))

    def next_expiry(self) -> int | None:
        """Return when the value of an input expires, in ms. None: there is none."""
        expiring = [one for one in self._combiners.values() if isinstance(one, ExpiringCombiner)]
        return min((time for one in expiring if (time := one.next_deadline()) is not None), default=None)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as built-in values."""
        return {identifier: combiner.snapshot() for identifier, combiner in self._combiners.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a ``snapshot``."""
        for identifier, combiner_state in state.items():
            self._combiner(self._declarations[identifier]).restore(combiner_state)

    def _is_combined(self, declaration: WatermarkDeclaration) -> bool:
        policy, operator = declaration.combination_policy, self._operator
        if policy.barrier is not None:
            return False  # its round includes all inputs
        if operator.kind is not OperatorKind.UNION:
            return len(operator.input_keys) > 1 and policy.combine_across_inputs
        if policy.aligned:
            raise JobError(
                f"{operator}, defined at {operator.location}: the aligned watermark {declaration.identifier!r} cannot "
                f"pass a union. Declare it without aligned()."
            )
        return True

    def _combiner(self, declaration: WatermarkDeclaration) -> Combiner:
        combiner = self._combiners.get(declaration.identifier)
        if combiner is None:
            of_inputs = self._operator.kind is not OperatorKind.UNION
            inputs = len(self._operator.input_keys)
            combiner = new_combiner(declaration, inputs, self._inactive(), self._now, across_inputs=of_inputs)
            self._combiners[declaration.identifier] = combiner
        return combiner

    def _send_combined(self, identifier: str, combiner: Combiner, combined: Any) -> None:
        while combined is not None:
            self._send(WATERMARK, identifier, combined)
            combined = combiner.following()
        if isinstance(combiner, ExpiringCombiner) and (again := combiner.refresh()) is not None:
            self._send(WATERMARK, identifier, again)
