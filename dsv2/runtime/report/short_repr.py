"""Values in errors."""

from __future__ import annotations

from typing import Any

__all__ = ("shorten",)

_LONGEST = 200


def shorten(value: Any) -> str:
    """``repr(value)``, cut to a readable length; never raises."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__qualname__} whose repr raised {type(error).__qualname__}>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
