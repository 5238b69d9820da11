"""Combining what the channels of one input sent, per identifier (FLIP-467; Flink ``LongWatermarkCombiner`` and kin).

A combiner belongs to one input of one subtask and one identifier. It is told of every arrival and of every
channel that goes inactive (finished, or idle) or active again, and answers with the value to deliver, or None.

* A channel that has sent nothing counts as the neutral value; with wait-for-all, nothing is delivered until
  every active channel has sent a value.
* The first combined value is always delivered, later ones only when they differ. Values may go down.
* An inactive channel is neutral and is not waited for. (Flink keeps its last value for ever.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar

from dsv2.watermark.declaration import (
    BoolWatermarkCombinationFunction,
    NumericWatermarkCombinationFunction,
    WatermarkCombinationFunction,
    WatermarkDeclaration,
)
from dsv2.watermark.event_time import EventTimeCombiner

__all__ = ("AlignedWatermarkCombiner", "Combiner", "WatermarkCombiner", "new_combiner")

V = TypeVar("V", bound=int)

# min(), max(), all() and any() over the values that were sent are the combination with unseen channels neutral.
_FUNCTIONS: dict[WatermarkCombinationFunction, Callable[[Iterable[Any]], Any]] = {
    NumericWatermarkCombinationFunction.MIN: min,
    NumericWatermarkCombinationFunction.MAX: max,
    BoolWatermarkCombinationFunction.AND: all,
    BoolWatermarkCombinationFunction.OR: any,
}


class WatermarkCombiner(Generic[V]):
    """Combines on every arrival."""

    aligned = False

    def __init__(self, declaration: WatermarkDeclaration, channels: int, inactive: Iterable[int] = ()) -> None:
        policy = declaration.combination_policy
        self._function = _FUNCTIONS[policy.combination_function]
        self._wait = policy.combine_wait_for_all_channels
        self._channels = channels
        self._inactive = set(inactive)
        self._values: dict[int, V] = {}
        self._last: V | None = None

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent ``value``; returns what to deliver now, or None."""
        self._values[channel] = value
        return self._combine()

    def deactivate(self, channel: int) -> V | None:
        """``channel`` went idle; returns what its absence releases, or None."""
        self._inactive.add(channel)
        if len(self._inactive) == self._channels:
            return self._last_words()
        return self._combine()

    def end(self, channel: int) -> V | None:
        """``channel`` has ended, maybe while it was idle; returns what its absence releases, or None."""
        return self.deactivate(channel)

    def activate(self, channel: int) -> V | None:
        """An idle ``channel`` is active again; its last value counts once more."""
        self._inactive.discard(channel)
        return self._combine()

    def _combine(self) -> V | None:
        active = [value for channel, value in self._values.items() if channel not in self._inactive]
        if not active or (self._wait and len(active) < self._channels - len(self._inactive)):
            return None
        return self._changed(self._function(active))

    def _last_words(self) -> V | None:
        # Nobody is left to wait for. What was sent but never delivered must not be lost.
        if self._last is not None or not self._values:
            return None
        return self._changed(self._function(self._values.values()))

    def _changed(self, combined: V) -> V | None:
        if combined == self._last:
            return None
        self._last = combined
        return combined

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        return tuple(sorted(self._values.items())), tuple(sorted(self._inactive)), self._last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        values, inactive, self._last = state
        self._values, self._inactive = dict(values), set(inactive)

    def restore_delivered(self, state: tuple[Any, ...]) -> None:
        """Take over from a ``snapshot`` over other channels what was delivered."""
        *_, self._last = state


class AlignedWatermarkCombiner(Generic[V]):
    """Delivers once per round, when every active channel has sent its watermark, with the function applied.

    The caller holds back what follows on a channel from its arrival until the round is delivered.
    (Flink delivers the value that came last, and hangs when a channel finishes.)
    """

    aligned = True

    def __init__(self, declaration: WatermarkDeclaration, channels: int, inactive: Iterable[int] = ()) -> None:
        self._function = _FUNCTIONS[declaration.combination_policy.combination_function]
        self._channels = channels
        self._inactive = set(inactive)
        self._round: dict[int, V] = {}

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent its watermark of this round; returns the round's value when it is complete, or None."""
        self._round[channel] = value
        return self._complete()

    def deactivate(self, channel: int) -> V | None:
        """``channel`` went idle: the round no longer waits for it."""
        self._inactive.add(channel)
        return self._complete()

    def end(self, channel: int) -> V | None:
        """``channel`` has ended, maybe while it was idle; returns what its absence releases, or None."""
        return self.deactivate(channel)

    def activate(self, channel: int) -> V | None:
        """``channel`` is active again: the round waits for it."""
        self._inactive.discard(channel)
        return None

    def _complete(self) -> V | None:
        if not self._round or any(c not in self._round and c not in self._inactive for c in range(self._channels)):
            return None
        combined: V = self._function(self._round.values())
        self._round.clear()
        return combined

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        return tuple(sorted(self._round.items())), tuple(sorted(self._inactive))

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        values, inactive = state
        self._round, self._inactive = dict(values), set(inactive)

    def restore_delivered(self, state: tuple[Any, ...]) -> None:
        """As in the other combiners; a round begins with nothing."""


Combiner: TypeAlias = WatermarkCombiner[int] | AlignedWatermarkCombiner[int] | EventTimeCombiner


def new_combiner(declaration: WatermarkDeclaration, channels: int, inactive: Iterable[int] = ()) -> Combiner:
    """The combiner that ``declaration`` asks for, over ``channels`` channels of which ``inactive`` are so already.

    Not for event time, whose rules no declaration can tell: see ``EventTimeCombiner``.
    """
    if declaration.combination_policy.aligned:
        return AlignedWatermarkCombiner(declaration, channels, inactive)
    return WatermarkCombiner(declaration, channels, inactive)
