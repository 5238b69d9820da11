"""The gates of an operator with several inputs, for tests of barriers."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.barrier_rounds import BarrierRounds
from dsv2.runtime.exchange.gate import InputGate
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests.support import Signal, packed, watermark

DECLARATIONS: Mapping[str, WatermarkDeclaration] = {
    "day": new_builder("day").type_long().barrier().build(),
    "other": new_builder("other").type_long().barrier().build(),
    "failing": new_builder("failing").type_long().barrier(timeout=timedelta(seconds=1), max_records=3).build(),
    "bounded": new_builder("bounded")
    .type_long()
    .barrier(timeout=timedelta(seconds=1), max_records=3, when_exceeded="proceed")
    .build(),
}


class CrossingError(Exception):
    """Raised by the operator behind the gates."""


def barrier(value: int, identifier: str = "day") -> Signal:
    """A barrier in a sequence."""
    return watermark(value, identifier)


class Inputs:
    """The gates of an operator with ``channels`` channels in each input, and what the operator receives.

    Records as they are, barriers as pairs of identifier and id, ("idle", input), ("active", input), ("end", input).
    """

    def __init__(self, *channels: int) -> None:
        self.channels = channels
        self.received: list[Any] = []
        self.now_ms = 0
        self.counts = Counter[str]()
        self._create()

    def _create(self) -> None:
        self.rounds = BarrierRounds(DECLARATIONS, "Operator 'op'", lambda: self.now_ms, self._count)
        self.gates = [
            InputGate(number, count, DECLARATIONS, self, rounds=self.rounds)
            for number, count in enumerate(self.channels)
        ]

    def send(self, number: int, channel: int, *sequence: Any) -> None:
        """Send records and signals to a channel of the input ``number``."""
        self.gates[number].receive(channel, *packed(sequence))

    def pass_time(self, now_ms: int) -> None:
        """Advance the clock."""
        self.now_ms = now_ms
        self.rounds.on_time()

    def new_output(self) -> list[Any]:
        """Return the output since the last call."""
        received, self.received = self.received, []
        return received

    def restart(self, channels: Sequence[int] | None = None) -> None:
        """Restart, if given with other numbers of channels."""
        states = copy.deepcopy([gate.snapshot() for gate in self.gates])
        self.channels = self.channels if channels is None else tuple(channels)
        self._create()
        for gate, state in zip(self.gates, states, strict=True):
            gate.restore(state)
        for gate in self.gates:
            gate.settle()

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        self.received += batch.records

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        assert input_index == 0, "barriers are delivered on the first input"
        self.received.append((identifier, value))

    def on_status(self, input_index: int, idle: bool) -> None:
        self.received.append(("idle" if idle else "active", input_index))

    def on_end(self, input_index: int) -> None:
        self.received.append(("end", input_index))

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        raise CrossingError(waiting)

    def _count(self, name: str, amount: int) -> None:
        self.counts[name] += amount
