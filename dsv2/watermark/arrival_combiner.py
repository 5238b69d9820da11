"""Combiners for any type of values and any combination function. Those of numbers have a faster one.

They follow the rules of ``dsv2.watermark.combiner``. What a channel that becomes inactive means depends on the
combination:

* MIN, MAX, UNION, INTERSECTION: the result can only advance. For sets that is a superset, for vectors one with no
  smaller entry.
* SUM, COUNT, quantiles, "at least k channels" and functions of the program: the result of the channels that are left
  is delivered if it differs. If none is left, the last result stays.
* LAST: nothing. The last value stays, whoever has sent it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic

from typing_extensions import TypeVar

from dsv2.errors import JobError
from dsv2.watermark.combination import Combination
from dsv2.watermark.delivery import DeliverWhen, Delivery, WatermarkDelivery

__all__ = ("GeneralCombiner", "LastCombiner")

V = TypeVar("V")


class _Deliveries(Generic[V]):
    """Decides which combined values are delivered, and remembers the last one."""

    def __init__(self, identifier: str, delivery: Delivery[V]) -> None:
        self._identifier = identifier
        self._on_arrival = delivery is WatermarkDelivery.ON_ARRIVAL
        self._when = delivery if isinstance(delivery, DeliverWhen) else None
        self.last: V | None = None

    def pass_on(self, combined: V | None, *, arrived: bool = False) -> V | None:
        """Return ``combined`` if it is delivered, else None. ``arrived``: whether a value has just arrived."""
        if combined is None or (combined == self.last and not (arrived and self._on_arrival)):
            return None
        if self._when is not None and not self._holds(self._when, combined):
            return None
        self.last = combined
        return combined

    def _holds(self, when: DeliverWhen[V], combined: V) -> bool:
        try:
            return bool(when.predicate(combined, self.last))
        except Exception as error:
            raise JobError(
                f"Watermark {self._identifier!r}: {when.value} failed for {combined!r}, after {self.last!r} was "
                f"delivered. {type(error).__name__}: {error}"
            ) from error


class GeneralCombiner(Generic[V]):
    """Combines the values of all channels on every arrival, in the order of their arrival."""

    aligned = False

    def __init__(
        self,
        identifier: str,
        combination: Combination[V],
        delivery: Delivery[V],
        wait: bool,
        channels: int,
        inactive: Iterable[int],
    ) -> None:
        self._combination = combination
        self._deliveries = _Deliveries(identifier, delivery)
        self._wait = wait
        self._channels = channels
        self._inactive = set(inactive)
        self._values: dict[int, V] = {}  # by arrival, without those of ended channels
        self._pending: set[int] = set()  # channels whose value is not part of any combination yet
        self._pending_of_ended: list[V] = []
        self._due = False  # whether a channel has sent a value or become active since the last combination
        self._absent_counted = False  # whether the last delivered value includes values of inactive channels

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent ``value``. Returns the value to deliver, or None."""
        self._values.pop(channel, None)
        self._values[channel] = value
        self._pending.add(channel)
        self._due = True
        return self._combine(arrived=True)

    def effective(self, channel: int, values: Sequence[V]) -> Iterator[V]:
        """All of ``values``: each may change the result."""
        return iter(values)

    def deactivate(self, channel: int) -> V | None:
        """``channel`` became idle. Returns the value to deliver, or None."""
        self._inactive.add(channel)
        return self._combine()

    def activate(self, channel: int) -> V | None:
        """An idle ``channel`` became active, so its last value counts again. Returns the value to deliver, or None."""
        self._inactive.discard(channel)
        self._due = True
        return self._combine()

    def end(self, channel: int) -> V | None:
        """``channel`` has ended, possibly while idle. Returns the value to deliver, or None."""
        value = self._values.pop(channel, None)
        if value is not None and channel in self._pending:
            self._pending.discard(channel)
            self._pending_of_ended.append(value)
        return self.deactivate(channel)

    def is_uncounted(self, channel: int) -> bool:
        """Whether the value of ``channel`` is not part of any combination yet."""
        return channel in self._pending

    def following(self) -> V | None:
        """The result of the active channels alone, after a delivery that included inactive ones. Or None."""
        if not self._absent_counted:
            return None
        self._absent_counted = False
        return self._of_those_left()

    @property
    def combined(self) -> V | None:
        """The value delivered last, or None."""
        return self._deliveries.last

    def sent(self) -> Mapping[int, V]:
        """The last values of the channels that have not ended."""
        return self._values

    def forget(self, channels: Collection[int], *, everything: bool = False) -> V | None:
        """The values of ``channels`` have expired. Returns the value to deliver, which may be a step back, or None.

        ``everything``: Whether no other values are left, also none of channels that have ended.
        """
        if everything:
            self._pending_of_ended.clear()
        self._values = {channel: value for channel, value in self._values.items() if channel not in channels}
        self._pending.difference_update(channels)
        if not self._present():
            self._deliveries.last = None  # so that the next value is delivered, whatever it is
        return self._deliveries.pass_on(self._current())

    @property
    def standing(self) -> V | None:
        """The value delivered last if it is still the combination of the active channels, else None."""
        current = self._current()
        return current if current == self._deliveries.last else None

    def _present(self) -> list[V]:
        return [value for channel, value in self._values.items() if channel not in self._inactive]

    def _current(self) -> V | None:
        """The combination of the active channels. None: there is none, or one that is waited for has no value."""
        present = self._present()
        waits = self._wait and len(present) < self._channels - len(self._inactive)
        return self._combination.combine(present) if present and not waits else None

    def _combine(self, *, arrived: bool = False) -> V | None:
        present = self._present()
        if self._wait and len(present) < self._channels - len(self._inactive):
            return None
        if not self._due:
            return self._of_those_left()
        absent = [value for channel, value in self._values.items() if channel in self._pending & self._inactive]
        counted = [*self._pending_of_ended, *absent, *present]
        if not counted:
            return None
        self._absent_counted = len(counted) > len(present)
        self._due = False
        self._pending.clear()
        self._pending_of_ended.clear()
        delivered = self._deliveries.pass_on(self._combination.combine(counted), arrived=arrived)
        return self.following() if delivered is None else delivered

    def _of_those_left(self) -> V | None:
        present = self._present()
        combined = self._combination.combine(present) if present else None
        if combined is None or not self._combination.follows(combined, self._deliveries.last):
            return None
        return self._deliveries.pass_on(combined)

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values and values of the watermark, for ``restore``."""
        inactive, pending = tuple(sorted(self._inactive)), tuple(sorted(self._pending))
        last = self._deliveries.last
        return tuple(self._values.items()), inactive, pending, tuple(self._pending_of_ended), self._due, last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        values, inactive, pending, ended, self._due, self._deliveries.last = state
        self._values, self._inactive, self._pending = dict(values), set(inactive), set(pending)
        self._pending_of_ended = list(ended)


class LastCombiner(Generic[V]):
    """Delivers the value that arrived last, from whichever channel. Inactive channels change nothing."""

    aligned = False

    def __init__(self, identifier: str, delivery: Delivery[V], inactive: Iterable[int]) -> None:
        self._deliveries = _Deliveries(identifier, delivery)
        self._inactive = set(inactive)
        self._values: dict[int, V] = {}  # by arrival

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent ``value``. Returns it if it is delivered, else None."""
        self._values.pop(channel, None)
        self._values[channel] = value
        return self._deliveries.pass_on(value, arrived=True)

    def forget(self, channels: Collection[int], *, everything: bool = False) -> V | None:
        """The values of ``channels`` have expired. Returns the last one of the others if it is delivered, or None."""
        self._values = {channel: value for channel, value in self._values.items() if channel not in channels}
        if self.standing is None:
            self._deliveries.last = None
        return self._deliveries.pass_on(self.standing)

    @property
    def standing(self) -> V | None:
        """The last one of the values that count, or None."""
        return next(reversed(self._values.values()), None)

    def effective(self, channel: int, values: Sequence[V]) -> Iterator[V]:
        """All of ``values``: each may be delivered."""
        return iter(values)

    def deactivate(self, channel: int) -> None:
        """``channel`` became idle."""
        self._inactive.add(channel)

    def activate(self, channel: int) -> None:
        """An idle ``channel`` became active."""
        self._inactive.discard(channel)

    def end(self, channel: int) -> None:
        """``channel`` has ended."""
        self._values.pop(channel, None)
        self._inactive.add(channel)

    def is_uncounted(self, channel: int) -> bool:
        """Never: every value is delivered by itself."""
        return False

    def following(self) -> None:
        """Nothing follows a delivery."""

    @property
    def combined(self) -> V | None:
        """The value delivered last, or None."""
        return self._deliveries.last

    def sent(self) -> Mapping[int, V]:
        """The last values of the channels that have not ended."""
        return self._values

    def snapshot(self) -> tuple[Any, ...]:
        """The state in the form of ``GeneralCombiner.snapshot``."""
        return tuple(self._values.items()), tuple(sorted(self._inactive)), (), (), False, self._deliveries.last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        values, inactive, _, _, _, self._deliveries.last = state
        self._values, self._inactive = dict(values), set(inactive)
