"""Watermarks that expire: what they are by definition, and what must hold for them.

The clock moves before a frame, and values expire after it, so that a value that the frame brings again is in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from dsv2.runtime.exchange.control_log import STATUS, WATERMARK
from tests.proofs.events import Frame, Record
from tests.proofs.invariants import require
from tests.proofs.model import Seen
from tests.proofs.rules import Frozen, Rule, Status
from tests.support import Signal


class _Channel:
    """Attributes:
    value: What it has sent, unless that has expired.
    age: How often the clock has moved since.
    """

    def __init__(self, state: Frozen = ("active", None, 0)) -> None:
        self.status: Status
        self.status, self.value, self.age = state

    def frozen(self) -> Frozen:
        return self.status, self.value, 0 if self.value is None else self.age

    def take(self, element: Signal) -> None:
        if element.kind == WATERMARK:
            self.value, self.age = element.value, 0
        elif element.kind == STATUS:
            self.status = "idle" if element.value else "active"
        else:
            self.status = "ended"


class ExpiringFacts:
    """The channels of one input, whose values count for some moves of the clock."""

    def __init__(self, rule: Rule, lifetime: int, channels: int, state: Frozen | None = None) -> None:
        """``lifetime``: for how many moves of the clock a value counts."""
        of_channels, self._last, self._ended = state or ((_Channel().frozen(),) * channels, None, False)
        self._channels = [_Channel(one) for one in of_channels]
        self._rule = rule
        self._lifetime = lifetime
        self._sender = 0
        self._unseen: list[Any] = []
        self._expires = False  # at the end of this step
        self._has_expired = False

    def frozen(self) -> Frozen:
        """The state."""
        return tuple(one.frozen() for one in self._channels), self._last, self._ended

    def status(self, channel: int) -> Status:
        """Of ``channel``."""
        return self._channels[channel].status

    def unseen(self, channel: int) -> int:
        """Nothing is held back."""
        return 0

    def move_clock(self) -> None:
        """The clock moves."""
        self._expires = True
        for one in self._channels:
            one.age += 1

    def sent(self, channel: int, owner: int, frame: Frame) -> list[Any]:
        """``channel``, which has the number ``owner`` in the job, sends a frame. Returns its elements, with records."""
        self._sender = channel
        self._unseen = [
            letter if isinstance(letter, Signal) else Record(owner, number) for number, letter in enumerate(frame)
        ]
        return [*self._unseen]

    def check(self, seen: Sequence[Seen], owners: Sequence[int]) -> bool:
        """Check what the function has seen. Returns whether the job goes on."""
        for what, *rest in seen:
            if what == "record":
                self._on_record(rest[0])
            elif what == "watermark":
                self._on_watermark(rest[1])
            elif what == "end":
                self._ended = True
        for _ in self._later():
            pass
        require(not self._unseen, "records", f"Not seen: {self._unseen}.")
        self._check_progress()
        if all(one.status == "ended" for one in self._channels):
            require(self._ended, "lost", "The end was not seen.")
        return True

    def _on_record(self, record: Record) -> None:
        while self._unseen and self._unseen[0] != record:
            require(isinstance(self._unseen[0], Signal), "records", f"It sees {record} before {self._unseen[0]}.")
            self._channels[self._sender].take(self._unseen.pop(0))
        require(self._unseen, "records", f"It sees {record}, which was not sent.")
        self._unseen.pop(0)

    def _on_watermark(self, value: Any) -> None:
        what = f"It sees {value}, after {self._last}."
        require(self._rule.every or value != self._last, "change", what)
        require(any(self._is_combination(value) for _ in self._later()), "live", what)
        self._last = value

    def _later(self) -> Iterator[None]:
        """Move the cut behind each element up to the next record, and at last behind the end of the values."""
        yield
        while self._unseen and isinstance(self._unseen[0], Signal):
            self._channels[self._sender].take(self._unseen.pop(0))
            yield
        if self._expires and not self._unseen:
            self._expire()
            yield

    def _expire(self) -> None:
        self._expires = False
        for one in self._channels:
            if one.value is not None and one.age >= self._lifetime:
                one.value, self._has_expired = None, True
        if self._has_expired and not self._present():
            self._last = None

    def _present(self) -> list[Any]:
        return [one.value for one in self._channels if one.status == "active" and one.value is not None]

    def _is_waiting(self) -> bool:
        missing = any(one.status == "active" and one.value is None for one in self._channels)
        return self._rule.wait and missing

    def _is_combination(self, value: Any) -> bool:
        present = self._present()
        others = [one.value for one in self._channels if one.status != "active" and one.value is not None]
        if self._is_waiting():
            return False
        for chosen in product((False, True), repeat=len(others)):
            counted = present + [other for other, is_chosen in zip(others, chosen, strict=True) if is_chosen]
            if counted and self._rule.fold.combine(counted) == value:
                return True
        return False

    def _check_progress(self) -> None:
        present = self._present()
        if not present or self._is_waiting():
            return
        now = self._rule.fold.combine(present)
        what = f"The values that count are {present}, but the last one is {self._last}."
        require(self._last is not None and not self._rule.fold.beyond(now, self._last), "progress", what)
        all_active = all(one.status == "active" for one in self._channels)
        require(now == self._last or not (all_active or self._has_expired), "progress", what)
