"""Combiners that deliver a value on every arrival that changes it, for any type of values and any combination function.

They follow the rules of ``dsv2.watermark.combiner``. What a channel that becomes inactive means depends on the
combination:

* MIN, MAX, AND, OR, UNION, INTERSECTION: the result can only advance. For sets that is a superset, for vectors one with
  no smaller entry.
* SUM, COUNT, quantiles, "at least k channels" and functions of the program: the result of the channels that are left
  is delivered if it differs. If none is left, the last result stays.
* LAST: nothing. The last value stays, whoever has sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import gt, lt
from typing import Any, Generic

from dsv2.base.type_variables import V
from dsv2.errors import JobError
from dsv2.watermark.combination import Combination
from dsv2.watermark.delivery import DeliverWhen, Delivery, WatermarkDelivery
from dsv2.watermark.extremum import Extremum


class Deliveries(Generic[V]):
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


class ArrivedValues(Generic[V]):
    """The last values of a set of channels in the order of their arrival. The interface is that of ``Extremum``."""

    def __init__(self, combine: Callable[[Sequence[V]], V | None], values: Iterable[tuple[int, V]]) -> None:
        self._combine = combine
        self._values = dict(values)

    def __len__(self) -> int:
        return len(self._values)

    def put(self, channel: int, value: V) -> None:
        """Set the value of ``channel``, which may be a new one."""
        self._values.pop(channel, None)
        self._values[channel] = value

    def discard(self, channel: int) -> None:
        """Remove the value of ``channel`` if it has one."""
        self._values.pop(channel, None)

    def value(self, others: Sequence[V] = ()) -> V | None:
        """Return the combination of ``others`` and the values. There must be one."""
        return self._combine([*others, *self._values.values()])


class WatermarkCombiner(Generic[V]):
    """Combines the last values of all channels on every arrival.

    Args:
        identifier: The identifier of the watermark.
        combination: The combination.
        delivery: Which results are delivered.
        wait: Whether nothing is delivered until every active channel has a value.
        channels: The number of channels.
        inactive: Those that start inactive.
        of_numbers: Whether the result is the least or the greatest of numbers, and delivered if it differs. Then
            arrivals cost little, and those that change nothing are skipped. AND is a minimum, and OR is a maximum.
    """

    aligned = False

    def __init__(
        self,
        identifier: str,
        combination: Combination[V],
        delivery: Delivery[V],
        wait: bool,
        channels: int,
        inactive: Iterable[int],
        *,
        of_numbers: bool = False,
    ) -> None:
        self._combination = combination
        self._deliveries = Deliveries(identifier, delivery)
        self._wait = wait
        self._channels = channels
        self._inactive = set(inactive)
        self._of_numbers = of_numbers
        self._values: dict[int, V] = {}  # without those of ended channels; by arrival, unless they are numbers
        self._present = self._present_values()
        self._pending: set[int] = set()  # channels whose value is not part of any combination yet
        self._pending_of_ended: list[V] = []  # pending values of ended channels
        self._due = False  # whether a channel has sent a value or become active since the last combination
        self._absent_counted = False  # whether the last delivered value includes values of inactive channels

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent ``value``. Returns the value to deliver, or None."""
        if not self._of_numbers:
            self._values.pop(channel, None)
        self._values[channel] = value
        if channel not in self._inactive:
            self._present.put(channel, value)
        self._pending.add(channel)
        self._due = True
        return self._combine(arrived=True)

    def effective(self, channel: int, values: Sequence[V]) -> Iterator[V]:
        """Yield those of ``values`` that must be passed to ``update`` one by one, if ``channel`` sends all at once.

        The others are superseded before they could change anything: they are not delivered, and leave no trace. Each
        value must be passed on before the next one is requested.
        """
        if not self._of_numbers:
            yield from values
            return
        *earlier, last = values
        index, count = 0, len(earlier)
        better: Callable[[Any, Any], bool] = gt if self._combination.is_greatest else lt
        while index < count:
            if self._is_waiting_without(channel):
                break
            if self._cannot_change_result(channel):
                reached = self._present.value()
                while index < count and not better(earlier[index], reached):
                    index += 1
            if index < count:
                yield earlier[index]
                index += 1
        yield last

    def _is_waiting_without(self, channel: int) -> bool:
        """Return whether nothing is delivered before another channel has sent a value."""
        missing = self._channels - len(self._present) - (channel not in self._values)
        return self._wait and not self._inactive and missing > 0

    def _cannot_change_result(self, channel: int) -> bool:
        """Return whether the value of another channel is the combined one, and outdoes that of ``channel``."""
        if self._inactive or self._pending_of_ended or not self._present:
            return False
        own, reached = self._values.get(channel), self._present.value()
        return reached == self._deliveries.last and own != reached

    def deactivate(self, channel: int) -> V | None:
        """``channel`` became idle. Returns the value to deliver, or None."""
        self._inactive.add(channel)
        self._present.discard(channel)
        return self._combine()

    def activate(self, channel: int) -> V | None:
        """An idle ``channel`` became active, so its last value counts again. Returns the value to deliver, or None."""
        self._inactive.discard(channel)
        if not self._of_numbers:
            self._present = self._present_values()  # in the order of arrival
        elif channel in self._values:
            self._present.put(channel, self._values[channel])
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
        """Return whether the value of ``channel`` is not part of any combination yet."""
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
        self._present = self._present_values()
        self._pending.difference_update(channels)
        if not self._present:
            self._deliveries.last = None  # so that the next value is delivered, whatever it is
        return self._deliveries.pass_on(self._current())

    @property
    def standing(self) -> V | None:
        """The value delivered last if it is still the combination of the active channels, else None."""
        current = self._current()
        return current if current == self._deliveries.last else None

    @property
    def _is_waiting(self) -> bool:
        """True if an active channel has no value, and is waited for."""
        return self._wait and len(self._present) < self._channels - len(self._inactive)

    def _present_values(self) -> ArrivedValues[V] | Extremum[Any]:
        """The values of the active channels."""
        values = ((channel, value) for channel, value in self._values.items() if channel not in self._inactive)
        if self._of_numbers:
            return Extremum[Any](self._combination.is_greatest, values)
        return ArrivedValues(self._combination.combine, values)

    def _current(self) -> V | None:
        """The combination of the active channels. None: there is none, or one that is waited for has no value."""
        return self._present.value() if self._present and not self._is_waiting else None

    def _combine(self, *, arrived: bool = False) -> V | None:
        if self._is_waiting:
            return None
        if not self._due:
            return self._of_those_left()
        absent = self._pending_of_ended
        if self._inactive:
            uncounted = self._pending & self._inactive
            absent = [*absent, *(value for channel, value in self._values.items() if channel in uncounted)]
        if not self._present and not absent:
            return None
        self._absent_counted = bool(absent)
        self._due = False
        self._pending.clear()
        self._pending_of_ended = []
        delivered = self._deliveries.pass_on(self._present.value(absent), arrived=arrived)
        return self.following() if delivered is None else delivered

    def _of_those_left(self) -> V | None:
        combined = self._present.value() if self._present else None
        if combined is None or not self._combination.follows(combined, self._deliveries.last):
            return None
        return self._deliveries.pass_on(combined)

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values and values of the watermark, for ``restore``."""
        values: Iterable[tuple[int, Any]] = self._values.items()
        ended: Iterable[Any] = self._pending_of_ended
        if self._of_numbers:  # their order has no meaning
            values, ended = sorted(values), sorted(ended)
        inactive, pending = tuple(sorted(self._inactive)), tuple(sorted(self._pending))
        return tuple(values), inactive, pending, tuple(ended), self._due, self._deliveries.last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        values, inactive, pending, ended, self._due, self._deliveries.last = state
        self._values, self._inactive, self._pending = dict(values), set(inactive), set(pending)
        self._pending_of_ended = list(ended)
        self._present = self._present_values()


class LastCombiner(WatermarkCombiner[V]):
    """Delivers the value that arrived last, from whichever channel. Inactive channels change nothing."""

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

    def _combine(self, *, arrived: bool = False) -> V | None:
        self._pending.clear()
        self._due = False
        return self._deliveries.pass_on(self.standing, arrived=True) if arrived else None
