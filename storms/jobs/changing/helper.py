"""What the program imports."""

from __future__ import annotations

from typing import Any

__all__ = ("pick",)


def pick(record: Any) -> str:
    """A key."""
    key: str = record.key
    return key
