"""Which old senders a new sender replaces, and what that means for the combiners of a gate.

Key groups are divided into contiguous ranges, so a new subtask continues the old subtasks whose ranges overlap its
own. The rules follow from this. A new channel has sent what all channels that it replaces have sent, combined: the
minimum of minima, the maximum of maxima. It is idle if all of them are. It has sent its value of a wait-for-all or
aligned watermark only if all of them have. So no watermark gets ahead, and none waits for a value that was sent before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.combiner import combination_of
from dsv2.watermark.event_time import EVENT_TIME

__all__ = ("CombinerState", "Sources", "assembled_combiner", "overlap", "remapped_combiner")

CombinerState: TypeAlias = tuple[Any, ...]
"""The ``snapshot`` of a combiner."""
Sources: TypeAlias = Sequence[Sequence[int]]
"""For each new channel the old channels that it replaces."""


def overlap(index: int, new: int, old: int) -> range:
    """Return the old subtasks, of ``old``, whose ranges overlap that of subtask ``index``, of ``new``."""
    return range(index * old // new, -(-(index + 1) * old // new))


def remapped_combiner(
    identifier: str,
    state: CombinerState,
    sources: Sources,
    ended: Collection[int],
    declarations: Mapping[str, WatermarkDeclaration],
) -> CombinerState:
    """Return the state of a combiner over other channels.

    Args:
        identifier: The watermark.
        state: The state over the old channels.
        sources: The channels that each new channel replaces.
        ended: The old channels that have ended.
        declarations: The watermarks of the job.
    """
    if identifier == EVENT_TIME:
        return _event_time(state, sources)
    declaration = declarations[identifier]
    if declaration.combination_policy.aligned:
        return _aligned(state, sources, declaration)
    return _plain(state, sources, set(ended), declaration)


def _plain(state: CombinerState, sources: Sources, ended: set[int], declaration: WatermarkDeclaration) -> CombinerState:
    values, inactive, pending, of_ended, due, last = state
    sent, inactive, pending = dict(values), set(inactive), set(pending)
    combine = combination_of(declaration)
    wait = declaration.combination_policy.combine_wait_for_all_channels
    new_values, new_pending = {}, []
    for channel, replaced in enumerate(sources):
        live = [one for one in replaced if one not in ended]
        present = [sent[one] for one in live if one in sent]
        if not present or (wait and len(present) < len(live)):
            continue
        new_values[channel] = combine(present)
        if any(one in pending for one in live):
            new_pending.append(channel)
    new_inactive = [channel for channel, replaced in enumerate(sources) if all(one in inactive for one in replaced)]
    return tuple(sorted(new_values.items())), tuple(new_inactive), tuple(new_pending), of_ended, due, last


def _aligned(state: CombinerState, sources: Sources, declaration: WatermarkDeclaration) -> CombinerState:
    rounds, inactive = dict(state[0]), set(state[1])
    combine = combination_of(declaration)
    new_rounds = []
    for channel, replaced in enumerate(sources):
        live = [one for one in replaced if one not in inactive]
        sent = [rounds.get(one, ()) for one in live or replaced]
        complete = min(map(len, sent), default=0)
        if complete:
            of_round = zip(*(one[:complete] for one in sent), strict=True)
            new_rounds.append((channel, tuple(combine(values) for values in of_round)))
    new_inactive = [channel for channel, replaced in enumerate(sources) if all(one in inactive for one in replaced)]
    return tuple(new_rounds), tuple(new_inactive)


def _event_time(state: CombinerState, sources: Sources) -> CombinerState:
    times, idle, ended, behind, last = state
    idle, ended, behind = set(idle), set(ended), set(behind)
    all_ended = len(ended) == len(times)
    new_times, new_idle, new_behind = [], [], []
    for channel, replaced in enumerate(sources):
        live = [one for one in replaced if one not in ended]
        active = [one for one in live if one not in idle]
        counted = [one for one in active if one not in behind]
        if not live:
            new_times.append(last)  # it begins again, but event time does not go back
        elif not active:
            new_times.append(max(times[one] for one in live))
            new_idle.append(channel)
        else:
            new_times.append(min(times[one] for one in counted or active))
            if not counted:
                new_behind.append(channel)
    everyone = tuple(range(len(sources)))
    return tuple(new_times), tuple(new_idle), everyone if all_ended else (), tuple(new_behind), last


def assembled_combiner(
    identifier: str,
    states: Sequence[CombinerState],
    delivered_to: Sequence[int],
    declarations: Mapping[str, WatermarkDeclaration],
) -> CombinerState:
    """Return one state over several channels from the states of combiners with one channel each.

    Args:
        identifier: The watermark.
        states: The states, one for each channel.
        delivered_to: The indices of the combiners whose subtasks are continued. What they have delivered counts.
        declarations: The watermarks of the job.
    """
    delivered = [states[index] for index in delivered_to]
    if identifier == EVENT_TIME:
        times = tuple(state[0][0] for state in states)
        return times, _having(states, 1), _having(states, 2), _having(states, 3), min(state[-1] for state in delivered)
    declaration = declarations[identifier]
    if declaration.combination_policy.aligned:
        rounds = ((channel, values) for channel, (of_one, _) in enumerate(states) for _, values in of_one)
        return tuple(rounds), _having(states, 1)
    values = tuple((channel, value) for channel, state in enumerate(states) for _, value in state[0])
    of_ended = tuple(value for state in delivered for value in state[3])
    lasts = [last for *_, last in delivered if last is not None]
    last = combination_of(declaration)(lasts) if lasts else None
    return values, _having(states, 1), _having(states, 2), of_ended, any(state[4] for state in delivered), last


def _having(states: Sequence[CombinerState], part: int) -> tuple[int, ...]:
    """The channels whose state has a channel in this part."""
    return tuple(channel for channel, state in enumerate(states) if state[part])
