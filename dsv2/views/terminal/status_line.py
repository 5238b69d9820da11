"""A job in one line of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsv2.jobs.summary import JobSummary
from dsv2.views.terminal.texts import count_text, duration_text, rate_text, time_text, value_text
from dsv2.watermark.value_text import ShownValue


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
