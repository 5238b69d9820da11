"""Numbers, durations and times as short texts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dsv2.base.printable import printable
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN
from dsv2.watermark.value_text import ShownValue

_EXACT_BELOW = 10_000_000
_UNITS = ("", "k", "M", "G", "T", "P")
_PLAUSIBLE_MS = range(631_152_000_000, 4_102_444_800_000)  # 1990 to 2100
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def count_text(count: int) -> str:
    """``12,345``, and ``12.3 M`` from ten million on."""
    return f"{count:,}" if abs(count) < _EXACT_BELOW else _scaled(count, 1_000)


def rate_text(per_second: float) -> str:
    """``12,345/s``, and ``0.4/s`` below ten."""
    return f"{per_second:.1f}/s" if 0 < per_second < 9.95 else f"{count_text(round(per_second))}/s"


def bytes_text(size: int) -> str:
    """``3.2 MB``."""
    return f"{_scaled(size, 1_000)}B" if size >= 1_000 else f"{size} B"


def _scaled(value: float, step: int) -> str:
    unit = 0
    while abs(value) >= step and unit < len(_UNITS) - 1:
        value, unit = value / step, unit + 1
    return f"{value:.1f} {_UNITS[unit]}"


def duration_text(milliseconds: float) -> str:
    """``85 ms``, ``3.2 s``, ``42 s``, ``3:12 min``, ``2:03:12 h`` or ``3 d 4 h``."""
    ms = max(0, round(milliseconds))
    if ms < _SECOND:
        return f"{ms} ms"
    if ms < 10 * _SECOND:
        return f"{ms / _SECOND:.1f} s"
    if ms < _MINUTE:
        return f"{ms // _SECOND} s"
    if ms < _HOUR:
        return f"{ms // _MINUTE}:{ms % _MINUTE // _SECOND:02} min"
    if ms < 2 * _DAY:
        return f"{ms // _HOUR}:{ms % _HOUR // _MINUTE:02}:{ms % _MINUTE // _SECOND:02} h"
    return f"{ms // _DAY} d {ms % _DAY // _HOUR} h"


def time_text(milliseconds: int | None) -> str:
    """An event time in UTC: ``2013-03-04 12:30:05``, ``end`` or ``none``."""
    if milliseconds is None or milliseconds <= LONG_MIN:
        return "none"
    if milliseconds >= LONG_MAX:
        return "end"
    try:
        return datetime.fromtimestamp(milliseconds // _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds:,}"


def value_text(value: ShownValue | None) -> str:
    """The value of a watermark. A number that can be a time of 1990 to 2100 in ms is shown as one."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int):
        return printable(value) if isinstance(value, str) else f"{value:,}"
    return time_text(value) if value in _PLAUSIBLE_MS or abs(value) >= LONG_MAX else f"{value:,}"


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
