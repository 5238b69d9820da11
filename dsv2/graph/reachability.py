"""Reachability in a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def reachable(starts: Iterable[N], neighbours: Callable[[N], Iterable[N]]) -> set[N]:
    """Return ``starts``, and all that can be reached from them. ``neighbours``: Returns the next ones."""
    found: set[N] = set()
    waiting = [*starts]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting += neighbours(current)
    return found
