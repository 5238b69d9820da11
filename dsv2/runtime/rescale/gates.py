"""The state of one input in the new subtasks.

What the old subtasks know is first joined to one gate with a channel for each old sender, and for each former channel.
Then each new subtask takes the channels of its senders, if these are the same as before. Otherwise the channels are
replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dsv2.graph import Exchange
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.gate_states import GateState, former_channels, with_new_channels
from dsv2.runtime.rescale.change import InputChange, Senders
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.channel_rules import rules_of
from dsv2.watermark.event_time import EVENT_TIME

Route: TypeAlias = Callable[[Any, int], int]
"""Returns the new subtask for a held record or ``OfKey``, from it and the index of the old subtask that held it."""

_Pairs: TypeAlias = list[tuple[Any, int | None]]
_Signal: TypeAlias = tuple[int, str, Any]


class OfKey(NamedTuple):
    """A held per-key watermark. It has the place of a record, because it is sent to the subtask of its key only."""

    signal: _Signal

    @property
    def key(self) -> Any:
        """The key that it is about."""
        key, _ = self.signal[2]
        return key


class _Held(NamedTuple):
    """The elements of one sender that an old subtask holds: records before, between and after control elements."""

    subtask: int
    identifier: str
    segments: list[_Pairs]
    signals: list[_Signal]


def new_gate(channels: int) -> GateState:
    """Return the state of a gate that has received nothing."""
    return channels, {}, [], [], False, {}


def rescaled_gate(
    states: Sequence[GateState],
    change: InputChange,
    subtask: int,
    declarations: Mapping[str, WatermarkDeclaration],
    route: Route,
    per_key: Collection[str] = (),
) -> GateState:
    """Return the gate of the new subtask ``subtask``.

    Args:
        states: The gates of the old subtasks for this input, ordered by index.
        change: What has changed. The senders are not new.
        subtask: The index of the new subtask.
        declarations: The watermark declarations of the new program by identifier.
        route: Decides about held records. Not called if the input is or was broadcast or becomes forward.
        per_key: The watermarks that are sent to the subtask of their key.
    """
    joined = _joined(states, change, subtask, declarations, route, per_key)
    if change.senders is Senders.SAME:
        return _selected(joined, change, subtask, declarations)
    return with_new_channels(joined, change.channels, declarations)


def _joined(
    states: Sequence[GateState],
    change: InputChange,
    subtask: int,
    declarations: Mapping[str, WatermarkDeclaration],
    route: Route,
    per_key: Collection[str],
) -> GateState:
    numbers = [_numbers_of(state, index, change) for index, state in enumerate(states)]
    has = [list(of_one.values()) for of_one in numbers]
    everyone = sorted(set[int]().union(*has))
    ended = [c for c in everyone if all(_includes(state[2], n, c) for state, n in zip(states, numbers, strict=True))]
    idle = [
        c
        for c in everyone
        if c not in ended
        and all(_includes((*state[2], *state[3]), n, c) for state, n in zip(states, numbers, strict=True))
    ]
    live = [state for state, of_one in zip(states, numbers, strict=True) if len(state[2]) < len(of_one)]
    held = _held(states, numbers, change, subtask, route, per_key)
    combiners = {}
    for identifier in dict.fromkeys(identifier for state in states for identifier in state[1]):
        if identifier != EVENT_TIME and identifier not in declarations:
            continue
        rules = rules_of(identifier, declarations)
        views = [
            rules.renumbered(state[1].get(identifier) or rules.new(len(of_one), state[3], state[2]), of_one)
            for state, of_one in zip(states, numbers, strict=True)
        ]
        blocked = [channel for channel, (held_for, _) in held.items() if held_for == identifier]
        combiners[identifier] = rules.joined(views, has, blocked)
    is_idle = bool(live) and all(state[4] for state in live)
    return change.senders_before, combiners, ended, idle, is_idle, held


def _numbers_of(state: GateState, index: int, change: InputChange) -> dict[int, int]:
    """The channels of an old subtask by sender: first the senders, then the former channels."""
    own = [index] if change.before is Exchange.FORWARD else range(change.senders_before)
    former = former_channels(state)
    return dict(enumerate((*own, *(change.senders_before + number for number in range(len(former))))))


def _includes(channels: Sequence[int], numbers: Mapping[int, int], channel: int) -> bool:
    """Return whether ``channels`` of one subtask include ``channel``, if the subtask has it."""
    return channel not in numbers.values() or any(numbers[one] == channel for one in channels)


def _selected(
    state: GateState, change: InputChange, subtask: int, declarations: Mapping[str, WatermarkDeclaration]
) -> GateState:
    """The gate with the channels whose senders are the same."""
    senders, combiners, ended, idle_channels, idle, held = state
    own = [subtask] if change.after is Exchange.FORWARD else range(senders)
    former = [channel for channel in held if channel >= senders]
    numbers = {channel: number for number, channel in enumerate((*own, *former))}
    return (
        len(own),
        {i: rules_of(i, declarations).renumbered(combiner, numbers) for i, combiner in combiners.items()},
        [numbers[channel] for channel in ended if channel in numbers],
        [numbers[channel] for channel in idle_channels if channel in numbers],
        idle,
        {numbers[channel]: of_one for channel, of_one in held.items() if channel in numbers},
    )


def _held(
    states: Sequence[GateState],
    numbers: Sequence[Mapping[int, int]],
    change: InputChange,
    subtask: int,
    route: Route,
    per_key: Collection[str],
) -> dict[int, tuple[str, list[tuple[Any, ...]]]]:
    found: dict[int, list[_Held]] = {}
    for index, (state, of_one) in enumerate(zip(states, numbers, strict=True)):
        for channel, (identifier, pieces) in state[5].items():
            found.setdefault(of_one[channel], []).append(_Held(index, identifier, *_segments(pieces, per_key)))
    return {channel: _merged(found[channel], channel, change, subtask, route) for channel in sorted(found)}


def _merged(
    views: Sequence[_Held], channel: int, change: InputChange, subtask: int, route: Route
) -> tuple[str, list[tuple[Any, ...]]]:
    """Return the elements of one sender that the new subtask holds.

    A sender sends its control elements to all subtasks, so those that they hold differ only in how many of the first
    ones a subtask has processed. That with most of them is followed.
    """
    longest = max(views, key=lambda view: (len(view.signals), -view.subtask))
    copies = change.before is Exchange.BROADCAST
    same = change.senders is Senders.SAME and channel < change.senders_before
    own_sender = same and change.after is Exchange.FORWARD
    segments: list[_Pairs] = [[] for _ in longest.segments]
    for view in [longest] if copies else views:
        ahead = len(longest.segments) - len(view.segments)
        for number, pairs in enumerate(view.segments):
            if (own_sender and subtask == channel) or change.after is Exchange.BROADCAST:
                segments[ahead + number] += pairs
            elif not own_sender:
                segments[ahead + number] += [pair for pair in pairs if route(pair[0], view.subtask) == subtask]
    return longest.identifier, [_piece(segments, longest.signals)]


def _segments(pieces: Sequence[tuple[Any, ...]], per_key: Collection[str]) -> tuple[list[_Pairs], list[_Signal]]:
    segments: list[_Pairs] = [[]]
    signals: list[_Signal] = []
    for records, controls, timestamps, gone in pieces:
        pairs = list(RecordBatch(records, timestamps).pairs())
        done = 0
        for position, *signal in controls:
            segments[-1] += pairs[done : position - gone]
            done = max(done, position - gone)
            if signal[1] in per_key:
                segments[-1].append((OfKey(tuple(signal)), None))
                continue
            signals.append(tuple(signal))
            segments.append([])
        segments[-1] += pairs[done:]
    return segments, signals


def _piece(segments: Sequence[_Pairs], signals: Sequence[_Signal]) -> tuple[Any, ...]:
    pairs: _Pairs = []
    controls = []
    for segment, signal in zip(segments, (*signals, None), strict=True):
        for pair in segment:
            if isinstance(pair[0], OfKey):
                controls.append((len(pairs), *pair[0].signal))
            else:
                pairs.append(pair)
        if signal is not None:
            controls.append((len(pairs), *signal))
    stamped = any(timestamp is not None for _, timestamp in pairs)
    return [record for record, _ in pairs], controls, [timestamp for _, timestamp in pairs] if stamped else None, 0
