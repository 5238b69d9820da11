"""Finds out that a value is too large before it is encoded, which takes its size in memory once more."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from dsv2.runtime.serde.nested import Nested

_MOST_VISITED = 10_000
_TEXTS = frozenset({bytes, str})
_SCALARS = frozenset({bool, float, int, type(None)})
_LISTS = (list, tuple, set, frozenset)


def least_size(value: Any) -> int:
    """Return a number of bytes that the encoding of ``value`` exceeds.

    Members of containers that are all strings, bytes or numbers are counted at the speed of C. Of other objects only
    some thousands are visited, so this takes some milliseconds at most.
    """
    size = 0
    seen: set[int] = set()  # an object that is shared is encoded once
    waiting = [value]
    for _ in range(_MOST_VISITED):
        if not waiting:
            break
        one = waiting.pop()
        kind = type(one)
        if kind in _TEXTS:
            size += len(one)
        elif id(one) not in seen:
            seen.add(id(one))
            if kind is bytearray:
                size += len(one)
            elif kind is Nested:
                waiting.append(one.value)
            else:
                for members in _members(one, kind):
                    size += _of_members(members, waiting)
    return size


def _members(one: Any, kind: type) -> Iterable[Collection[Any]]:
    if kind is dict:
        return one.keys(), one.values()
    if kind in _LISTS:
        return (one,)
    attributes = getattr(one, "__dict__", None)
    return (attributes.values(),) if type(attributes) is dict else ()


def _of_members(members: Collection[Any], waiting: list[Any]) -> int:
    kinds = set(map(type, members))
    if kinds <= _TEXTS:
        return sum(map(len, members))
    if kinds <= _SCALARS:
        return len(members)
    waiting.extend(members)
    return 0
