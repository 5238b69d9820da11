"""A chart of events over time: in the terminal, or as a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, count
from math import ceil
from pathlib import Path

from dsv2.errors import ConfigurationError
from examples.console import format_time

__all__ = ("require_matplotlib", "save_chart", "span_text", "text_chart")

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_NICE_SPANS_MS = [60_000 * minutes for minutes in (1, 5, 10, 30, 60, 360, 720, 1440, 2 * 1440, 7 * 1440, 28 * 1440)]


def text_chart(times: Sequence[int], *, columns: int = 60, height: int = 6) -> list[str]:
    """Draw how many events there were over time, as bars.

    Args:
        times: The times in ms since the epoch.
        columns: The greatest width of the bars, at least 2.
        height: The height of the highest one, in lines.
    """
    counts, begin, span = _counts(times, columns)
    top = max(counts, default=0)
    if not top:
        return []
    eighths = [ceil(count / top * height * 8) for count in counts]
    margin = len(f"{top:,}")
    lines = []
    for line in reversed(range(height)):
        bars = "".join(_EIGHTHS[min(8, max(0, each - line * 8))] for each in eighths)
        label = f"{top:,}" if line == height - 1 else "0" if line == 0 else ""
        lines.append(f"{label:>{margin}} ┤{bars}".rstrip())
    first, last = format_time(begin), format_time(begin + span * len(counts))
    axis = first if len(counts) < len(first) + len(last) + 2 else f"{first}{last:>{len(counts) - len(first)}}"
    return [*lines, f"{'':{margin}} └{'─' * len(counts)}", f"{'':{margin + 2}}{axis}"]


def span_text(times: Sequence[int], *, columns: int = 60) -> str:
    """Return the time of one bar of ``text_chart``, such as ``7 days``."""
    minutes = _counts(times, columns)[2] // 60_000
    for unit, size in (("day", 1440), ("hour", 60), ("minute", 1)):
        if minutes % size == 0:
            number = minutes // size
            return unit if number == 1 else f"{number} {unit}s"
    raise AssertionError


def _counts(times: Sequence[int], columns: int) -> tuple[list[int], int, int]:
    """The number of events in each of at most ``columns`` spans of time, the first begin, and the length of a span."""
    if not times:
        return [], 0, _NICE_SPANS_MS[0]
    first, last = min(times), max(times)
    longer = (_NICE_SPANS_MS[-1] * number for number in count(2))
    span = next(span for span in chain(_NICE_SPANS_MS, longer) if last // span - first // span < columns)
    counts = [0] * (last // span - first // span + 1)
    for time in times:
        counts[time // span - first // span] += 1
    return counts, first // span * span, span


def require_matplotlib() -> None:
    """Raise ``ConfigurationError`` if matplotlib, which ``save_chart`` needs, is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigurationError("A chart as a file requires matplotlib: pip install matplotlib") from error


def save_chart(times: Sequence[int], title: str, file: Path) -> None:
    """Write the chart as a file. ``file``: Its suffix says the format, such as ``.png`` or ``.svg``."""
    from matplotlib.figure import Figure

    counts, begin, span = _counts(times, 120)
    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.add_subplot()
    starts = [datetime.fromtimestamp((begin + span * number) / 1000, UTC) for number in range(len(counts))]
    axes.bar(starts, counts, width=span / 86_400_000, align="edge", color="#00796b")  # type: ignore[arg-type]
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)
