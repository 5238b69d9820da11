"""The numbers of a job as texts: the facts about all of it, and the columns of a table of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dsv2.jobs.summary import JobSummary, OperatorSummary
from dsv2.views.terminal.status_line import event_time_text, took_text, watermarks_of
from dsv2.views.terminal.texts import (
    bar,
    bytes_text,
    count_text,
    duration_text,
    rate_text,
    sparkline,
    time_text,
    value_text,
)

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
