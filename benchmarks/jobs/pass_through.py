"""Pass-through: every event is passed through an identity function to a sink that adds up the values."""

from __future__ import annotations

from typing import TypeVar

__all__ = ("passed",)

T = TypeVar("T")


def passed(event: T) -> T:
    """Return the event."""
    return event
