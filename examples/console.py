"""The terminal output of the examples: a progress line, and tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

__all__ = ("ProgressLine", "format_table", "format_time")


class ProgressLine:
    """A line on standard error that is overwritten. If it is not a terminal, a new line every few micro-batches."""

    BATCHES_PER_LINE = 5

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last_batch = -1
        self._shown = ""

    def show(self, text: str, batch_id: int) -> None:
        """Show ``text`` as the state after micro-batch ``batch_id``. Unchanged text is ignored."""
        if text == self._shown:
            return
        self._shown = text
        if self._terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif batch_id >= self._last_batch + self.BATCHES_PER_LINE:
            self._last_batch = batch_id
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Clear the line for other output."""
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


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
