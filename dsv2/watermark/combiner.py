"""Combination of the watermarks of the channels of an input (FLIP-467; Flink ``LongWatermarkCombiner``).

There is one combiner for each input of a subtask and each identifier. It receives every value, and every change of a
channel to inactive (idle or ended) or active, and returns the value to deliver, or None. After a delivery,
``following`` returns further values until it returns None.

* A channel without a value is neutral. With wait-for-all, nothing is delivered until every active channel has a value.
* The first combined value is always delivered, later ones only if they differ. Values may decrease.
* The last value of a channel is part of at least one combination, even if the channel is inactive by then. After that
  an inactive channel is neutral, and the combiner does not wait for it. (Flink keeps its last value forever.)
* An inactive channel can only advance the result: a minimum may rise and AND may become true, but a maximum does not
  fall and OR does not become false. ``dsv2.watermark.general_combiner`` has the rules of the other combinations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import gt, lt
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from dsv2.watermark.combination import Combination, new_combination
from dsv2.watermark.declaration import WatermarkDeclaration
from dsv2.watermark.delivery import DeliverWhen, WatermarkDelivery
from dsv2.watermark.event_time import EventTimeCombiner
from dsv2.watermark.expiring import ExpiringCombiner
from dsv2.watermark.extremum import Extremum
from dsv2.watermark.general_combiner import GeneralCombiner, LastCombiner

__all__ = ("AlignedWatermarkCombiner", "Combiner", "WatermarkCombiner", "combination_of", "new_combiner")

V = TypeVar("V")
N = TypeVar("N", bound=float)

_OF_NUMBERS = (int, bool, float)
_GREATEST = (max, any)


def combination_of(declaration: WatermarkDeclaration[V], *, across_inputs: bool = False) -> Combination[V]:
    """The combination of the values of ``declaration`` over channels, or over the inputs of an operator."""
    policy = declaration.combination_policy
    function = policy.combination_function
    if across_inputs and policy.across_inputs_function is not None:
        function = policy.across_inputs_function
    return new_combination(declaration.identifier, declaration.value_type, function)


class WatermarkCombiner(Generic[N]):
    """Combines numbers to the least or the greatest one, on every arrival."""

    aligned = False

    def __init__(self, combination: Combination[N], wait: bool, channels: int, inactive: Iterable[int]) -> None:
        best: Any = combination.combine
        self._greatest = best in _GREATEST
        self._best: Callable[[Iterable[N]], N] = best
        self._wait = wait
        self._channels = channels
        self._inactive = set(inactive)
        self._values: dict[int, N] = {}  # without those of ended channels
        self._present = self._present_values()
        self._pending: set[int] = set()  # channels whose value is not part of any combination yet
        self._pending_of_ended: list[N] = []  # pending values of ended channels
        self._due = False  # whether a channel has sent a value or become active since the last combination
        self._absent_counted = False  # whether the last delivered value includes values of inactive channels
        self._last: N | None = None

    def update(self, channel: int, value: N) -> N | None:
        """``channel`` sent ``value``. Returns the value to deliver, or None."""
        self._values[channel] = value
        if channel not in self._inactive:
            self._present.put(channel, value)
        self._pending.add(channel)
        self._due = True
        return self._combine()

    def effective(self, channel: int, values: Sequence[N]) -> Iterator[N]:
        """Yield those of ``values`` that must be passed to ``update`` one by one, if ``channel`` sends all at once.

        The others are superseded before they could change anything: they are not delivered, and leave no trace. Each
        value must be passed on before the next one is requested.
        """
        *earlier, last = values
        index, count = 0, len(earlier)
        while index < count:
            if self._is_waiting_without(channel):
                break
            if self._has_no_say(channel):
                reached, better = self._present.value(), gt if self._greatest else lt
                while index < count and not better(earlier[index], reached):
                    index += 1
            if index < count:
                yield earlier[index]
                index += 1
        yield last

    def _is_waiting_without(self, channel: int) -> bool:
        """Whether nothing is delivered before another channel has sent a value."""
        missing = self._channels - len(self._present) - (channel not in self._values)
        return self._wait and not self._inactive and missing > 0

    def _has_no_say(self, channel: int) -> bool:
        """Whether the value of another channel is the combined one, and outdoes that of ``channel``."""
        if self._inactive or self._pending_of_ended or not self._present:
            return False
        own, reached = self._values.get(channel), self._present.value()
        return reached == self._last and own != reached

    def deactivate(self, channel: int) -> N | None:
        """``channel`` became idle. Returns the value to deliver, or None."""
        self._inactive.add(channel)
        self._present.discard(channel)
        return self._combine()

    def activate(self, channel: int) -> N | None:
        """An idle ``channel`` became active, so its last value counts again. Returns the value to deliver, or None."""
        self._inactive.discard(channel)
        if channel in self._values:
            self._present.put(channel, self._values[channel])
        self._due = True
        return self._combine()

    def end(self, channel: int) -> N | None:
        """``channel`` has ended, possibly while idle. Returns the value to deliver, or None."""
        value = self._values.pop(channel, None)
        if value is not None and channel in self._pending:
            self._pending.discard(channel)
            self._pending_of_ended.append(value)
        return self.deactivate(channel)

    def following(self) -> N | None:
        """The value of the active channels alone, if it is greater than a delivery that included inactive ones."""
        if not self._absent_counted:
            return None
        self._absent_counted = False
        return self._risen()

    @property
    def combined(self) -> N | None:
        """The value delivered last, or None."""
        return self._last

    def sent(self) -> Mapping[int, N]:
        """The last values of the channels that have not ended."""
        return self._values

    def _combine(self) -> N | None:
        present = self._present
        if self._wait and len(present) < self._channels - len(self._inactive):
            return None
        if not self._due:
            return self._risen()
        absent = [self._values[channel] for channel in self._pending & self._inactive] if self._inactive else []
        absent += self._pending_of_ended
        if not present and not absent:
            return None
        self._due = False
        self._pending.clear()
        self._pending_of_ended.clear()
        self._absent_counted = bool(absent)
        counted = [*absent, present.value()] if present else absent
        delivered = self._changed(self._best(counted))
        return self.following() if delivered is None else delivered

    def _present_values(self) -> Extremum[N]:
        """The values of the active channels. All combinations are minimums or maximums: AND is one, and so is OR."""
        values = ((channel, value) for channel, value in self._values.items() if channel not in self._inactive)
        return Extremum(self._greatest, values)

    def _risen(self) -> N | None:
        """The combination of the active channels if it is greater than the last one, else None."""
        if not self._present or (self._last is not None and self._present.value() <= self._last):
            return None
        return self._changed(self._present.value())

    def _changed(self, combined: N) -> N | None:
        if combined == self._last:
            return None
        self._last = combined
        return combined

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values, for ``restore``."""
        values = tuple(sorted(self._values.items()))
        inactive, pending = tuple(sorted(self._inactive)), tuple(sorted(self._pending))
        return values, inactive, pending, tuple(sorted(self._pending_of_ended)), self._due, self._last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        values, inactive, pending, ended, self._due, self._last = state
        self._values, self._inactive, self._pending, self._pending_of_ended = (
            dict(values),
            set(inactive),
            set(pending),
            list(ended),
        )
        self._present = self._present_values()


class AlignedWatermarkCombiner(Generic[V]):
    """Delivers one combined value per round, when every active channel has sent its watermark.

    A gate blocks a channel until the round is delivered. The inputs of an operator are not blocked, so values for
    later rounds are buffered here. (Flink delivers the last value that arrived, and hangs when a channel finishes.)
    """

    aligned = True

    def __init__(self, combination: Combination[V], channels: int, inactive: Iterable[int]) -> None:
        self._function = combination.combine
        self._channels = channels
        self._inactive = set(inactive)
        self._rounds: dict[int, deque[V]] = {}  # without empty ones
        self._missing = channels - len(self._inactive)  # active channels without a value

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent the watermark of its next round. Returns the value of the first complete round, or None."""
        if channel not in self._rounds:
            self._rounds[channel] = deque()
            self._missing -= channel not in self._inactive
        self._rounds[channel].append(value)
        return self.following()

    def effective(self, channel: int, values: Sequence[V]) -> Iterator[V]:
        """All of ``values``: each belongs to a round of its own."""
        return iter(values)

    def deactivate(self, channel: int) -> V | None:
        """``channel`` became idle: rounds do not wait for it."""
        if channel not in self._inactive:
            self._inactive.add(channel)
            self._missing -= channel not in self._rounds
        return self.following()

    def activate(self, channel: int) -> V | None:
        """``channel`` became active: rounds wait for it."""
        if channel in self._inactive:
            self._inactive.discard(channel)
            self._missing += channel not in self._rounds
        return None

    def end(self, channel: int) -> V | None:
        """``channel`` has ended, possibly while idle. Returns the value to deliver, or None."""
        return self.deactivate(channel)

    def following(self) -> V | None:
        """The value of the next complete round, or None."""
        if not self._rounds or self._missing:
            return None
        combined = self._function([values.popleft() for values in self._rounds.values()])
        self._rounds = {channel: values for channel, values in self._rounds.items() if values}
        self._missing = self._count_missing()
        return combined

    @property
    def combined(self) -> None:
        """Nothing: a delivered value belongs to a round that is over."""

    def sent(self) -> Mapping[int, V]:
        """The values of the current round, by channel."""
        return {channel: values[0] for channel, values in self._rounds.items()}

    def _count_missing(self) -> int:
        return self._channels - len(self._inactive | self._rounds.keys())

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values, for ``restore``."""
        rounds = tuple((channel, tuple(values)) for channel, values in sorted(self._rounds.items()))
        return rounds, tuple(sorted(self._inactive))

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        rounds, inactive = state
        self._rounds = {channel: deque(values) for channel, values in rounds}
        self._inactive = set(inactive)
        self._missing = self._count_missing()


Combiner: TypeAlias = (
    WatermarkCombiner[Any]
    | ExpiringCombiner[Any]
    | GeneralCombiner[Any]
    | LastCombiner[Any]
    | AlignedWatermarkCombiner[Any]
    | EventTimeCombiner
)


def new_combiner(
    declaration: WatermarkDeclaration,
    channels: int,
    inactive: Iterable[int] = (),
    now: Callable[[], int] = lambda: 0,
    *,
    across_inputs: bool = False,
) -> Combiner:
    """The combiner for ``declaration`` over ``channels`` channels, where those in ``inactive`` start inactive.

    Not for event time, whose rules a declaration cannot express: see ``EventTimeCombiner``.

    Args:
        declaration: The declaration.
        channels: The number of channels.
        inactive: Those that start inactive.
        now: Returns the processing time in ms, for values that expire.
        across_inputs: Whether the channels are the inputs of a two-input function. Their result is forwarded, so a
            predicate of the declaration, which concerns the delivery to functions, does not apply.
    """
    policy = declaration.combination_policy
    combination = combination_of(declaration, across_inputs=across_inputs)
    delivery = policy.delivery
    if across_inputs and isinstance(delivery, DeliverWhen):
        delivery = WatermarkDelivery.ON_CHANGE
    wait = policy.combine_wait_for_all_channels
    if policy.aligned:
        return AlignedWatermarkCombiner(combination, channels, inactive)
    lifetime = declaration.scope.expires_after_ms
    is_number = declaration.value_type.kind in _OF_NUMBERS
    if is_number and combination.is_extremum and delivery is WatermarkDelivery.ON_CHANGE and lifetime is None:
        return WatermarkCombiner(combination, wait, channels, inactive)
    general: GeneralCombiner[Any] | LastCombiner[Any]
    if combination.takes_last:
        general = LastCombiner(declaration.identifier, delivery, inactive)
    else:
        general = GeneralCombiner(declaration.identifier, combination, delivery, wait, channels, inactive)
    return general if lifetime is None else ExpiringCombiner(general, lifetime, now)
