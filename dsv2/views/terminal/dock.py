"""Lines at the bottom of a terminal that stay there, while everything else scrolls above them.

The lines are outside of the scrolling region of the terminal. Whatever is written to the terminal meanwhile, by this
process or another such as the JVM of Spark, goes to the region and cannot damage them.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Sequence
from typing import TextIO

_LEFT_FREE = 3  # lines above the docked ones
_SMALL = 6  # so many lines may be docked if they leave less than a third of the terminal free

_SAVE, _RESTORE = "\x1b7", "\x1b8"  # the position and the style of the cursor
_DOWN = "\x1bD"  # to the same column of the next line, which scrolls at the bottom


class Dock:
    """Shows lines of several owners at the bottom of a terminal. ``stream``: The terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._lock = threading.Lock()
        self._lines: dict[int, Sequence[str]] = {}
        self._height = 0  # of what is docked now
        self._size = os.terminal_size((0, 0))
        self._is_gone = False

    @property
    def size(self) -> os.terminal_size:
        """The columns of the terminal, and how many lines of it can be docked."""
        columns, lines = self._terminal_size()
        return os.terminal_size((columns, max(0, min(lines - _LEFT_FREE, max(_SMALL, lines * 2 // 3)))))

    def _terminal_size(self) -> os.terminal_size:
        try:
            return os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            return os.terminal_size((0, 0))

    def show(self, owner: int, lines: Sequence[str]) -> None:
        """Show ``lines`` of an owner, instead of those that it has shown before. Empty: it shows nothing any more.

        Args:
            owner: Identifies the owner.
            lines: Text with styles that is not wider than the terminal. Those that do not fit are not shown.
        """
        with self._lock:
            if lines:
                self._lines[owner] = lines
            else:
                self._lines.pop(owner, None)
            self._paint()

    def _paint(self) -> None:
        size = self._terminal_size()
        lines = [line for part in self._lines.values() for line in part][: self.size.lines]
        if lines and size == self._size:  # a height that changes all the time would be restless
            lines = [*[""] * (self._height - len(lines)), *lines]
        text = ""
        if len(lines) != self._height or (lines and size != self._size):
            text += self._undock() + self._dock(len(lines), size)
        if lines:
            top = size.lines - len(lines) + 1
            shown = "".join(f"\x1b[{top + number};1H{line}\x1b[0m\x1b[K" for number, line in enumerate(lines))
            text += f"{_SAVE}{shown}{_RESTORE}"
        self._write(text)

    def _undock(self) -> str:
        if not self._height:
            return ""
        top = self._size.lines - self._height + 1
        self._height = 0
        return f"{_SAVE}\x1b[r\x1b[{top};1H\x1b[J{_RESTORE}"

    def _dock(self, height: int, size: os.terminal_size) -> str:
        self._height, self._size = height, size
        if not height:
            return ""
        # The lines of the dock are made free by scrolling. Setting a region moves the cursor.
        room = f"{_DOWN * height}\x1b[{height}A"
        return f"{room}{_SAVE}\x1b[1;{size.lines - height}r{_RESTORE}"

    def _write(self, text: str) -> None:
        # One call: the terminal does not mix it with what others write.
        if not text or self._is_gone:
            return
        try:
            self.stream.flush()
            data = text.encode(self.stream.encoding or "utf-8", errors="replace")
            while data:
                data = data[os.write(self.stream.fileno(), data) :]
        except (OSError, ValueError):  # the terminal was closed
            self._is_gone = True

    def close(self) -> None:
        """Remove all lines, and show none any more. Called when the program ends; threads may still show jobs."""
        with self._lock:
            self._lines.clear()
            self._paint()
            self._is_gone = True


_docks: dict[int, Dock] = {}


def dock_of(stream: TextIO) -> Dock:
    """Return the only dock of a terminal."""
    number = stream.fileno()
    dock = _docks.get(number)
    if dock is None or dock.stream is not stream:
        dock = _docks[number] = Dock(stream)
        atexit.register(dock.close)
    return dock
