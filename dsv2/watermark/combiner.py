"""Combination of the watermarks of the channels of an input (FLIP-467; Flink ``LongWatermarkCombiner``).

There is one combiner for each input of a subtask and each identifier. It receives every value, and every change of a
channel to inactive (idle or ended) or active, and returns the value to deliver, or None. After a delivery,
``following`` returns further values until it returns None.

* A channel without a value is neutral. With wait-for-all, nothing is delivered until every active channel has a value.
* The first combined value is always delivered, later ones only if they differ. Values may decrease.
* The last value of a channel is part of at least one combination, even if the channel is inactive by then. After that
  an inactive channel is neutral, and the combiner does not wait for it. (Flink keeps its last value forever.)
* An inactive channel can only advance the result: a minimum may rise and AND may become true, but a maximum does not
  fall and OR does not become false. ``dsv2.watermark.arrival_combiner`` has the rules of the other combinations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias

from dsv2.base.type_variables import V
from dsv2.watermark.arrival_combiner import LastCombiner, WatermarkCombiner
from dsv2.watermark.barrier_combiner import BarrierCombiner
from dsv2.watermark.combination import Combination, new_combination
from dsv2.watermark.declaration import WatermarkDeclaration
from dsv2.watermark.delivery import DeliverWhen, WatermarkDelivery
from dsv2.watermark.event_time import EventTimeCombiner
from dsv2.watermark.expiry import ExpiringCombiner

_OF_NUMBERS = (int, bool, float)


def combination_of(declaration: WatermarkDeclaration[V], *, across_inputs: bool = False) -> Combination[V]:
    """The combination of the values of ``declaration`` over channels, or over the inputs of an operator."""
    policy = declaration.combination_policy
    function = policy.combination_function
    if across_inputs and policy.across_inputs_function is not None:
        function = policy.across_inputs_function
    return new_combination(declaration.identifier, declaration.value_type, function)


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
    WatermarkCombiner[Any] | ExpiringCombiner[Any] | AlignedWatermarkCombiner[Any] | BarrierCombiner | EventTimeCombiner
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
    of_numbers = (
        declaration.value_type.kind in _OF_NUMBERS
        and combination.is_extremum
        and delivery is WatermarkDelivery.ON_CHANGE
        and lifetime is None
    )
    kind = LastCombiner if combination.takes_last else WatermarkCombiner
    combiner = kind(declaration.identifier, combination, delivery, wait, channels, inactive, of_numbers=of_numbers)
    return combiner if lifetime is None else ExpiringCombiner(combiner, lifetime, now)
