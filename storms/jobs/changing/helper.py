"""A module that the program imports."""

from __future__ import annotations

from typing import Any

__all__ = ("pick",)


def pick(record: Any) -> str:
    """Return the key of a record."""
    key: str = record.key
    return key
