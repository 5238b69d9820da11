"""Short forms for durations in tests."""

from __future__ import annotations

from datetime import timedelta

__all__ = ("ms",)


def ms(milliseconds: float) -> timedelta:
    """A duration in milliseconds."""
    return timedelta(milliseconds=milliseconds)
