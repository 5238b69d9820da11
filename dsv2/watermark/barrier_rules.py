"""The rules for barriers whose channels change, because the parallelism does. See ``channel_rules``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dsv2.watermark.barrier_combiner import BarrierCombiner
from dsv2.watermark.combiner_rules import CombinerRules, State, in_all, renumbered


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

    def replaced(
        self, state: State, old: int, new: int, former: Sequence[int], idle: bool, ended: Collection[int]
    ) -> State:
        numbers = {channel: new + number for number, channel in enumerate(former)}
        *kept, inactive, open_since = self.renumbered(state, numbers)
        return *kept, (*(range(new) if idle or len(ended) == old else ()), *inactive), open_since


def _with_numbers(pairs: Iterable[tuple[int, Any]], numbers: Mapping[int, int]) -> tuple[tuple[int, Any], ...]:
    return tuple(sorted((numbers[channel], value) for channel, value in pairs if channel in numbers))
