"""The ended and idle inputs of an operator, and the status that follows for the operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dsv2.runtime.exchange.gate import InputGate
from dsv2.watermark.event_time import EventTimeOfInputs, all_idle


class InputActivity:
    """The activity of the inputs, as the function and the operators downstream know it.

    Args:
        gates: The gate of each input. They may be added later.
        event_time: The event time of the inputs.
        report: Called when the operator becomes idle or active.
    """

    __slots__ = ("_event_time", "_gates", "_is_idle", "_report", "ended", "idle")

    def __init__(
        self, gates: Sequence[InputGate], event_time: EventTimeOfInputs, report: Callable[[bool], None]
    ) -> None:
        self._gates = gates
        self._event_time = event_time
        self._report = report
        self.ended: set[int] = set()
        self.idle: set[int] = set()
        """The inputs whose idleness has taken effect."""
        self._is_idle = False

    def set_idle(self, index: int, idle: bool) -> None:
        """Note that an input has become idle or active. ``report_idle`` follows."""
        (self.idle.add if idle else self.idle.discard)(index)

    def end(self, index: int) -> None:
        """Note that an input has ended."""
        self.ended.add(index)
        self.idle.discard(index)

    def all_ended(self) -> bool:
        """Return whether all inputs have ended."""
        return len(self.ended) == len(self._gates)

    def inactive(self) -> set[int]:
        """Return the inputs that have ended or whose channels are all idle."""
        return self.ended | {index for index, gate in enumerate(self._gates) if gate.idle}

    def report_idle(self) -> None:
        """Report whether the operator is idle if that has changed: see ``all_idle``."""
        idle = all_idle(len(self._gates), self.idle, self.ended, self._event_time.by_clock)
        if idle != self._is_idle:
            self._is_idle = idle
            self._report(idle)

    def snapshot(self) -> tuple[list[int], list[int], bool]:
        """Return the state as built-in values."""
        return sorted(self.ended), sorted(self.idle), self._is_idle

    def restore(self, state: Sequence[Any]) -> None:
        """Restore a ``snapshot``."""
        ended, idle, self._is_idle = state
        self.ended, self.idle = set(ended), set(idle)
