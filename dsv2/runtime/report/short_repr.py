"""Short representations of values for error messages."""

from __future__ import annotations

from typing import Any

from dsv2.base.printable import printable_lines, safe_repr

_LONGEST = 200


def shorten(value: Any) -> str:
    """Return ``repr(value)``, truncated to a readable length, without control characters. Never raises."""
    text = printable_lines(safe_repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
