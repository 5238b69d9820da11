"""The rules for combiners whose channels change, because the parallelism does. They work on snapshots of combiners.

Three steps lead from the old subtasks to the new ones. ``joined`` merges what several subtasks know about the same
channels. ``selected`` keeps channels whose senders are the same. ``replaced`` replaces all channels by new ones:

* A new channel starts with the combination of the old ones, so each holds a minimum back until it has sent more. If
  the combination of copies of a value is not that value (a sum), new channels start without one, and the values of the
  old channels are forgotten. The last result stays.
* If it waits for all and an old channel has not sent (an idle one counts too, because it may become active), the new
  channels start without a value, and all of them must send.
  Values that are not part of a combination yet are part of the first one, as if their channels had ended.
* Event time of a new channel starts with the event time that the input has reached.

Former channels, which hold records behind an aligned watermark, stay until these are processed. They follow the new
channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.barrier_combiner import BarrierCombiner
from dsv2.watermark.combiner import combination_of, new_combiner
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN, PROCESSING_TIME, EventTimeCombiner

State: TypeAlias = tuple[Any, ...]
"""A snapshot of a combiner."""


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """The replacement of the channels of an input.

    Args:
        old: The number of old channels.
        new: The number of new channels.
        former: The old channels that follow the new ones.
        idle: Whether the new channels are idle.
        ended: The old channels that have ended. If all have, so have the new ones.
    """

    old: int
    new: int
    former: Sequence[int] = ()
    idle: bool = False
    ended: Collection[int] = ()

    @property
    def numbers(self) -> dict[int, int]:
        """The new numbers of the former channels."""
        return {channel: self.new + number for number, channel in enumerate(self.former)}

    @property
    def inactive(self) -> range:
        """The new channels that are idle or have ended: all of them, or none."""
        return range(self.new if self.idle or self.all_ended else 0)

    @property
    def all_ended(self) -> bool:
        return len(self.ended) == self.old


class CombinerRules(ABC):
    """The rules for the combiners of one identifier."""

    @abstractmethod
    def new(self, channels: int, idle: Collection[int], ended: Collection[int]) -> State:
        """The state of a new combiner over ``channels`` channels, some of them idle or ended."""

    @abstractmethod
    def renumbered(self, state: State, numbers: Mapping[int, int]) -> State:
        """Give the channels in ``numbers`` other numbers, and forget the others."""

    @abstractmethod
    def joined(self, states: Sequence[State], has: Sequence[Collection[int]], blocked: Collection[int]) -> State:
        """Merge states of several subtasks.

        Args:
            states: The states.
            has: The channels that each of the subtasks has.
            blocked: The channels that are blocked by an aligned watermark with this identifier.
        """

    def joined_inputs(self, states: Sequence[State], inputs: Collection[int]) -> State:
        """Merge states of combiners over the inputs of an operator in several subtasks."""
        return self.joined(states, [inputs] * len(states), ())

    @abstractmethod
    def replaced(self, state: State, change: ChannelChange) -> State:
        """Replace the channels of a state."""


def renumbered(channels: Iterable[int], numbers: Mapping[int, int]) -> tuple[int, ...]:
    """Return the new numbers of those channels that have one."""
    return tuple(sorted(numbers[channel] for channel in channels if channel in numbers))


def in_all(found: Sequence[Collection[int]], has: Sequence[Collection[int]]) -> tuple[int, ...]:
    """The channels that are in ``found`` of every subtask that has them."""
    everyone = sorted(set[int]().union(*has))
    pairs = [(set(of_one), set(channels)) for of_one, channels in zip(found, has, strict=True)]
    return tuple(c for c in everyone if all(c in of_one for of_one, channels in pairs if c in channels))


class BarrierRules(CombinerRules):
    """For ``BarrierCombiner``. A channel stays blocked until its id is complete in every subtask.

    New channels know which id is complete, so they cannot deliver it again. They must send a greater one.
    """

    def new(self, channels: int, idle: Collection[int], ended: Collection[int]) -> State:
        return BarrierCombiner(channels, {*idle, *ended}).snapshot()

    def renumbered(self, state: State, numbers: Mapping[int, int]) -> State:
        completed, last, since, behind, inactive, open_since = state
        parts = (_with_numbers(part, numbers) for part in (last, since, behind))
        return completed, *parts, renumbered(inactive, numbers), open_since

    def joined(self, states: Sequence[State], has: Sequence[Collection[int]], blocked: Collection[int]) -> State:
        opened = [state[5] for state in states if state[5] is not None]
        known = [state[0] for state in states if state[0] is not None or state[5] is not None]
        completed = None if not known or None in known else min(known)
        last: dict[int, Any] = {}
        since: dict[int, int] = {}
        behind: dict[int, int] = {}
        for state in states:
            for channel, value in state[1]:
                last[channel] = min(value, last.get(channel, value))
            for channel, time in state[2]:
                since[channel] = min(time, since.get(channel, time))
            for channel, records in state[3]:
                behind[channel] = behind.get(channel, 0) + records
        if opened:  # what is complete in some subtasks only is not complete
            ahead = [c for c, value in last.items() if completed is None or value > completed]
            since = {channel: since.get(channel, min(opened)) for channel in ahead}
        parts = (tuple(sorted(part.items())) for part in (last, since, behind))
        return completed, *parts, in_all([state[4] for state in states], has), min(opened, default=None)

    def replaced(self, state: State, change: ChannelChange) -> State:
        *kept, inactive, open_since = self.renumbered(state, change.numbers)
        return *kept, (*change.inactive, *inactive), open_since


def _with_numbers(pairs: Iterable[tuple[int, Any]], numbers: Mapping[int, int]) -> tuple[tuple[int, Any], ...]:
    return tuple(sorted((numbers[channel], value) for channel, value in pairs if channel in numbers))


class DeclaredRules(CombinerRules):
    """Base class of the rules for combiners of a declaration."""

    def __init__(self, declaration: WatermarkDeclaration) -> None:
        self._declaration = declaration

    def new(self, channels: int, idle: Collection[int], ended: Collection[int]) -> State:
        return new_combiner(self._declaration, channels, {*idle, *ended}).snapshot()


class PlainRules(DeclaredRules):
    """For ``WatermarkCombiner``."""

    def __init__(self, declaration: WatermarkDeclaration) -> None:
        super().__init__(declaration)
        self._combination = combination_of(declaration)
        self._least = declaration.value_type.least
        self._wait = declaration.combination_policy.combine_wait_for_all_channels

    def renumbered(self, state: State, numbers: Mapping[int, int]) -> State:
        values, inactive, pending, of_ended, due, last = state
        kept = tuple((numbers[channel], value) for channel, value in values if channel in numbers)
        return kept, renumbered(inactive, numbers), renumbered(pending, numbers), of_ended, due, last

    def joined(self, states: Sequence[State], has: Sequence[Collection[int]], blocked: Collection[int]) -> State:
        values = [dict(values) for values, *_ in states]
        known: dict[int, list[Any]] = {}
        for channel in sorted(set[int]().union(*has)):
            views = [of_one.get(channel) for of_one, channels in zip(values, has, strict=True) if channel in channels]
            found = [value for value in views if value is not None]
            if found and (len(found) == len(views) or not self._wait):
                known[channel] = found
        of_ended = Counter[int]()
        for state in states:
            of_ended |= Counter(state[3])
        lasts = [state[5] for state in states]
        return (
            tuple((channel, self._least(found)) for channel, found in known.items()),
            in_all([state[1] for state in states], has),
            tuple(sorted(set[int]().union(*(state[2] for state in states)) & known.keys())),
            tuple(of_ended.elements()),
            any(state[4] for state in states),
            None if None in lasts else self._least(lasts),
        )

    def replaced(self, state: State, change: ChannelChange) -> State:
        numbers, old = change.numbers, range(change.old)
        values, inactive, pending, of_ended, due, last = state
        of_channel = dict(values)
        kept, gone, uncounted, *_ = self.renumbered(state, numbers)
        active = [channel for channel in old if channel not in inactive]
        is_complete = not self._wait or all(channel in of_channel for channel in old if channel not in change.ended)
        combination = self._combination
        if of_channel and is_complete and combination.is_idempotent:
            start = combination.combine([of_channel[c] for c in active if c in of_channel] or list(of_channel.values()))
            kept = (*((channel, start) for channel in range(change.new)), *kept)
        left = [of_channel[channel] for channel in pending if channel not in numbers]
        as_ended = (*of_ended, *left) if combination.is_idempotent else of_ended
        return kept, (*change.inactive, *gone), uncounted, as_ended, due, last


class ExpiringRules(DeclaredRules):
    """For ``ExpiringCombiner``. A new channel has the time that is left to the last of the old ones."""

    def __init__(self, declaration: WatermarkDeclaration) -> None:
        super().__init__(declaration)
        self._inner = PlainRules(declaration)

    def renumbered(self, state: State, numbers: Mapping[int, int]) -> State:
        inner, deadlines, *rest = state
        renumbered = sorted((numbers[channel], deadline) for channel, deadline in deadlines if channel in numbers)
        return self._inner.renumbered(inner, numbers), tuple(renumbered), *rest

    def joined(self, states: Sequence[State], has: Sequence[Collection[int]], blocked: Collection[int]) -> State:
        inner = self._inner.joined([state[0] for state in states], has, blocked)
        latest: dict[int, int] = {}
        for state in states:
            latest.update((channel, max(deadline, latest.get(channel, deadline))) for channel, deadline in state[1])
        return inner, tuple(sorted(latest.items())), None, any(state[3] for state in states)

    def replaced(self, state: State, change: ChannelChange) -> State:
        inner, deadlines, sent_at, repeats = state
        replaced, numbers = self._inner.replaced(inner, change), change.numbers
        kept = [(numbers[channel], deadline) for channel, deadline in deadlines if channel in numbers]
        started = [channel for channel, _ in replaced[0] if channel < change.new]
        latest = max((deadline for _, deadline in deadlines), default=0)
        return replaced, (*((channel, latest) for channel in started), *sorted(kept)), sent_at, repeats


class AlignedRules(DeclaredRules):
    """For ``AlignedWatermarkCombiner``. A value of an unfinished round belongs to a blocked channel."""

    def renumbered(self, state: State, numbers: Mapping[int, int]) -> State:
        rounds, inactive = state
        kept = sorted((numbers[channel], values) for channel, values in rounds if channel in numbers)
        return tuple(kept), renumbered(inactive, numbers)

    def joined(self, states: Sequence[State], has: Sequence[Collection[int]], blocked: Collection[int]) -> State:
        rounds: dict[int, list[Sequence[Any]]] = {}
        for of_one, _ in states:
            for channel, values in of_one:
                rounds.setdefault(channel, []).append(values)
        longest = tuple((c, max(views, key=len)) for c, views in sorted(rounds.items()) if c in blocked)
        return longest, in_all([inactive for _, inactive in states], has)

    def joined_inputs(self, states: Sequence[State], inputs: Collection[int]) -> State:
        # Inputs are not blocked, so values of later rounds may wait. Those count that have arrived everywhere.
        rounds = [dict(of_one) for of_one, _ in states]
        shortest = ((number, min((of_one.get(number, ()) for of_one in rounds), key=len)) for number in inputs)
        inactive = in_all([inactive for _, inactive in states], [inputs] * len(states))
        return tuple((number, values) for number, values in shortest if values), inactive

    def replaced(self, state: State, change: ChannelChange) -> State:
        rounds, inactive = self.renumbered(state, change.numbers)
        return rounds, (*change.inactive, *inactive)


class EventTimeRules(CombinerRules):
    """For ``EventTimeCombiner``."""

    def new(self, channels: int, idle: Collection[int], ended: Collection[int]) -> State:
        return EventTimeCombiner(channels, idle, ended).snapshot()

    def renumbered(self, state: State, numbers: Mapping[int, int]) -> State:
        times, *ignored, last = state
        time_of = {numbers[channel]: time for channel, time in enumerate(times) if channel in numbers}
        new_times = tuple(time_of.get(channel, LONG_MIN) for channel in range(max(time_of, default=-1) + 1))
        return new_times, *(renumbered(channels, numbers) for channels in ignored), last

    def joined(self, states: Sequence[State], has: Sequence[Collection[int]], blocked: Collection[int]) -> State:
        count = max(len(times) for times, *_ in states)
        times = tuple(
            min(state[0][channel] for state, channels in zip(states, has, strict=True) if channel in channels)
            for channel in range(count)
        )
        ended = in_all([state[2] for state in states], has)
        idle = tuple(channel for channel in in_all([state[1] for state in states], has) if channel not in ended)
        behind = tuple(sorted(set[int]().union(*(state[3] for state in states)) - {*idle, *ended}))
        live = [state[4] for state, channels in zip(states, has, strict=True) if not set(channels) <= set(state[2])]
        return times, idle, ended, behind, min(live or [state[4] for state in states])

    def replaced(self, state: State, change: ChannelChange) -> State:
        times, _, old_ended, _, last = state
        live = [time for channel, time in enumerate(times) if channel not in old_ended]
        by_clock = bool(live) and all(time == PROCESSING_TIME for time in live)
        start = PROCESSING_TIME if by_clock else last
        kept, *ignored, _ = self.renumbered(state, {channel: number for number, channel in enumerate(change.former)})
        shifted = [tuple(change.new + channel for channel in channels) for channels in ignored]
        everyone = tuple(range(change.new))
        shifted[0] = (*(everyone if change.idle and not by_clock else ()), *shifted[0])
        shifted[1] = (*(everyone if change.all_ended else ()), *shifted[1])
        return (*(start for _ in everyone), *kept), *shifted, last


def rules_of(identifier: str, declarations: Mapping[str, WatermarkDeclaration]) -> CombinerRules:
    """Return the rules for the combiners of ``identifier``."""
    if identifier == EVENT_TIME:
        return EventTimeRules()
    declaration = declarations[identifier]
    if declaration.combination_policy.barrier is not None:
        return BarrierRules()
    if declaration.combination_policy.aligned:
        return AlignedRules(declaration)
    return PlainRules(declaration) if declaration.scope.expires_after_ms is None else ExpiringRules(declaration)
