"""The barriers of one operator in one subtask. A round cuts all of its inputs at one point.

The gates of the inputs block their channels at a barrier, and combine them in one group. When a round is complete, or
has waited for too long, the barrier is delivered once, on the first input, and the channels of all gates are released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NoReturn, Protocol

from dsv2.errors import JobError
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.barrier_combiner import BarrierCombiner, BarrierOrderError
from dsv2.watermark.declaration import BarrierWait, WhenExceeded

BLOCKED = "dsv2-blocked"
"""The identifier by which a gate holds the elements of all channels, instead of that of an aligned watermark."""
BARRIERS_WITHOUT_ALL = "barriers_without_all_channels"
"""The counter of barriers that were delivered although channels were missing."""
LATE_BARRIERS = "late_barriers"
"""The counter of barriers that arrived after their id was delivered."""
LATE_BEHIND_BARRIERS = "records_late_for_barrier"
"""The counter of records before late barriers."""


class BarrierGate(Protocol):
    """The gate of an input."""

    def barrier_combiner(self, identifier: str) -> BarrierCombiner:
        """Return the combiner of a barrier, creating it if necessary."""

    def deliver_barrier(self, identifier: str, value: Any) -> None:
        """Pass a barrier to the operator."""

    def release(self, identifier: str) -> None:
        """Queue the elements of channels that an aligned watermark no longer blocks."""

    def process_released(self) -> None:
        """Process the queued elements."""

    def blocked_by(self) -> Mapping[int, str]:
        """The identifiers that block active channels."""

    def held_by(self, identifier: str) -> int:
        """The number of records that an aligned watermark holds."""


class BarrierRounds:
    """The rounds of all barriers.

    Args:
        declarations: The declarations of the job, by identifier.
        owner: Names the operator and the subtask in errors.
        now_ms: Returns the time, in ms.
        count: Called with the name of a counter and what is added to it.
    """

    def __init__(
        self,
        declarations: Mapping[str, WatermarkDeclaration],
        owner: str = "",
        now_ms: Callable[[], int] = lambda: 0,
        count: Callable[[str, int], None] = lambda name, amount: None,
    ) -> None:
        waits = {name: declaration.combination_policy.barrier for name, declaration in declarations.items()}
        self._waits: dict[str, BarrierWait] = {name: wait for name, wait in waits.items() if wait is not None}
        self._owner = owner
        self._now_ms = now_ms
        self._count = count
        self._open: set[str] = set()  # barriers that have been received
        self.gates: list[BarrierGate] = []
        """The gates of the inputs."""
        self.released = False
        """True if several gates may have elements to process."""
        self.limited = {name: wait.max_records for name, wait in self._waits.items() if wait.max_records is not None}
        """The greatest number of records that a barrier may hold, by identifier, if there is a limit."""
        self._held = dict.fromkeys(self.limited, 0)

    def new_combiner(self, identifier: str, channels: int, inactive: set[int]) -> BarrierCombiner:
        """Create the combiner of one input."""
        self._open.add(identifier)
        return BarrierCombiner(channels, inactive, lambda: self._combiners(identifier), self._now_ms, self._late)

    def deliver(self, identifier: str, value: Any) -> None:
        """Deliver a barrier on the first input, and release the channels of all inputs."""
        self.gates[0].deliver_barrier(identifier, value)
        for gate in self.gates:
            gate.release(identifier)
        self.released = len(self.gates) > 1

    def process_released(self) -> None:
        """Process what ``deliver`` has released. Called when no element is being processed."""
        while self.released:
            self.released = False
            for gate in self.gates:
                gate.process_released()

    def hold(self, identifier: str, records: int) -> None:
        """Count records that a limited barrier holds from now on, or no longer if the number is negative."""
        self._held[identifier] += records

    def recount(self) -> None:
        """Count the records that limited barriers hold. Called after a restart."""
        self._held = {name: sum(gate.held_by(name) for gate in self.gates) for name in self.limited}

    def check_held(self, identifier: str) -> None:
        """Act if a limited barrier holds too many records."""
        while self._held[identifier] > (limit := self.limited[identifier]):
            if not self._exceed(identifier, f"holds more than {limit:,} records (max_records)"):
                return

    def next_deadline(self) -> int | None:
        """Return when ``on_time`` must be called, in ms; None if it need not be."""
        times = [deadline for name in self._open if (deadline := self._deadline(name)) is not None]
        return min(times, default=None)

    def on_time(self) -> None:
        """Act if a barrier has waited for too long."""
        for identifier in sorted(self._open):
            while (deadline := self._deadline(identifier)) is not None and deadline <= self._now_ms():
                waited = f"has waited for {timedelta(milliseconds=self._waits[identifier].timeout_ms or 0)} (timeout)"
                self._exceed(identifier, waited)
                self._process_all()

    def check_crossing(self) -> None:
        """Raise ``JobError`` if inputs wait for each other at different barriers, or at something else."""
        if len(self.gates) == 1:
            return
        found = {
            f"channel {channel} of input {number}": identifier
            for number, gate in enumerate(self.gates)
            for channel, identifier in gate.blocked_by().items()
            if identifier in self._waits or identifier == BLOCKED
        }
        if len(set(found.values())) > 1:
            self._fail_inputs(found)

    def fail_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        """Raise ``JobError``: channels of an input wait for each other at different aligned watermarks."""
        sent = ", ".join(f"{identifier!r} (subtask {channel})" for channel, identifier in sorted(waiting.items()))
        raise JobError(
            f"{self._owner}, input {input_index}: aligned watermarks cross, so the upstream subtasks would wait for "
            f"each other forever. The first aligned watermark of each: {sent}. Emit aligned watermarks in the same "
            f"order in every subtask, or declare all but one of them without aligned()."
        )

    def fail_order(self, identifier: str, input_index: int, error: BarrierOrderError) -> NoReturn:
        """Raise ``JobError``: a channel sent an id that is not greater than the one before."""
        raise JobError(
            f"{self._owner}, input {input_index}, channel {error.channel}: the barrier {identifier!r} arrived with the "
            f"id {error.value!r} after {error.before!r}. The ids that one subtask sends must increase. If a function "
            f"emits barriers that it also receives, return POLL from its handler, so that they are not forwarded as "
            f"well."
        ) from None

    def _fail_inputs(self, found: Mapping[str, str]) -> NoReturn:
        waiting = ", ".join(
            f"{where} at the wait for the broadcast side" if identifier == BLOCKED else f"{where} at {identifier!r}"
            for where, identifier in found.items()
        )
        raise JobError(
            f"{self._owner}: its inputs wait for each other forever, because a barrier cuts all of them at one point: "
            f"{waiting}. Emit barriers in the same order in every stream, and after what the operator waits for."
        )

    def _exceed(self, identifier: str, what: str) -> bool:
        """Fail, or proceed with the next round. Returns whether there was one."""
        combiners = self._combiners(identifier)
        if self._waits[identifier].when_exceeded is WhenExceeded.FAIL:
            raise JobError(f"{self._owner}: the barrier {identifier!r} {what}. {self._waiting(combiners)}")
        value = combiners[0].proceed()
        if value is None:
            return False
        self._count(BARRIERS_WITHOUT_ALL, 1)
        self.deliver(identifier, value)
        return True

    def _waiting(self, combiners: list[BarrierCombiner]) -> str:
        numbered = list(enumerate(combiners))
        arrived = [(value, n, c) for n, one in numbered for c, value in one.sent().items()]
        missing = [f"channel {c} of input {n}" for n, one in numbered for c in one.missing()]
        value, _, _ = min(arrived)
        blocked = ", ".join(f"channel {c} of input {n} at {at!r}" for at, n, c in arrived)
        return (
            f"It has not received the id {value!r} or a greater one on: {', '.join(missing)}. Blocked: {blocked}. Find "
            f"out why it is not emitted there, allow more, or declare the barrier with when_exceeded='proceed'."
        )

    def _combiners(self, identifier: str) -> list[BarrierCombiner]:
        return [gate.barrier_combiner(identifier) for gate in self.gates]

    def _deadline(self, identifier: str) -> int | None:
        timeout = self._waits[identifier].timeout_ms
        if timeout is None:
            return None
        blocked = [min(one.since.values()) for one in self._combiners(identifier) if one.since]
        return min(blocked) + timeout if blocked else None

    def _process_all(self) -> None:
        self.released = True
        self.process_released()

    def _late(self, records: int) -> None:
        self._count(LATE_BARRIERS, 1)
        if records:
            self._count(LATE_BEHIND_BARRIERS, records)
