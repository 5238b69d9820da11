"""A job on several lines of a terminal, by the package rich. Imported only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from dsv2.job_summary import JobSummary, OperatorSummary
from dsv2.terminal.blocks import bar, can_show_blocks, sparkline
from dsv2.terminal.plain import event_time_text, watermarks_of
from dsv2.terminal.texts import bytes_text, count_text, duration_text, rate_text, time_text, value_text

if TYPE_CHECKING:
    from dsv2.terminal.shown import ShownJob

__all__ = ("Screen", "job_text")

_LEAST_COLUMNS = 40
_LONGEST_NAME = 32
_CURVE, _BAR = 24, 6
_GAP = 2


class Screen:
    """Renders jobs for a terminal, with its colours. ``stream``: The terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, emoji=False, markup=False)
        self._blocks = can_show_blocks(self._console.encoding)

    def lines(self, job: ShownJob, columns: int, lines: int) -> list[str]:
        """Return at most ``lines`` lines with escape sequences for styles, not wider than ``columns``."""
        shown = job_text(job, columns, lines, blocks=self._blocks)
        with self._console.capture() as captured:
            for line in shown:
                self._console.print(line, soft_wrap=True)
        return captured.get().splitlines()


def job_text(job: ShownJob, columns: int, lines: int, *, blocks: bool = True) -> list[Text]:
    """Return the lines that show a job.

    Args:
        job: The job.
        columns: The width of the terminal.
        lines: The greatest number of lines.
        blocks: Whether the terminal can show block characters.
    """
    head = [_title(job, columns, blocks=blocks), *_facts(job, columns, blocks=blocks)]
    foot = [] if job.note is None else [_clipped(Text(job.note, "bold yellow"), columns)]
    left = lines - len(head) - len(foot)
    table = _table(job.summary, columns, left, blocks=blocks) if columns >= _LEAST_COLUMNS else []
    return [*[*head, *table][: lines - len(foot)], *foot]


def _title(job: ShownJob, columns: int, *, blocks: bool) -> Text:
    dash, dot = ("─", "●") if blocks else ("-", "*")
    colour = {"failed": "red", "stopping": "yellow", "stopped": "yellow"}.get(job.state, "green")
    title = Text.assemble(
        (f"{dash * 2} ", "cyan"),
        (job.name, "bold"),
        "  ",
        (dot, colour),
        f" {job.state}  ",
        (duration_text(job.elapsed_ms), ""),
        " ",
    )
    title.append(dash * max(0, columns - title.cell_len), "cyan")
    return _clipped(title, columns)


def _facts(job: ShownJob, columns: int, *, blocks: bool) -> list[Text]:
    """The facts about the whole job, on as many lines as they need."""
    lines = [Text()]
    for fact in _fact_texts(job.summary, blocks=blocks):
        if lines[-1] and lines[-1].cell_len + 3 + fact.cell_len > columns:
            lines.append(Text())
        lines[-1].append_text(Text("   " if lines[-1] else "")).append_text(fact)
    return [_clipped(line, columns) for line in lines]


def _fact_texts(summary: JobSummary, *, blocks: bool) -> Iterator[Text]:
    if summary.batch_id < 0:
        yield Text("no micro-batch is complete yet", "dim")
        return
    if summary.batch is not None:
        curve = sparkline(summary.rates, _CURVE) if blocks and len(summary.rates) > 1 else ""
        yield Text.assemble((curve, "cyan"), " " if curve else "", (rate_text(summary.in_rate), "bold"))
    yield _fact("read", count_text(summary.records_read))
    if summary.lag is not None:
        yield _fact("lag", count_text(summary.lag))
    took = "" if summary.batch is None else f" in {duration_text(summary.batch.duration_ms)}"
    yield _fact("micro-batch", f"{summary.batch_id:,}{took}")
    yield _fact("held", count_text(summary.held), "yellow" if summary.held else "")
    if summary.late:
        yield _fact("late", count_text(summary.late), "yellow")
    yield _fact("errors", count_text(summary.errors), "bold red" if summary.errors else "")
    if summary.slowest is not None:
        yield _fact("event time", event_time_text(summary))
    else:
        yield from (_fact(name, value_text(value)) for name, value in watermarks_of(summary).items())
    if summary.busiest is not None:
        yield _fact("slowest", summary.busiest.name, "yellow")


def _fact(label: str, value: str, style: str = "") -> Text:
    return Text.assemble((f"{label} ", "dim"), (value, style))


@dataclass(frozen=True)
class _Column:
    """A column of the table. ``rank``: Those with the highest are left out first if there is no room."""

    header: str
    rank: int
    cell: Callable[[OperatorSummary], str]
    style: Callable[[OperatorSummary], str] = lambda operator: ""
    to_right: bool = True


def _columns(summary: JobSummary, *, blocks: bool) -> list[_Column]:
    """The columns that say something about this job."""

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
        _Column("in", 1, lambda one: count_text(one.records_in) if one.kind != "source" else ""),
        _Column("out", 7, lambda one: count_text(one.records_out) if one.kind != "sink" else ""),
        _Column("per second", 4, lambda one: rate_text(one.rate).removesuffix("/s")),
        _Column("busy", 5, busy, busy_style),
        _Column("event time", 2, _event_time, to_right=False),
        _Column("behind", 6, _behind),
        *(_Column(name, 3, watermark(name)) for name in identifiers),
        _Column("held", 8, lambda one: count_text(one.held), alarm("yellow", lambda one: one.held)),
        _Column("late", 9, lambda one: count_text(one.late), alarm("yellow", lambda one: one.late)),
        _Column("errors", 0, lambda one: count_text(one.errors), alarm("bold red", lambda one: one.errors)),
        _Column("state", 10, lambda one: bytes_text(one.state_bytes) if one.state_bytes else ""),
        _Column("keys", 11, lambda one: count_text(one.keys) if one.keys else ""),
        _Column("timers", 12, lambda one: count_text(one.timers) if one.timers else ""),
    ]
    return [column for column in columns if any(column.cell(one) not in ("", "0") for one in summary.operators)]


def _event_time(operator: OperatorSummary) -> str:
    found = operator.event_time
    if found is None:
        return ""
    return time_text(found.time) if found.time is not None else f"none in {found.without} of {found.parts}"


def _behind(operator: OperatorSummary) -> str:
    return duration_text(operator.behind_ms) if operator.behind_ms else ""


def _table(summary: JobSummary, columns: int, lines: int, *, blocks: bool) -> list[Text]:
    rows, left_out = _chosen(summary, lines - 1)
    if not rows:
        return []
    names = [_shortened(row.name, min(_LONGEST_NAME, columns // 2), blocks=blocks) for row in rows]
    name_width = max(map(cell_len, ("operator", *names)))
    fitting = _fitting(_columns(summary, blocks=blocks), rows, columns - name_width)
    header = Text(set_cell_size("operator", name_width), "dim")
    for column, width in fitting:
        header.append(" " * _GAP + _aligned(column, column.header, width), "dim")
    table = [header]
    for row, name in zip(rows, names, strict=True):
        line = Text(set_cell_size(name, name_width), "yellow" if row is summary.busiest else "")
        for column, width in fitting:
            line.append(" " * _GAP + _aligned(column, column.cell(row), width), column.style(row))
        table.append(line)
    if left_out:
        table.append(Text(f"and {left_out} other operators", "dim"))
    return [_clipped(line, columns) for line in table]


def _chosen(summary: JobSummary, lines: int) -> tuple[Sequence[OperatorSummary], int]:
    """The operators that fit, in order: those that need attention, then those with the most work."""
    operators = summary.operators
    if len(operators) <= lines:
        return operators, 0

    def attention(number: int) -> tuple[bool, bool, float]:
        one = operators[number]
        return one is summary.busiest or one is summary.slowest, one.errors + one.held > 0, one.busy or 0.0

    numbers = sorted(range(len(operators)), key=attention, reverse=True)[: max(0, lines - 1)]
    return [operators[number] for number in sorted(numbers)], len(operators) - len(numbers)


def _fitting(columns: Iterable[_Column], rows: Sequence[OperatorSummary], room: int) -> list[tuple[_Column, int]]:
    """The columns for which there is room, with their widths."""
    widths = [
        (column, max(cell_len(column.header), *(cell_len(column.cell(row)) for row in rows))) for column in columns
    ]
    while widths and sum(_GAP + width for _, width in widths) > room:
        widths.remove(max(widths, key=lambda one: one[0].rank))
    return widths


def _aligned(column: _Column, text: str, width: int) -> str:
    missing = " " * (width - cell_len(text))
    return missing + text if column.to_right else text + missing


def _shortened(text: str, width: int, *, blocks: bool) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1) + ("…" if blocks else "~")


def _clipped(text: Text, columns: int) -> Text:
    text.truncate(columns)
    return text
