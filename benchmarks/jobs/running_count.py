"""Running count: every event of a user gives the number of events of that user so far, kept in the state of the key."""

from __future__ import annotations

__all__ = ("one_more",)


def one_more(count: int) -> int:
    """What a function does with its state."""
    return count + 1
