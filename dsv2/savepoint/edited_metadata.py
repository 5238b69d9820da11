"""Edits of a savepoint, as they change its description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from dsv2.checkpoint.description import Description
from dsv2.checkpoint.record import JsonObject, SourcePosition
from dsv2.savepoint.metadata import SavepointInfo

V = TypeVar("V")


def with_renamed_operator(info: SavepointInfo, old: str, new: str) -> SavepointInfo:
    """Give an operator another uid. The operators after it receive from that."""

    def renamed(uid: str) -> str:
        return new if uid == old else uid

    def program(before: Description) -> Description:
        operators = {
            renamed(uid): {
                **operator,
                "automatic_uid": operator.get("automatic_uid", False) and uid != old,
                "inputs": [{**one, "from": renamed(one["from"])} for one in operator.get("inputs", ())],
            }
            for uid, operator in before["operators"].items()
        }
        return {**before, "operators": operators}

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


def with_operator(info: SavepointInfo, uid: str, described: JsonObject) -> SavepointInfo:
    """Add an operator to the last program. It has not received anything, so all its senders are new."""
    *earlier, last = info.programs
    inputs = [{**one, "from": f"{one['from']} (added)"} for one in described["inputs"]]
    operators = {**last["operators"], uid: {**described, "inputs": inputs}}
    return replace(info, programs=[*earlier, {**last, "operators": operators}])


def without_operator(info: SavepointInfo, uid: str) -> SavepointInfo:
    """Drop an operator. Another one with its uid is a new sender for the operators after it."""

    def still(sender: str) -> str:
        return f"{uid} (dropped)" if sender == uid else sender

    def program(before: Description) -> Description:
        operators = {
            other: {**operator, "inputs": [{**one, "from": still(one["from"])} for one in operator.get("inputs", ())]}
            for other, operator in before["operators"].items()
            if other != uid
        }
        return {**before, "operators": operators}

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


def with_state(info: SavepointInfo, uid: str, name: str, described: JsonObject) -> SavepointInfo:
    """Declare a state in the last program, and in no other: no earlier values are left."""
    *earlier, last = without_state(info, uid, name).programs
    operator = last["operators"][uid]
    states = dict(sorted([*operator["states"].items(), (name, described)]))
    operators = {**last["operators"], uid: {**operator, "states": states, "keeps_state": True}}
    return replace(info, programs=[*earlier, {**last, "operators": operators}])


def with_position(info: SavepointInfo, uid: str, offset: JsonObject | None) -> SavepointInfo:
    """Set the position of a source; None: it has none, so it begins as in a new job."""
    if offset is None:
        sources = _without(info.sources, uid)
        return _with_operator(replace(info, sources=sources), uid, lambda source: {**source, "split_sources": []})
    before = info.sources.get(uid, SourcePosition({}))
    return replace(info, sources={**info.sources, uid: replace(before, offset=offset)})


def _with_states(
    info: SavepointInfo, uid: str, change: Callable[[Mapping[str, JsonObject]], Mapping[str, JsonObject]]
) -> SavepointInfo:
    return _with_operator(info, uid, lambda operator: {**operator, "states": change(operator["states"])})


def _with_operator(info: SavepointInfo, uid: str, change: Callable[[JsonObject], JsonObject]) -> SavepointInfo:
    """Change the description of an operator in all programs that have it."""

    def program(before: Description) -> Description:
        operators = before["operators"]
        if uid not in operators:
            return before
        return {**before, "operators": {**operators, uid: change(operators[uid])}}

    return replace(info, programs=list(map(program, info.programs)))


def _without(values: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in values.items() if key != name}
