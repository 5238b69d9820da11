"""Edits of a savepoint, as they change its description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from dsv2.checkpoint.program import OperatorDescription, ProgramDescription, StateDescription
from dsv2.checkpoint.record import JsonObject, SourcePosition
from dsv2.savepoint.metadata import SavepointInfo

V = TypeVar("V")


def with_renamed_operator(info: SavepointInfo, old: str, new: str) -> SavepointInfo:
    """Give an operator another uid. The operators after it receive from that."""

    def renamed(uid: str) -> str:
        return new if uid == old else uid

    def program(before: ProgramDescription) -> ProgramDescription:
        operators = {
            renamed(uid): replace(_with_senders(operator, renamed), automatic_uid=operator.automatic_uid and uid != old)
            for uid, operator in before.operators.items()
        }
        return replace(before, operators=operators)

    def position(of: SourcePosition) -> SourcePosition:
        reports = [
            {**report, "source": renamed(report["source"])} if "source" in report else report for report in of.reports
        ]
        return replace(of, reports=reports)

    return replace(
        info,
        programs=list(map(program, info.programs)),
        sources={renamed(uid): position(of) for uid, of in info.sources.items()},
        keys=[{**sample, "key_of": renamed(sample["key_of"])} for sample in info.keys],
        fields={renamed(uid): names for uid, names in info.fields.items()},
        holding=sorted(map(renamed, info.holding)),
    )


def with_operator(info: SavepointInfo, uid: str, described: OperatorDescription) -> SavepointInfo:
    """Add an operator to the last program. It has not received anything, so all its senders are new."""
    added = _with_senders(described, lambda sender: f"{sender} (added)")
    return _with_last(info, uid, added)


def without_operator(info: SavepointInfo, uid: str) -> SavepointInfo:
    """Drop an operator. Another one with its uid is a new sender for the operators after it."""

    def still(sender: str) -> str:
        return f"{uid} (dropped)" if sender == uid else sender

    def program(before: ProgramDescription) -> ProgramDescription:
        left = _without(before.operators, uid)
        return replace(before, operators={other: _with_senders(one, still) for other, one in left.items()})

    return replace(
        info,
        programs=list(map(program, info.programs)),
        sources=_without(info.sources, uid),
        keys=[sample for sample in info.keys if sample["key_of"] != uid],
        fields=_without(info.fields, uid),
        holding=[holder for holder in info.holding if holder != uid],
    )


def with_renamed_state(info: SavepointInfo, uid: str, old: str, new: str) -> SavepointInfo:
    """Rename a state in all programs that declare it."""
    return _with_states(info, uid, lambda states: {new if name == old else name: of for name, of in states.items()})


def without_state(info: SavepointInfo, uid: str, name: str) -> SavepointInfo:
    """Drop a state from all programs that declare it."""
    return _with_states(info, uid, lambda states: _without(states, name))


def with_state(info: SavepointInfo, uid: str, name: str, described: StateDescription) -> SavepointInfo:
    """Declare a state in the last program, and in no other: no earlier values are left."""
    info = without_state(info, uid, name)
    operator = info.program.operators[uid]
    states = dict(sorted([*operator.states.items(), (name, described)]))
    return _with_last(info, uid, replace(operator, states=states, keeps_state=True))


def with_position(info: SavepointInfo, uid: str, offset: JsonObject | None) -> SavepointInfo:
    """Set the position of a source; None: it has none, so it begins as in a new job."""
    if offset is None:
        sources = _without(info.sources, uid)
        return _with_operator(replace(info, sources=sources), uid, lambda source: replace(source, split_sources=()))
    before = info.sources.get(uid, SourcePosition({}))
    return replace(info, sources={**info.sources, uid: replace(before, offset=offset)})


def _with_senders(operator: OperatorDescription, renamed: Callable[[str], str]) -> OperatorDescription:
    return replace(operator, inputs=tuple(replace(one, sender=renamed(one.sender)) for one in operator.inputs))


def _with_states(
    info: SavepointInfo, uid: str, change: Callable[[Mapping[str, StateDescription]], Mapping[str, StateDescription]]
) -> SavepointInfo:
    return _with_operator(info, uid, lambda operator: replace(operator, states=change(operator.states)))


def _with_operator(
    info: SavepointInfo, uid: str, change: Callable[[OperatorDescription], OperatorDescription]
) -> SavepointInfo:
    """Change the description of an operator in all programs that have it."""
    programs = [
        replace(one, operators={**one.operators, uid: change(one.operators[uid])}) if uid in one.operators else one
        for one in info.programs
    ]
    return replace(info, programs=programs)


def _with_last(info: SavepointInfo, uid: str, operator: OperatorDescription) -> SavepointInfo:
    """Describe an operator in the last program."""
    *earlier, last = info.programs
    return replace(info, programs=[*earlier, replace(last, operators={**last.operators, uid: operator})])


def _without(values: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in values.items() if key != name}
