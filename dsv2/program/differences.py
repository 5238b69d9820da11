"""Compares the description of a program with that of an earlier one, whose state it is to continue."""

from __future__ import annotations

from typing import Any

from dsv2.graph import Exchange, OperatorKind
from dsv2.program.class_changes import class_changes
from dsv2.program.description import Description

__all__ = ("differences",)

_PARALLELISM = (("parallelism", "its parallelism"), ("max_parallelism", "its max parallelism"))
_SOURCE = OperatorKind.SOURCE.value
_BY_PARALLELISM = {Exchange.FORWARD.value, Exchange.REBALANCE.value}  # the parallelism decides between the two


def differences(before: Description, now: Description) -> list[str]:
    """List the differences that prevent ``now`` from continuing after ``before``, one sentence each."""
    if before["format_version"] != now["format_version"]:
        return [
            f"it was written with state format {before['format_version']}, but this version of dsv2 writes "
            f"{now['format_version']}"
        ]
    found = []
    old, new = before["operators"], now["operators"]
    for uid in old.keys() - new.keys():
        hint = f"; the operator that continues its state needs with_uid({uid!r})" if old[uid]["automatic_uid"] else ""
        found.append(f"operator {uid!r} (defined at {old[uid]['defined_at']}) was removed, or has another uid{hint}")
    for uid in new.keys() - old.keys():
        found.append(f"operator {uid!r} (defined at {new[uid]['defined_at']}) is new, or has another uid")
    found.sort()
    same_python = before["python"] == now["python"]
    for uid in (uid for uid in new if uid in old):
        where = f"operator {uid!r} (defined at {new[uid]['defined_at']})"
        found.extend(f"{where}: {change}" for change in _operator_changes(old[uid], new[uid], same_python))
    sources = [[uid for uid, operator in program.items() if operator["kind"] == _SOURCE] for program in (old, new)]
    if not found and sources[0] != sources[1]:  # Spark identifies them by their order
        was, now_is = map(", ".join, sources)
        found.append(f"the order of the sources was {was} and is now {now_is}")
    old, new = before["watermarks"], now["watermarks"]
    for identifier in sorted(old.keys() | new.keys()):
        found.extend(_watermark_changes(identifier, old.get(identifier), new.get(identifier)))
    return found


def _operator_changes(old: dict[str, Any], new: dict[str, Any], same_python: bool) -> list[str]:
    parallelism = () if old["stateless"] and new["stateless"] else _PARALLELISM
    changes = [
        f"{what} was {old[name]} and is now {new[name]}"
        for name, what in (
            ("kind", "its kind"),
            *parallelism,
            ("needs_clock", "its use of processing-time timers"),  # Spark stores timeouts with the state
            ("state_layout", "the content of its state"),
        )
        if old[name] != new[name]
    ]
    if len(old["inputs"]) != len(new["inputs"]):
        return changes  # the kind has changed, which is in the list
    for number, (before, now) in enumerate(zip(old["inputs"], new["inputs"], strict=True)):
        changes.extend(
            f"{what} of input {number} was {before[name]!r} and is now {now[name]!r}"
            for name, what in (("from", "the origin"), ("output", "the output"), ("exchange", "the partitioning"))
            if before[name] != now[name] and not (name == "exchange" and _may_change(before, now))
        )
        if (change := _key_change(before["key"], now["key"], same_python)) is not None:
            changes.append(f"the key selector of input {number} {change}")
    for name in (name for name in new["states"] if name in old["states"]):  # states may be added and removed
        before, now = old["states"][name], new["states"][name]
        changes.extend(
            f"state {name!r}: its {part.replace('_', ' ')} was {before[part]} and is now {now[part]}"
            for part in before
            if part != "classes" and before[part] != now[part]
        )
        changes.extend(f"state {name!r}: {change}" for change in class_changes(before["classes"], now["classes"]))
    if len(old["output_keys"]) != len(new["output_keys"]):
        return changes  # the kind has changed
    for number, (before, now) in enumerate(zip(old["output_keys"], new["output_keys"], strict=True)):
        if (change := _key_change(before, now, same_python)) is not None:
            changes.append(f"the key selector of output {number} {change}")
    return changes


def _key_change(before: dict[str, Any] | None, now: dict[str, Any] | None, same_python: bool) -> str | None:
    if before is None or now is None:
        return None if before is now else "has changed"
    if now["version"] is not None:
        # The user declares by it that the keys are unchanged. A selector without a version has version 1.
        version = before["version"] or 1
        return None if version == now["version"] else f"was version {version} and is now version {now['version']}"
    if same_python and before["digest"] != now["digest"]:
        return f"has changed; if all keys stay the same, give it version={before['version'] or 1}"
    return None


def _may_change(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether the partitioning differs only because the parallelism of a stateless operator has changed."""
    return (
        before["from_stateless"] and now["from_stateless"] and {before["exchange"], now["exchange"]} <= _BY_PARALLELISM
    )


def _watermark_changes(identifier: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[str]:
    if old is None or new is None:
        return [f"watermark {identifier!r} is {'no longer' if new is None else 'newly'} declared"]
    return [
        f"watermark {identifier!r}: {name.replace('_', ' ')} was {old[name]} and is now {new[name]}"
        for name in old
        if old[name] != new[name]
    ]
