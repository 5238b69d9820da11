"""Bars and curves of Unicode block characters."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS_UP = "▁▂▃▄▅▆▇█"
_EIGHTHS_RIGHT = " ▏▎▍▌▋▊▉█"


def can_show_blocks(encoding: str | None) -> bool:
    """Return whether the characters of this module exist in an encoding."""
    try:
        f"{_EIGHTHS_UP}{_EIGHTHS_RIGHT}─●…·".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve of the last ``width`` values."""
    shown = values[-width:] if width > 0 else ()
    top = max(shown, default=0.0)
    if top <= 0:
        return _EIGHTHS_UP[0] * len(shown)
    return "".join(_EIGHTHS_UP[min(7, int(max(0.0, value) / top * 8))] for value in shown)


def bar(share: float, width: int) -> str:
    """A bar that fills ``share`` of ``width`` characters, to an eighth of a character."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    return (_EIGHTHS_RIGHT[8] * (eighths // 8) + _EIGHTHS_RIGHT[eighths % 8])[:width].ljust(width)
