"""The rules for barriers whose channels change, because the parallelism does. See ``channel_rules``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dsv2.watermark.barrier_combiner import BarrierCombiner
from dsv2.watermark.combiner_rules import CombinerRules, State, in_all, renumbered

__all__ = ("BarrierRules",)


class BarrierRules(CombinerRules):
    """For ``BarrierCombiner``. A channel stays blocked until its id is complete in every subtask.

    New channels know which id is complete, so they cannot deliver it again. They must send a greater one.
    """

    def new(self, channels: int, idle: Collection[int], ended: Collection[int]) -> State:
        return BarrierCombiner(channels, {*idle, *ended}).snapshot()

    def renumbered(self, state: State, numbers: Mapping[int, int]) -> State:
        completed, last, since, behind, inactive = state
        parts = (_with_numbers(part, numbers) for part in (last, since, behind))
        return completed, *parts, renumbered(inactive, numbers)

    def joined(self, states: Sequence[State], has: Sequence[Collection[int]], blocked: Collection[int]) -> State:
        known = [state for state in states if state[0] is not None or state[2]]
        completed = None if not known or any(state[0] is None for state in known) else min(state[0] for state in known)
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
        if since:  # what is complete in some subtasks only is not complete
            first = min(since.values())
            ahead = [c for c, value in last.items() if completed is None or value > completed]
            since = {channel: since.get(channel, first) for channel in ahead}
        parts = (tuple(sorted(part.items())) for part in (last, since, behind))
        return completed, *parts, in_all([state[4] for state in states], has)

    def replaced(
        self, state: State, old: int, new: int, former: Sequence[int], idle: bool, ended: Collection[int]
    ) -> State:
        *kept, inactive = self.renumbered(state, {channel: new + number for number, channel in enumerate(former)})
        return *kept, (*(range(new) if idle or len(ended) == old else ()), *inactive)


def _with_numbers(pairs: Iterable[tuple[int, Any]], numbers: Mapping[int, int]) -> tuple[tuple[int, Any], ...]:
    return tuple(sorted((numbers[channel], value) for channel, value in pairs if channel in numbers))
