"""Formatting of text for table cells."""

from __future__ import annotations

__all__ = ("last_error", "one_line")

_LENGTH = 300


def one_line(text: str) -> str:
    """The beginning of ``text`` on one line."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= _LENGTH else f"{line[:_LENGTH]}…"


def last_error(log: str) -> str:
    """The last error of a Python program, without its traceback."""
    *_, last = log.rsplit("Traceback (most recent call last):", 1)
    lines = last.splitlines()
    # Frames are indented, and so may be the lines of the message after them.
    start = next((number for number, line in enumerate(lines) if number and line and not line.startswith(" ")), 0)
    return "\n".join(lines[start:])
