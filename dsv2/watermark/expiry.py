"""Combines values that expire: the value of a channel counts for a limited time after the channel has sent it.

* Sending a value again, even an equal one, is an update: its time begins again.
* An expired value is neutral, as if the channel had never sent one. If the combination of the other channels differs
  from the value delivered last, it is delivered, even if it is a step back. With wait-for-all nothing is delivered
  until every active channel has a value again.
* If no channel has a value, nothing is delivered. The next value is delivered in any case, like the first one.
* The values of idle and ended channels expire as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic

from dsv2.base.type_variables import V
from dsv2.watermark.arrival_combiner import WatermarkCombiner


class ExpiringCombiner(Generic[V]):
    """Adds lifetimes to the values of another combiner.

    Receivers further down must hear of an update that changes nothing, so that their values live on: ``refresh``
    returns the value to send again. Once at each point in time is enough.

    Args:
        inner: The combiner.
        lifetime_ms: How long a value counts, in ms of processing time.
        now: Returns the processing time in ms.
    """

    aligned = False

    def __init__(self, inner: WatermarkCombiner[V], lifetime_ms: int, now: Callable[[], int]) -> None:
        self._inner = inner
        self._lifetime = lifetime_ms
        self._now = now
        self._deadlines: dict[int, int] = {}  # also of channels that have ended since
        self._sent_at: int | None = None  # when a value was last delivered or refreshed
        self._updated = False  # since ``refresh`` was called
        self.repeats = True
        """True if the value delivered last was passed on, so that it is refreshed."""

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent ``value``. Returns the value to deliver, or None."""
        self._deadlines[channel] = self._now() + self._lifetime
        self._updated = True
        return self._noted(self._inner.update(channel, value))

    def refresh(self) -> V | None:
        """The value to send again after an update that has not changed it, or None."""
        updated, self._updated = self._updated, False
        if not updated or not self.repeats or self._sent_at == self._now():
            return None
        return self._noted(self._inner.standing)

    def expire(self, now_ms: int) -> V | None:
        """Forget the values that have expired. Returns the value to deliver, or None."""
        gone = [channel for channel, deadline in self._deadlines.items() if deadline <= now_ms]
        for channel in gone:
            del self._deadlines[channel]
        return self._noted(self._inner.forget(gone, everything=not self._deadlines)) if gone else None

    def next_deadline(self) -> int | None:
        """Return the time at which the next value expires, in ms, or None."""
        return min(self._deadlines.values(), default=None)

    def effective(self, channel: int, values: Sequence[V]) -> Iterator[V]:
        """See ``WatermarkCombiner``. All values arrive at the same time, so the last one sets when it expires."""
        return self._inner.effective(channel, values)

    def deactivate(self, channel: int) -> V | None:
        """``channel`` became idle. Returns the value to deliver, or None."""
        return self._noted(self._inner.deactivate(channel))

    def activate(self, channel: int) -> V | None:
        """An idle ``channel`` became active. Returns the value to deliver, or None."""
        return self._noted(self._inner.activate(channel))

    def end(self, channel: int) -> V | None:
        """``channel`` has ended. Returns the value to deliver, or None."""
        # A value that no combination has included yet stays that of its channel, so that it expires.
        change = self._inner.deactivate if self._inner.is_uncounted(channel) else self._inner.end
        return self._noted(change(channel))

    def following(self) -> V | None:
        """See ``WatermarkCombiner``."""
        return self._inner.following()

    @property
    def combined(self) -> V | None:
        """The value delivered last, or None."""
        return self._inner.combined

    def sent(self) -> Mapping[int, V]:
        """The values of the channels that have not ended."""
        return self._inner.sent()

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values, for ``restore``."""
        return self._inner.snapshot(), tuple(sorted(self._deadlines.items())), self._sent_at, self.repeats

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        inner, deadlines, self._sent_at, self.repeats = state
        self._inner.restore(inner)
        self._deadlines = dict(deadlines)

    def _noted(self, value: V | None) -> V | None:
        if value is not None:
            self._sent_at = self._now()
        return value
