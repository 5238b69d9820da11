"""The values of watermarks that expire in one operator: those of channels, inputs and keys."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.operator.input_watermarks import InputWatermarks
from dsv2.runtime.operator.key_watermarks import KeyWatermarks


class WatermarkExpiry:
    """Removes expired values at the end of a micro-batch, so that a value that it has brought again is in time.

    Args:
        gates: The inputs of the operator.
        inputs: The watermarks that are combined over the inputs.
        keys: The per-key watermarks.
    """

    def __init__(self, gates: Sequence[InputGate], inputs: InputWatermarks, keys: KeyWatermarks) -> None:
        self._gates = gates
        self._inputs = inputs
        self._keys = keys

    def expire(self, now_ms: int) -> None:
        """Forget the values that have expired at ``now_ms``, and deliver the combination of the others."""
        for gate in self._gates:
            gate.expire(now_ms)
        self._inputs.expire(now_ms)
        self._keys.expire(now_ms)

    def next_deadline(self) -> int | None:
        """Return when the next value expires, in ms. None: there is none."""
        times = [self._keys.next_deadline(), self._inputs.next_expiry(), *(gate.next_expiry() for gate in self._gates)]
        return min((time for time in times if time is not None), default=None)
