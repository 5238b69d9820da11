"""Short ways to write durations in tests."""

from __future__ import annotations

from datetime import timedelta

__all__ = ("ms",)


def ms(milliseconds: float) -> timedelta:
    """A duration of so many milliseconds."""
    return timedelta(milliseconds=milliseconds)
