"""The numbers of a job as texts: a line, the facts about all of it, and the columns of a table of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from dsv2.base.printable import printable
from dsv2.jobs.summary import JobSummary, OperatorSummary
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN
from dsv2.watermark.value_text import ShownValue


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job at one moment.

    Attributes:
        name: Its name.
        state: ``running``, ``stopping``, ``finished``, ``stopped`` or ``failed``.
        elapsed_ms: The time since its start, in ms.
        summary: Its numbers.
        note: What the user should know now, or None.
    """

    name: str
    state: str
    elapsed_ms: float
    summary: JobSummary
    note: str | None = None


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


def line_of(name: str, summary: JobSummary) -> str:
    """Describe a job, the most important first."""
    if summary.batch_id < 0:
        return f"{name}: no micro-batch is complete yet"
    return f"{name}: {', '.join(_parts(summary))}"


def _parts(summary: JobSummary) -> Iterator[str]:
    yield f"micro-batch {summary.batch_id:,}{took_text(summary)}"
    rate = "" if summary.batch is None else f" ({rate_text(summary.in_rate)})"
    yield f"{count_text(summary.records_read)} records read{rate}"
    if summary.lag is not None:
        yield f"lag {count_text(summary.lag)}"
    for what, count in (("held", summary.held), ("late", summary.late), ("errors", summary.errors)):
        if count:
            yield f"{what} {count_text(count)}"
    if summary.slowest is not None:
        yield f"event time {event_time_text(summary)}"
    else:
        yield from (f"{name} {value_text(value)}" for name, value in watermarks_of(summary).items())
    if summary.busiest is not None:
        yield f"slowest {summary.busiest.name}"


def took_text(summary: JobSummary) -> str:
    """Return the duration of the last micro-batch, to follow its number."""
    return "" if summary.batch is None else f" in {duration_text(summary.batch.duration_ms)}"


def event_time_text(summary: JobSummary) -> str:
    """The lowest event time in the job, and how far it is behind the newest."""
    operator = summary.slowest
    assert operator is not None
    assert operator.event_time is not None
    found = operator.event_time
    if found.time is None:
        return f"none in {found.without} of {found.parts} of {operator.name}"
    behind = f", {duration_text(operator.behind_ms)} behind" if operator.behind_ms else ""
    return f"{time_text(found.time)}{behind}"


def watermarks_of(summary: JobSummary) -> Mapping[str, ShownValue | None]:
    """The watermarks of the program, as the last operator that receives each of them has it."""
    return {name: found.least for one in summary.operators for name, found in one.watermarks.items()}


_CURVE, _BAR = 24, 6


class JobFact(NamedTuple):
    """A fact about a job, with styles of rich. ``label``: "" if the text needs none."""

    label: str
    text: str
    style: str = ""
    label_style: str = "dim"


def facts_of(summary: JobSummary, *, blocks: bool) -> Iterator[JobFact]:
    """Return the facts about a job, the most important first. ``blocks``: Whether block characters can be shown."""
    if summary.batch_id < 0:
        yield JobFact("", "no micro-batch is complete yet", "dim")
        return
    if summary.batch is not None:
        curve = sparkline(summary.rates, _CURVE) if blocks and len(summary.rates) > 1 else ""
        yield JobFact(curve, rate_text(summary.in_rate), "bold", "cyan")
    yield JobFact("read", count_text(summary.records_read))
    if summary.lag is not None:
        yield JobFact("lag", count_text(summary.lag))
    yield JobFact("micro-batch", f"{summary.batch_id:,}{took_text(summary)}")
    yield JobFact("held", count_text(summary.held), "yellow" if summary.held else "")
    if summary.late:
        yield JobFact("late", count_text(summary.late), "yellow")
    yield JobFact("errors", count_text(summary.errors), "bold red" if summary.errors else "")
    if summary.slowest is not None:
        yield JobFact("event time", event_time_text(summary))
    else:
        yield from (JobFact(name, value_text(value)) for name, value in watermarks_of(summary).items())
    if summary.busiest is not None:
        yield JobFact("slowest", summary.busiest.name, "yellow")


@dataclass(frozen=True)
class OperatorColumn:
    """A column of the table of operators.

    Attributes:
        header: Its title.
        rank: Those with the highest are left out first if there is no room.
        cell: The text for an operator.
        style: The style of rich for an operator.
        to_right: Whether it is aligned to the right.
    """

    header: str
    rank: int
    cell: Callable[[OperatorSummary], str]
    style: Callable[[OperatorSummary], str] = lambda operator: ""
    to_right: bool = True


def columns_of(summary: JobSummary, *, blocks: bool) -> list[OperatorColumn]:
    """Return the columns that say something about this job. ``blocks``: Whether block characters can be shown."""

    def busy(operator: OperatorSummary) -> str:
        if operator.busy is None:
            return ""
        return f"{bar(operator.busy, _BAR) if blocks else ''}{operator.busy:>5.0%}"

    def busy_style(operator: OperatorSummary) -> str:
        return "yellow" if operator is summary.busiest else "green"

    def alarm(style: str, count: Callable[[OperatorSummary], int]) -> Callable[[OperatorSummary], str]:
        return lambda operator: style if count(operator) else "dim"

    def watermark(name: str) -> Callable[[OperatorSummary], str]:
        return lambda one: value_text(one.watermarks[name].least) if name in one.watermarks else ""

    identifiers = dict.fromkeys(one for operator in summary.operators for one in operator.watermarks)
    columns = [
        OperatorColumn("in", 1, lambda one: count_text(one.records_in) if one.kind != "source" else ""),
        OperatorColumn("out", 7, lambda one: count_text(one.records_out) if one.kind != "sink" else ""),
        OperatorColumn("per second", 4, lambda one: rate_text(one.rate).removesuffix("/s")),
        OperatorColumn("busy", 5, busy, busy_style),
        OperatorColumn("event time", 2, _event_time, to_right=False),
        OperatorColumn("behind", 6, lambda one: duration_text(one.behind_ms) if one.behind_ms else ""),
        *(OperatorColumn(name, 3, watermark(name)) for name in identifiers),
        OperatorColumn("held", 8, lambda one: count_text(one.held), alarm("yellow", lambda one: one.held)),
        OperatorColumn("late", 9, lambda one: count_text(one.late), alarm("yellow", lambda one: one.late)),
        OperatorColumn("errors", 0, lambda one: count_text(one.errors), alarm("bold red", lambda one: one.errors)),
        OperatorColumn("state", 10, lambda one: bytes_text(one.state_bytes) if one.state_bytes else ""),
        OperatorColumn("keys", 11, lambda one: count_text(one.keys) if one.keys else ""),
        OperatorColumn("timers", 12, lambda one: count_text(one.timers) if one.timers else ""),
    ]
    return [column for column in columns if any(column.cell(one) not in ("", "0") for one in summary.operators)]


def _event_time(operator: OperatorSummary) -> str:
    found = operator.event_time
    if found is None:
        return ""
    return time_text(found.time) if found.time is not None else f"none in {found.without} of {found.parts}"
