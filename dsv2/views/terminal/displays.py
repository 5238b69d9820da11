"""The displays of a live view: the bottom of a terminal, or lines in a file or pipe."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol, TextIO

from dsv2.views.terminal.dock import Dock, dock_of
from dsv2.views.terminal.notebook import NotebookDisplay, is_in_notebook
from dsv2.views.terminal.texts import ShownJob, line_of

_LINE_EVERY_SECONDS = 5.0
_LEAST_COLUMNS, _LEAST_LINES = 20, 3
_NO_CURSOR = ("", "dumb", "unknown")
_HINT = "For a detailed view of the job: pip install 'dsv2[cli]'"

_hinted = False


class Display(Protocol):
    """Shows one job."""

    def show(self, job: ShownJob) -> None:
        """Called about every second, and after each micro-batch."""

    def end(self, job: ShownJob) -> None:
        """Called once, when the job has ended."""


class Docked:
    """Shows a job at the bottom of a terminal while it runs. ``dock``: The lines there."""

    def __init__(self, dock: Dock, stream: TextIO) -> None:
        self._dock = dock
        self._stream = stream
        self._lines = self._rich_lines() if find_spec("rich") is not None else self._plain_lines()

    def show(self, job: ShownJob) -> None:
        """Show the job."""
        size = self._dock.size
        self._dock.show(id(self), self._lines(job, size.columns, size.lines))

    def end(self, job: ShownJob) -> None:
        """Remove the lines."""
        self._dock.show(id(self), ())

    def _rich_lines(self) -> Callable[[ShownJob, int, int], list[str]]:
        from dsv2.views.terminal.screen import Screen

        return Screen(self._stream).lines

    def _plain_lines(self) -> Callable[[ShownJob, int, int], list[str]]:
        global _hinted
        if not _hinted:
            _hinted = True
            print(_HINT, file=self._stream, flush=True)

        def lines(job: ShownJob, columns: int, lines: int) -> list[str]:
            note = "" if job.note is None else f" {job.note}"
            return [f"{line_of(job.name, job.summary)}{note}"[: max(0, columns - 1)]]

        return lines


class Lines:
    """Prints a line about a job every few seconds, if there is news.

    Args:
        stream: Where to print.
        seconds: The time in s.
    """

    def __init__(self, stream: TextIO, seconds: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._seconds = seconds
        self._printed_at = seconds()
        self._printed: str | None = None

    def show(self, job: ShownJob) -> None:
        """Print a line if there has been none for a while."""
        if self._seconds() - self._printed_at >= _LINE_EVERY_SECONDS:
            self._print(job)

    def end(self, job: ShownJob) -> None:
        """Print the last line if there were others."""
        if self._printed is not None:
            self._print(job)

    def _print(self, job: ShownJob) -> None:
        line = line_of(job.name, job.summary)
        if line == self._printed:
            return
        self._printed, self._printed_at = line, self._seconds()
        try:
            print(line, file=self._stream, flush=True)
        except (OSError, ValueError):  # it was closed
            self._printed_at = float("inf")


def display_on(stream: TextIO) -> Display:
    """Return the display for a stream: docked if it is a terminal that can do that, otherwise lines.

    In the kernel of a notebook, it is a table below the cell.
    """
    if is_in_notebook():
        return NotebookDisplay()
    try:
        if stream.isatty() and os.environ.get("TERM", "") not in _NO_CURSOR:
            dock = dock_of(stream)
            if dock.size.columns >= _LEAST_COLUMNS and dock.size.lines >= _LEAST_LINES:
                return Docked(dock, stream)
    except (OSError, ValueError):  # it has no file descriptor, or is closed
        pass
    return Lines(stream)
