"""Invariants of barriers, by what channels have sent and the function has seen: nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

from dsv2.runtime.exchange.barrier_rounds import BARRIERS_WITHOUT_ALL, LATE_BARRIERS, LATE_BEHIND_BARRIERS
from dsv2.runtime.exchange.control_log import STATUS, WATERMARK
from tests.proofs.barrier_model import Limits
from tests.proofs.events import Record
from tests.proofs.invariants import require
from tests.proofs.model import Seen
from tests.proofs.rules import Frozen, Status
from tests.proofs.sent import SentByChannels
from tests.support import Signal


class _Channel:
    """Attributes:
    unseen: What lies behind the cut.
    last: The last id before the cut, or None.
    behind: The number of records seen since a barrier was delivered that the channel had not reached. None: none was.
    age: How often the clock has moved since an id blocks the channel. None: none has blocked it so far.
    """

    def __init__(self, state: Frozen = ((), "active", None, None, None)) -> None:
        unseen, self.status, self.last, self.behind, self.age = state
        self.unseen: list[Any] = list(unseen)

    def frozen(self) -> Frozen:
        return tuple(self.unseen), self.status, self.last, self.behind, self.age

    def next_id(self) -> int | None:
        """The id that is next, if the next element is one."""
        is_id = self.unseen and isinstance(self.unseen[0], Signal) and self.unseen[0].kind == WATERMARK
        return self.unseen[0].value if is_id else None

    def is_late(self, completed: int | None) -> bool:
        """Return whether the next element that is not a status is an id that was delivered."""
        for one in self.unseen:
            if not isinstance(one, Signal) or one.kind != STATUS:
                is_id = isinstance(one, Signal) and one.kind == WATERMARK
                return is_id and completed is not None and one.value <= completed
        return False

    def take_status(self) -> bool:
        """Move the cut behind a change of the status or an end, if it is next."""
        if not self.unseen or not isinstance(self.unseen[0], Signal) or self.unseen[0].kind == WATERMARK:
            return False
        element = self.unseen.pop(0)
        idle_or_not: Status = "idle" if element.value else "active"
        self.status = idle_or_not if element.kind == STATUS else "ended"
        return True

    def later(self) -> Iterator[_Channel]:
        """This channel, cut at every place before the next record or id."""
        one = _Channel(self.frozen())
        takes = True
        while takes:
            yield one
            one = _Channel(one.frozen())
            takes = one.take_status()


class BarrierFacts(SentByChannels[_Channel]):
    """The channels of all inputs, which a barrier cuts at one point."""

    def __init__(self, channels: int, limits: Limits, state: Frozen | None = None) -> None:
        of_channels, self._completed, self._ended = state or ((_Channel().frozen(),) * channels, None, False)
        super().__init__([_Channel(one) for one in of_channels])
        self._limits = limits
        self._counts: dict[str, int] = {}
        self._late = [0, 0]  # barriers that are late whatever the order of channels, and records before them
        self._maybe_late = [0, 0]
        self._delivered: set[int] = set()
        self._forced = 0
        self._held = 0

    def frozen(self) -> Frozen:
        """The state."""
        return tuple(one.frozen() for one in self._channels), self._completed, self._ended

    def move_clock(self) -> None:
        """The clock moves."""
        for one in self._channels:
            one.age = None if one.age is None else one.age + 1

    def check(self, seen: Sequence[Seen], owners: Sequence[int]) -> bool:
        """Check what the function has seen since ``sent``. Returns whether the job goes on."""
        self._counts = {name: amount for what, *rest in seen if what == "count" for name, amount in [rest]}
        self._held = sum(isinstance(element, Record) for one in self._channels for element in one.unseen)
        for what, *rest in seen:
            match what:
                case "record":
                    self._on_record(rest[0], owners)
                case "watermark":
                    self._on_barrier(rest[1])
                case "end":
                    self._ended = True
                case "disorder":
                    require(any(map(_is_disordered, self._channels)), "order", "The job fails, but all ids increase.")
                    return False
                case "exceeded":
                    may_fail = self._is_exceeded() and not self._limits.proceeds
                    require(may_fail, "limit", "The job fails, but nothing has waited for too long.")
                    return False
        self._settle()
        return True

    def _on_record(self, record: Record, owners: Sequence[int]) -> None:
        channel = self._channels[owners.index(record.channel)]
        while self._passes(channel):
            pass
        first = channel.unseen[0] if channel.unseen else "nothing"
        require(first == record, "part", f"It sees {record}, but {first} is next in its channel.")
        channel.unseen.pop(0)
        if channel.behind is not None:
            channel.behind += 1

    def _passes(self, channel: _Channel) -> bool:
        """Move the cut behind the next element, if it is neither a record nor blocks the channel."""
        value = channel.next_id()
        if value is None:
            return channel.take_status()
        if self._completed is None or value > self._completed:
            return False
        require(channel.last is None or value > channel.last, "order", f"{value} after {channel.last} is accepted.")
        # If the round of this id was completed just now, an inactive channel may have been part of it.
        counts = self._maybe_late if value in self._delivered else self._late
        counts[0] += 1
        counts[1] += channel.behind or 0
        channel.last, channel.behind = value, 0 if value < self._completed else None
        channel.unseen.pop(0)
        return True

    def _on_barrier(self, value: int) -> None:
        what = f"It sees {value}, after {self._completed}."
        require(self._completed is None or value > self._completed, "order", what)
        may_be_forced = self._is_exceeded() and self._forced < self._counts.get(BARRIERS_WITHOUT_ALL, 0)
        is_forced = may_be_forced and self._cut(lambda channels: _is_least(value, channels))
        self._forced += is_forced
        require(is_forced or self._completes(value), "part", what)
        for one in self._channels:
            own = one.next_id()
            if own == value and (one.age is not None or (one.status == "active" and not is_forced)):
                one.unseen.pop(0)
                one.last, one.age, one.behind = value, None, None
            elif own is not None and own > value:
                one.behind = None
            elif one.last is None or one.last < value:
                one.behind = one.behind or 0
        self._completed = value
        self._delivered.add(value)

    def _completes(self, value: int) -> bool:
        """Return whether the round of ``value`` is complete, possibly behind ids that are late."""
        if self._cut(lambda channels: _is_complete(value, channels)):
            return True
        passing = [one for one in self._channels if one.next_id() in self._delivered and self._passes(one)]
        if passing and self._cut(lambda channels: _is_complete(value, channels)):
            return True
        for one in self._channels:
            while one.is_late(self._completed) and self._passes(one):
                pass
        return self._cut(lambda channels: _is_complete(value, channels))

    def _is_exceeded(self) -> bool:
        """Return whether a barrier waits for longer than it may, or has held more records than it may in this step."""
        ages = [one.age for one in self._channels if one.age is not None]
        ticks, records = self._limits.ticks, self._limits.records
        return bool(
            (ticks is not None and max(ages, default=-1) >= ticks) or (records is not None and self._held > records)
        )

    def _cut(self, is_acceptable: Callable[[Sequence[_Channel]], bool]) -> bool:
        """Move the cut as little as possible, so that it is acceptable. Returns whether that is possible."""
        if is_acceptable(self._channels):
            return True
        choices = [list(enumerate(one.later())) for one in self._channels]
        for choice in sorted(product(*choices), key=lambda choice: sum(taken for taken, _ in choice)):
            channels = [channel for _, channel in choice]
            if is_acceptable(channels):
                self._channels = channels
                return True
        return False

    def _settle(self) -> None:
        """Everything that was sent has been processed, except for what is behind an id that is not complete."""
        for one in self._channels:
            while self._passes(one):
                pass
            value = one.next_id()
            require(value is not None or not one.unseen, "part", f"Not seen: {one.unseen}.")
            if value is not None:
                require(one.last is None or value > one.last, "order", f"{value} after {one.last} is accepted.")
                one.age, one.behind = one.age or 0, None
            one.behind = None if one.status == "ended" else one.behind
        blocked = [one for one in self._channels if one.age is not None]
        missing = [one for one in self._channels if one.age is None and one.status == "active"]
        require(missing or not blocked, "blocked", "Every active channel is blocked by a barrier.")
        self._held = sum(isinstance(element, Record) for one in blocked for element in one.unseen)
        require(not self._is_exceeded(), "limit", "It waits for longer than it may, or holds more records.")
        self._check_counts()
        if all(one.status == "ended" for one in self._channels):
            require(self._ended, "lost", "The end was not seen.")

    def _check_counts(self) -> None:
        for name, least, more in zip((LATE_BARRIERS, LATE_BEHIND_BARRIERS), self._late, self._maybe_late, strict=True):
            counted = self._counts.get(name, 0)
            require(least <= counted <= least + more, "late", f"{name}: {counted} instead of {least}.")


def _is_complete(value: int, channels: Sequence[_Channel]) -> bool:
    """Return whether every active channel has sent ``value`` or a greater id, and all before it was seen."""
    if any(one.status == "active" and one.next_id() is None for one in channels):
        return False
    waiting = [own for one in channels if (one.age is not None or one.status == "active") and (own := one.next_id())]
    arrived = [own for one in channels if (own := one.next_id())]
    return value in arrived and min(waiting, default=value) >= value


def _is_least(value: int, channels: Sequence[_Channel]) -> bool:
    """Return whether ``value`` is the least id that blocks a channel."""
    waiting = [own for one in channels if one.age is not None and (own := one.next_id())]
    arrived = [own for one in channels if (own := one.next_id())]
    return value in arrived and min(waiting, default=value) >= value


def _is_disordered(channel: _Channel) -> bool:
    """Return whether the ids of a channel that are not before the cut do not increase."""
    ids = [channel.last] if channel.last is not None else []
    ids += [one.value for one in channel.unseen if isinstance(one, Signal) and one.kind == WATERMARK]
    return any(after <= before for before, after in pairwise(ids))
