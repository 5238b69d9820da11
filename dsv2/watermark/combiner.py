"""Combining what the channels of one input sent, per identifier (FLIP-467; Flink ``LongWatermarkCombiner`` and kin).

A combiner belongs to one input of one subtask and one identifier. It is given every arrival and every channel that
becomes inactive (ended, or idle) or active again, and returns the value to deliver, or None. After a value has been
delivered, ``following`` returns another one, as long as there is any.

* A channel that has sent nothing counts as the neutral value; with wait-for-all, nothing is delivered until
  every active channel has sent a value.
* The first combined value is always delivered, later ones only when they differ. Values may go down.
* The last value of a channel takes part in at least one combination, even if the channel has ended by then or is idle.
  After that an inactive channel is neutral, and it is not waited for. (Flink keeps its last value forever.)
* The absence of a channel only lets the others go on: a minimum rises and AND becomes true, but a maximum does not fall
  and OR does not become false because a channel has gone.
"""

from __future__ import annotations

from collections import deque
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
        self._pending: set[int] = set()  # channels whose value has taken part in no combination yet
        self._owed: list[V] = []  # such values of channels that are gone for good
        self._due = False  # whether a channel has sent a value, or come back, since the last combination
        self._absent_counted = False  # whether channels that are gone took part in what was delivered just now
        self._last: V | None = None

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent ``value``; returns what to deliver now, or None."""
        self._values[channel] = value
        self._pending.add(channel)
        self._due = True
        return self._combine()

    def deactivate(self, channel: int) -> V | None:
        """``channel`` went idle; returns what its absence releases, or None."""
        self._inactive.add(channel)
        return self._combine()

    def activate(self, channel: int) -> V | None:
        """An idle ``channel`` is active again; its last value counts once more."""
        self._inactive.discard(channel)
        self._due = True
        return self._combine()

    def end(self, channel: int) -> V | None:
        """``channel`` has ended, maybe while it was idle; returns what its absence releases, or None."""
        value = self._values.pop(channel, None)
        if value is not None and channel in self._pending:
            self._pending.discard(channel)
            self._owed.append(value)
        return self.deactivate(channel)

    def following(self) -> V | None:
        """What the active channels give without those that are gone, if these counted just now and it is more."""
        if not self._absent_counted:
            return None
        self._absent_counted = False
        return self._risen(self._present())

    def _combine(self) -> V | None:
        present = self._present()
        if self._wait and len(present) < self._channels - len(self._inactive):
            return None
        if not self._due:
            return self._risen(present)
        absent = [self._values[channel] for channel in self._pending & self._inactive] if self._inactive else []
        absent += self._owed
        if not present and not absent:
            return None
        self._due = False
        self._pending.clear()
        self._owed.clear()
        self._absent_counted = bool(absent)
        delivered = self._changed(self._function(present + absent))
        return self.following() if delivered is None else delivered

    def _present(self) -> list[V]:
        if not self._inactive:
            return list(self._values.values())
        return [value for channel, value in self._values.items() if channel not in self._inactive]

    def _risen(self, present: list[V]) -> V | None:
        """The absence of a channel lets a minimum rise, but no maximum fall."""
        if not present or (self._last is not None and self._function(present) <= self._last):
            return None
        return self._changed(self._function(present))

    def _changed(self, combined: V) -> V | None:
        if combined == self._last:
            return None
        self._last = combined
        return combined

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        values = tuple(sorted(self._values.items()))
        inactive, pending = tuple(sorted(self._inactive)), tuple(sorted(self._pending))
        return values, inactive, pending, tuple(sorted(self._owed)), self._due, self._last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        values, inactive, pending, owed, self._due, self._last = state
        self._values, self._inactive, self._pending, self._owed = dict(values), set(inactive), set(pending), list(owed)

    def restore_delivered(self, state: tuple[Any, ...]) -> None:
        """Take over from a ``snapshot`` over other channels, which are gone, what was delivered and what was not."""
        values, _, pending, owed, self._due, self._last = state
        self._owed = [*owed, *(value for channel, value in values if channel in pending)]


class AlignedWatermarkCombiner(Generic[V]):
    """Delivers once per round, when every active channel has sent its watermark, with the function applied.

    Behind a gate a channel sends nothing before the round is delivered, as the gate holds it back. The inputs of an
    operator are not held back: what one of them sends for later rounds waits here.
    (Flink delivers the value that came last, and hangs when a channel finishes.)
    """

    aligned = True

    def __init__(self, declaration: WatermarkDeclaration, channels: int, inactive: Iterable[int] = ()) -> None:
        self._function = _FUNCTIONS[declaration.combination_policy.combination_function]
        self._channels = channels
        self._inactive = set(inactive)
        self._rounds: dict[int, deque[V]] = {}

    def update(self, channel: int, value: V) -> V | None:
        """``channel`` sent its watermark of its next round; returns the value of the first complete round, or None."""
        self._rounds.setdefault(channel, deque()).append(value)
        return self.following()

    def deactivate(self, channel: int) -> V | None:
        """``channel`` went idle: rounds no longer wait for it."""
        self._inactive.add(channel)
        return self.following()

    def activate(self, channel: int) -> V | None:
        """``channel`` is active again: rounds wait for it."""
        self._inactive.discard(channel)
        return None

    def end(self, channel: int) -> V | None:
        """``channel`` has ended, maybe while it was idle; returns what its absence releases, or None."""
        return self.deactivate(channel)

    def following(self) -> V | None:
        """The value of the next complete round, or None."""
        if not self._rounds or not all(c in self._rounds or c in self._inactive for c in range(self._channels)):
            return None
        combined: V = self._function([values.popleft() for values in self._rounds.values()])
        self._rounds = {channel: values for channel, values in self._rounds.items() if values}
        return combined

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        rounds = tuple((channel, tuple(values)) for channel, values in sorted(self._rounds.items()))
        return rounds, tuple(sorted(self._inactive))

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        rounds, inactive = state
        self._rounds = {channel: deque(values) for channel, values in rounds}
        self._inactive = set(inactive)

    def restore_delivered(self, state: tuple[Any, ...]) -> None:
        """As in the other combiners; a round begins with nothing."""


Combiner: TypeAlias = WatermarkCombiner[int] | AlignedWatermarkCombiner[int] | EventTimeCombiner


def new_combiner(declaration: WatermarkDeclaration, channels: int, inactive: Iterable[int] = ()) -> Combiner:
    """The combiner that ``declaration`` asks for, over ``channels`` channels of which ``inactive`` are so already.

    Not for event time, whose rules no declaration can state: see ``EventTimeCombiner``.
    """
    if declaration.combination_policy.aligned:
        return AlignedWatermarkCombiner(declaration, channels, inactive)
    return WatermarkCombiner(declaration, channels, inactive)
