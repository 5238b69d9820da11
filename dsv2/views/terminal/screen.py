"""A job on several lines of a terminal, by the package rich. Imported only when it is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from dsv2.jobs.summary import JobSummary, OperatorSummary
from dsv2.views.terminal.texts import OperatorColumn, can_show_blocks, columns_of, duration_text, facts_of

if TYPE_CHECKING:
    from dsv2.views.terminal.texts import ShownJob


_LEAST_COLUMNS = 40
_LONGEST_NAME = 32
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
    for label, value, style, label_style in facts_of(job.summary, blocks=blocks):
        fact = Text.assemble((label, label_style), " " if label else "", (value, style))
        if lines[-1] and lines[-1].cell_len + 3 + fact.cell_len > columns:
            lines.append(Text())
        lines[-1].append_text(Text("   " if lines[-1] else "")).append_text(fact)
    return [_clipped(line, columns) for line in lines]


def _table(summary: JobSummary, columns: int, lines: int, *, blocks: bool) -> list[Text]:
    rows, left_out = _chosen(summary, lines - 1)
    if not rows:
        return []
    names = [_shortened(row.name, min(_LONGEST_NAME, columns // 2), blocks=blocks) for row in rows]
    name_width = max(map(cell_len, ("operator", *names)))
    fitting = _fitting(columns_of(summary, blocks=blocks), rows, columns - name_width)
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


def _fitting(
    columns: Iterable[OperatorColumn], rows: Sequence[OperatorSummary], room: int
) -> list[tuple[OperatorColumn, int]]:
    """The columns for which there is room, with their widths."""
    widths = [
        (column, max(cell_len(column.header), *(cell_len(column.cell(row)) for row in rows))) for column in columns
    ]
    while widths and sum(_GAP + width for _, width in widths) > room:
        widths.remove(max(widths, key=lambda one: one[0].rank))
    return widths


def _aligned(column: OperatorColumn, text: str, width: int) -> str:
    missing = " " * (width - cell_len(text))
    return missing + text if column.to_right else text + missing


def _shortened(text: str, width: int, *, blocks: bool) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1) + ("…" if blocks else "~")


def _clipped(text: Text, columns: int) -> Text:
    text.truncate(columns)
    return text
