"""Short representations of values for error messages."""

from __future__ import annotations

from typing import Any

__all__ = ("shorten",)

_LONGEST = 200


def shorten(value: Any) -> str:
    """Return ``repr(value)``, truncated to a readable length. Never raises."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__qualname__} whose __repr__ raised {type(error).__qualname__}>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
