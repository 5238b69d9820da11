"""Running count: for every event, emit the number of events of its user so far, which is kept in keyed state."""

from __future__ import annotations

__all__ = ("one_more",)


def one_more(count: int) -> int:
    """Return the new state of a key."""
    return count + 1
