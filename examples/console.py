"""The terminal output of the examples."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

__all__ = ("format_table", "format_time")


def format_table(header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    """Format a table with right-aligned numbers and left-aligned text."""
    texts = [list(header), *([f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    numeric = [bool(rows) and isinstance(cell, int) for cell in (rows[0] if rows else header)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in texts
    )


def format_time(milliseconds: int) -> str:
    """Format a time in ms since the epoch, in UTC, to the minute."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")
