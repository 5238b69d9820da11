"""Rows with counts: the versions of a row. At most one remains when all changes have arrived.

A change adds 1 to the count of a row, or -1. A deletion that overtakes its insertion leaves -1 for a moment. So the
counts that remain do not depend on the order of the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from dsv2.aggregates.result_field import is_nan
from dsv2.model.change import Change, ChangeKind

Versions: TypeAlias = Sequence[tuple[Any, int]]
"""Distinct rows and their counts, which are not 0. The row that was inserted last is the last one."""

_NAN = ("NaN",)
_PLAIN = frozenset({str, int, bytes, bool, type(None)})


def identity(value: Any) -> Any:
    """Return a hashable value that is the same for equal values. All NaN are equal."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float | Decimal):
        return _NAN if is_nan(value) else value
    if isinstance(value, tuple | list):
        return tuple(map(identity, value))
    if isinstance(value, dict):
        return tuple((name, identity(value[name])) for name in sorted(value))
    if is_dataclass(value):
        return tuple(identity(getattr(value, field.name)) for field in fields(value))
    return value


def same(first: Any, second: Any) -> bool:
    """Return whether two rows are equal. All NaN are."""
    if first == second:
        return True
    if type(first) in _PLAIN:
        return False
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(identity(first) == identity(second))


def weight_of(change: Change[Any]) -> int:
    """Return 1 if a change adds its row to the table, and -1 if it removes it."""
    return 1 if change.kind.adds else -1


def counted(versions: Versions, changes: Iterable[Change[Any]]) -> Versions:
    """Return the versions after some changes."""
    for change in changes:
        versions = added(versions, change.record, weight_of(change))
    return versions


def added(versions: Versions, row: Any, weight: int) -> Versions:
    """Return the versions after ``weight`` was added to the count of a row."""
    for place, (other, count) in enumerate(versions):
        if same(other, row):
            before, after = versions[:place], versions[place + 1 :]
            if count + weight == 0:
                return [*before, *after]
            if weight < 0:
                return [*before, (other, count + weight), *after]
            return [*before, *after, (other, count + weight)]
    return [*versions, (row, weight)]


def present(versions: Versions) -> Versions:
    """Return the rows that the table has."""
    return [(row, count) for row, count in versions if count > 0]


def latest(versions: Versions) -> Versions:
    """Return the row that a table with a primary key has: the one that was inserted last."""
    return [(row, 1) for row, _ in present(versions)[-1:]]


def changes_between(before: Versions, after: Versions) -> Iterator[Change[Any]]:
    """Return the changes from some rows of a table to others. One row that replaces one other is an update."""
    if len(before) == len(after) == 1 and same(before[0], after[0]):
        return
    net = after
    for row, count in before:
        net = added(net, row, -count)
    match net:
        case [(new, 1), (old, -1)]:
            yield Change(ChangeKind.UPDATE_BEFORE, old)
            yield Change(ChangeKind.UPDATE_AFTER, new)
        case _:
            for row, count in sorted(net, key=_count):
                yield from repeated(row, count)


def repeated(row: Any, weight: int) -> Iterator[Change[Any]]:
    """Return the changes that add ``weight`` to the count of a row."""
    kind = ChangeKind.INSERT if weight > 0 else ChangeKind.DELETE
    for _ in range(abs(weight)):
        yield Change(kind, row)


def _count(version: tuple[Any, int]) -> int:
    return version[1]
