"""The gate of an input of a new subtask, from the gates of the old subtasks.

First the old gates become one gate that has a channel for each old sender. (Behind an exchange each gate has these
channels already; behind a forward edge each gate has one of them.) Then its channels become those of the new senders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dsv2.runtime.exchange.frames import Control
from dsv2.runtime.rescale.channels import CombinerState, Sources, assembled_combiner, overlap, remapped_combiner
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.combiner import new_combiner
from dsv2.watermark.event_time import EVENT_TIME, EventTimeCombiner

__all__ = ("GateState", "InputChange", "succeeding_gate")

GateState: TypeAlias = tuple[Any, ...]
"""The ``snapshot`` of a gate."""
_Piece: TypeAlias = tuple[Sequence[Any], list[Control], Any, int]
"""Records, controls, timestamps, and the number of records removed before (as in the snapshot of a gate)."""
_Held: TypeAlias = dict[int, tuple[str, list[_Piece]]]


@dataclass(frozen=True, slots=True)
class InputChange:
    """The senders of an input, before and after.

    Attributes:
        old_senders: The number of old subtasks that sent to it.
        new_senders: The number of new ones.
        was_forward: Whether each subtask received from one sender only.
        is_forward: Whether each subtask does now.
        belongs: Whether a record that an old subtask holds belongs to the new subtask: called with the record, the
            index of the old subtask and the number of the record among those it holds.
    """

    old_senders: int
    new_senders: int
    was_forward: bool
    is_forward: bool
    belongs: Callable[[Any, int, int], bool]


def succeeding_gate(
    gates: Sequence[GateState],
    change: InputChange,
    subtask: int,
    parallelism: int,
    declarations: Mapping[str, WatermarkDeclaration],
) -> GateState:
    """Return the gate of subtask ``subtask`` of ``parallelism`` new ones.

    Args:
        gates: The gates of all old subtasks for this input, in order.
        change: The senders.
        subtask: The index of the new subtask.
        parallelism: The number of new subtasks.
        declarations: The watermarks of the job.
    """
    continued = overlap(subtask, parallelism, len(gates))
    combiners, ended, idle = _of_senders(gates, change, continued, declarations)
    held = _held_by_sender(gates, change)
    senders = [subtask] if change.is_forward else range(change.new_senders)
    sources = [overlap(sender, change.new_senders, change.old_senders) for sender in senders]
    return _remapped(combiners, ended, idle, held, sources, change.old_senders, declarations)


def _of_senders(
    gates: Sequence[GateState],
    change: InputChange,
    continued: Sequence[int],
    declarations: Mapping[str, WatermarkDeclaration],
) -> tuple[dict[str, CombinerState], set[int], set[int]]:
    """The combiners, ended and idle channels of a gate with all old senders."""
    if not change.was_forward:
        _, combiners, ended, idle, *_ = gates[continued[0]]
        return combiners, set(ended), set(idle)
    ended = {sender for sender, gate in enumerate(gates) if gate[2]}
    idle = {sender for sender, gate in enumerate(gates) if gate[3]}
    identifiers = dict.fromkeys(identifier for gate in gates for identifier in gate[1])
    combiners = {}
    for identifier in identifiers:
        states = [_combiner_of(gate, identifier, declarations) for gate in gates]
        combiners[identifier] = assembled_combiner(identifier, states, continued, declarations)
    return combiners, ended, idle


def _combiner_of(gate: GateState, identifier: str, declarations: Mapping[str, WatermarkDeclaration]) -> CombinerState:
    channels, combiners, ended, idle, *_ = gate
    if identifier in combiners:
        state: CombinerState = combiners[identifier]
        return state
    if identifier == EVENT_TIME:
        return EventTimeCombiner(channels, idle, ended).snapshot()
    return new_combiner(declarations[identifier], channels, {*idle, *ended}).snapshot()


def _remapped(
    combiners: Mapping[str, CombinerState],
    ended: set[int],
    idle: set[int],
    held: _Held,
    sources: Sources,
    old_senders: int,
    declarations: Mapping[str, WatermarkDeclaration],
) -> GateState:
    all_ended = len(ended) == old_senders
    if len(sources) == old_senders:  # each channel replaces one
        new_ended = {channel for channel, replaced in enumerate(sources) if ended.issuperset(replaced)}
    else:
        new_ended = set(range(len(sources))) if all_ended else set()  # a new sender may have input of others
    new_idle = {
        channel
        for channel, replaced in enumerate(sources)
        if channel not in new_ended and any(one in idle for one in replaced) and {*idle, *ended}.issuperset(replaced)
    }
    states = {
        identifier: remapped_combiner(identifier, state, sources, ended, declarations)
        for identifier, state in combiners.items()
    }
    is_idle = bool(new_idle) and len(new_idle) + len(new_ended) == len(sources)
    blocked, deferred = _remapped_held(held, sources, {*idle, *ended})
    return len(sources), states, sorted(new_ended), sorted(new_idle), is_idle, blocked, deferred


def _remapped_held(held: _Held, sources: Sources, inactive: set[int]) -> tuple[_Held, _Held]:
    """The elements behind aligned watermarks: of channels that are blocked, and of those that are not.

    Those of a sender that several continue go to the first of them. A sender that replaces several sends the watermark
    once more, unless all of them had sent it.
    """
    taken: set[int] = set()
    blocked: _Held = {}
    deferred: _Held = {}
    for channel, replaced in enumerate(sources):
        holding = [one for one in replaced if one in held]
        if not holding:
            continue
        pieces = [piece for one in holding if one not in taken for piece in held[one][1]]
        taken.update(holding)
        all_sent = all(one in held for one in replaced if one not in inactive)
        (blocked if all_sent else deferred)[channel] = held[holding[0]][0], pieces
    return blocked, deferred


def _held_by_sender(gates: Sequence[GateState], change: InputChange) -> _Held:
    """What the new subtask gets of the elements that the old subtasks hold, by old sender."""
    found: dict[int, list[tuple[int, str, list[_Piece]]]] = {}
    for index, gate in enumerate(gates):
        for blocked in gate[5:]:
            for channel, (identifier, pieces) in blocked.items():
                found.setdefault(index if change.was_forward else channel, []).append((index, identifier, pieces))
    return {
        sender: (of_subtasks[0][1], [_merged([(index, pieces) for index, _, pieces in of_subtasks], change.belongs)])
        for sender, of_subtasks in sorted(found.items())
    }


def _merged(found: Sequence[tuple[int, list[_Piece]]], belongs: Callable[[Any, int, int], bool]) -> _Piece:
    """One piece with the elements that several subtasks hold of one sender.

    All of them have received the same controls in the same order, but each has other records between them.
    """
    segments: list[list[tuple[Any, int | None]]] = [[]]
    controls: list[Control] = []
    for index, pieces in found:
        place, number = 0, 0
        for element in _elements(pieces):
            if isinstance(element, _Signal):
                place += 1
                if place == len(segments):
                    segments.append([])
                    controls.append(element.control)
                continue
            if belongs(element[0], index, number):
                segments[place].append(element)
            number += 1
    return _joined(segments, controls)


@dataclass(frozen=True, slots=True)
class _Signal:
    control: Control


def _elements(pieces: Collection[_Piece]) -> list[_Signal | tuple[Any, int | None]]:
    elements: list[_Signal | tuple[Any, int | None]] = []
    for records, controls, timestamps, gone in pieces:
        stamped = list(zip(records, timestamps if timestamps is not None else [None] * len(records), strict=True))
        done = 0
        for control in controls:
            stop = control[0] - gone
            elements += stamped[done:stop]
            elements.append(_Signal(control))
            done = max(done, stop)
        elements += stamped[done:]
    return elements


def _joined(segments: Sequence[list[tuple[Any, int | None]]], controls: Sequence[Control]) -> _Piece:
    flat = [element for segment in segments for element in segment]
    placed: list[Control] = []
    position = 0
    for segment, control in zip(segments, controls, strict=False):
        position += len(segment)
        placed.append((position, *control[1:]))
    timestamps = [timestamp for _, timestamp in flat]
    stamped = any(timestamp is not None for timestamp in timestamps)
    return [record for record, _ in flat], placed, timestamps if stamped else None, 0
