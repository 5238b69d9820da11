"""Checks the positions that an edit gives to sources. Offsets are described in ``dsv2.runtime.sources.offsets``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsv2.errors import ConfigurationError
from dsv2.graph import Plan
from dsv2.sources import IndexedSource

_POSITION, _ENDED, _STREAMS = "position", "ended", "streams"
_OF_SOURCE = ("at", "enumerator", "from")  # parts of an offset that the source defines


def _has_ended(offset: Mapping[str, Any]) -> bool:
    """Return whether a subtask of the source has read its input to the end."""
    readers = offset.get("readers", ())
    return bool(offset.get(_ENDED)) or any(reader[_ENDED] is not None for reader in readers)


def check_new_position(uid: str, before: Mapping[str, Any], after: Mapping[str, Any] | None) -> None:
    """Check a new position of a source.

    Args:
        uid: The source.
        before: Its position in the savepoint.
        after: The new one; None: the beginning.

    Raises:
        ConfigurationError: The source cannot have that position; says why.
    """
    if (reason := next(_reasons(before, after), None)) is not None:
        raise ConfigurationError(f"Source {uid!r} cannot have the position {after}: {reason}.")


def check_first_position(plan: Plan, uid: str, offset: Mapping[str, Any] | None) -> None:
    """Check a position of a source of a job that has not run. Parameters and errors as for ``check_new_position``."""
    (source,) = (operator.body for operator in plan.operators if operator.uid == uid)
    if not isinstance(source, IndexedSource):
        raise ConfigurationError(
            f"Source {uid!r} of a job that has not run has no position. Set where it begins with its own options."
        )
    check_new_position(uid, {_POSITION: 0}, offset)
    if offset is not None and source.count is not None and offset[_POSITION] > source.count:
        raise ConfigurationError(f"Source {uid!r} cannot have the position {offset}: it has {source.count} records.")


def _reasons(before: Mapping[str, Any], after: object) -> Iterator[str]:
    if _has_ended(before):
        yield (
            "it has reached its end, and the operators after it know this. Drop it, so that a source with its uid "
            "begins again"
        )
    if _STREAMS in before:
        yield "it is a streaming DataFrame, whose position only its own options can set"
    if after is None:
        return
    if not isinstance(after, Mapping):
        yield f"a position is a dict, such as {dict(before)}"
    elif _POSITION in before:
        yield from _of_index(after)
    else:
        yield from _other_parts("the offset", dict(before), after)


def _of_index(after: Mapping[str, Any]) -> Iterator[str]:
    position = after.get(_POSITION)
    if type(position) is not int or position < 0:
        yield f"{_POSITION!r} must be a whole number of at least 0"
    if unknown := sorted(set(after) - {_POSITION}):
        yield f"it has the unknown part {unknown[0]!r}"


def _other_parts(where: str, before: Any, after: Any) -> Iterator[str]:
    """Only what the source itself defines may change, and its form must stay."""
    if isinstance(before, dict):
        if not isinstance(after, Mapping) or before.keys() != after.keys():
            yield f"{where} must have the parts {', '.join(map(repr, before))}"
            return
        for name in before:
            check = _other_form if name in _OF_SOURCE else _other_parts
            yield from check(f"{name!r} of {where}", before[name], after[name])
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, parts in enumerate(zip(before, after, strict=True)):
            yield from _other_parts(f"number {number} of {where}", *parts)
    elif before != after or type(before) is not type(after):
        yield f"{where} must stay {before!r}"


def _other_form(where: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict):
        if not isinstance(after, Mapping) or not before.keys() <= after.keys():
            yield f"{where} must have the parts {', '.join(map(repr, before))}"
            return
        for name in before:
            yield from _other_form(f"{name!r} of {where}", before[name], after[name])
    elif before is not None and after is not None and type(before) is not type(after):
        yield f"{where} must be like {before!r}"
    elif isinstance(before, int) and before >= 0 and isinstance(after, int) and after < 0:
        yield f"{where} must not be negative"
