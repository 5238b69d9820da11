"""Combination of barriers: a round for an id is complete when every active channel has sent this id or a greater one.

* The combiners of all inputs of an operator form a group, because a barrier cuts all of them at one point.
* A channel that sends a greater id has passed the smaller ones, and stays blocked until its own id is complete.
* Each id is delivered once, in order. An id that is complete already is not delivered again, and blocks nothing. It
  comes from a channel that was inactive, is new, or was not waited for. What it has sent in the meantime is late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


class BarrierOrderError(Exception):
    """A channel sent an id that is not greater than the one before."""

    def __init__(self, channel: int, before: Any, value: Any) -> None:
        super().__init__(f"channel {channel} sent {value!r} after {before!r}")
        self.channel = channel
        self.before = before
        self.value = value


class BarrierCombiner:
    """The barriers of one identifier on the channels of one input.

    Attributes:
        late: Called with the number of late records when the barrier behind them arrives.
    """

    aligned = True

    def __init__(
        self,
        channels: int,
        inactive: Iterable[int] = (),
        group: Callable[[], Sequence[BarrierCombiner]] | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        late: Callable[[int], None] = lambda records: None,
    ) -> None:
        """``group`` returns the combiners of all inputs, this one included. None: there is one input."""
        self.late = late
        self._channels = channels
        self._group = (lambda: (self,)) if group is None else group
        self._now_ms = now_ms
        self._inactive = set(inactive)
        self._completed: Any = None
        self._last: dict[int, Any] = {}  # the last id of each channel
        self._pending: dict[int, Any] = {}  # those that are not complete
        self._since: dict[int, int] = {}  # when they arrived
        self._behind: dict[int, int] = {}  # channels that have not sent a complete id -> records since then
        self._missing = self._count_missing()

    def update(self, channel: int, value: Any) -> Any:
        """``channel`` sent the id ``value``. Returns the id that is complete, or None.

        Raises:
            BarrierOrderError: ``value`` is not greater than the id before.
        """
        before = self._last.get(channel)
        if before is not None and value <= before:
            raise BarrierOrderError(channel, before, value)
        self._last[channel] = value
        records = self._behind.pop(channel, 0)
        if self._completed is not None and value <= self._completed:
            if value < self._completed:
                self._behind[channel] = 0
            self.late(records)
            return None
        self._missing -= channel not in self._inactive and channel not in self._pending
        self._pending[channel] = value
        self._since[channel] = self._now_ms()
        return self.following()

    def effective(self, channel: int, values: Sequence[Any]) -> Iterator[Any]:
        """All of ``values``: each is a round of its own."""
        return iter(values)

    def deactivate(self, channel: int) -> Any:
        """``channel`` became idle: rounds do not wait for it. Returns the id that is complete, or None."""
        if channel not in self._inactive:
            self._inactive.add(channel)
            self._missing -= channel not in self._pending
        return self.following()

    def activate(self, channel: int) -> None:
        """``channel`` became active: rounds wait for it."""
        if channel in self._inactive:
            self._inactive.discard(channel)
            self._missing += channel not in self._pending

    def end(self, channel: int) -> Any:
        """``channel`` has ended, possibly while idle. Returns the id that is complete, or None."""
        self._behind.pop(channel, None)
        return self.deactivate(channel)

    def following(self) -> Any:
        """Complete the next round, if every active channel of the group has sent its id. Returns the id, or None."""
        return None if any(one._missing for one in self._group()) else self.proceed()

    def proceed(self) -> Any:
        """Complete the next round without the channels that are missing. Returns the id; None if there is no round."""
        group = self._group()
        value = min((value for one in group for value in one._pending.values()), default=None)
        if value is not None:
            for one in group:
                one._complete(value)
        return value

    @property
    def combined(self) -> Any:
        """The id that was completed last, or None."""
        return self._completed

    @property
    def behind(self) -> Iterable[int]:
        """Channels whose records may be late."""
        return self._behind.keys()

    @property
    def since(self) -> Mapping[int, int]:
        """The time at which each blocked channel was blocked, in ms."""
        return self._since

    def sent(self) -> Mapping[int, Any]:
        """The ids of the channels that are blocked."""
        return self._pending

    def missing(self) -> list[int]:
        """The active channels that the next round waits for."""
        return [c for c in range(self._channels) if c not in self._pending and c not in self._inactive]

    def count_behind(self, channel: int, records: int) -> None:
        """Count records of a channel that has not sent a complete id."""
        if channel in self._behind:
            self._behind[channel] += records

    def _complete(self, value: Any) -> None:
        self._completed = value
        for channel in [channel for channel, sent in self._pending.items() if sent <= value]:
            del self._pending[channel], self._since[channel]
        for channel in range(self._channels):
            if channel not in self._pending and (channel not in self._last or self._last[channel] < value):
                self._behind.setdefault(channel, 0)
        self._missing = self._count_missing()

    def _count_missing(self) -> int:
        return self._channels - len(self._inactive | self._pending.keys())

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values, for ``restore``. The last one, since when a round is open, is for rescaling."""
        parts = (tuple(sorted(part.items())) for part in (self._last, self._since, self._behind))
        open_since = min((time for one in self._group() for time in one._since.values()), default=None)
        return self._completed, *parts, tuple(sorted(self._inactive)), open_since

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        self._completed, last, since, behind, inactive, _ = state
        self._last, self._since, self._behind = dict(last), dict(since), dict(behind)
        self._pending = {channel: self._last[channel] for channel in self._since}
        self._inactive = set(inactive)
        self._missing = self._count_missing()
