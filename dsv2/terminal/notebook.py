"""A job in a notebook: a table below the cell, which changes while the job runs."""

from __future__ import annotations

import sys
from html import escape
from typing import Any
from uuid import uuid4

from dsv2.job_summary import JobSummary, OperatorSummary
from dsv2.terminal.blocks import sparkline
from dsv2.terminal.plain import event_time_text, watermarks_of
from dsv2.terminal.shown import ShownJob
from dsv2.terminal.texts import count_text, duration_text, rate_text, time_text, value_text

__all__ = ("NotebookDisplay", "is_in_notebook", "job_html")

_COLOURS = {"running": "#2e7d32", "finished": "#2e7d32", "failed": "#c62828"}
_OTHER_COLOUR = "#b26a00"


def is_in_notebook() -> bool:
    """Whether this program is the kernel of a notebook. IPython is not loaded for this."""
    return hasattr(_shell(), "kernel")


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


class NotebookDisplay:
    """Shows a job below the cell that creates this object."""

    def __init__(self) -> None:
        self._id = uuid4().hex
        self._is_new = True

    def show(self, job: ShownJob) -> None:
        """Show the job, instead of what was shown before."""
        data = {"text/plain": f"{job.name}: {job.state}", "text/html": job_html(job)}
        _shell().display_pub.publish(data, transient={"display_id": self._id}, update=not self._is_new)
        self._is_new = False

    def end(self, job: ShownJob) -> None:
        """Show the last state of the job, which remains."""
        self.show(job)


def job_html(job: ShownJob) -> str:
    """The job as HTML."""
    colour = _COLOURS.get(job.state, _OTHER_COLOUR)
    title = (
        f'<b>{escape(job.name)}</b> &nbsp;<span style="color:{colour}">● {escape(job.state)}</span> '
        f"&nbsp;{duration_text(job.elapsed_ms)}"
    )
    note = "" if job.note is None else f"<pre>{escape(job.note)}</pre>"
    facts = f"<div>{_facts(job.summary)}</div>"
    return f'<div style="line-height:1.6"><div>{title}</div>{facts}{_table(job.summary)}{note}</div>'


def _facts(summary: JobSummary) -> str:
    if summary.batch_id < 0:
        return "no micro-batch is complete yet"
    facts = {"read": count_text(summary.records_read)}
    if summary.batch is not None:
        facts["rate"] = f"{sparkline(summary.rates, 24)} {rate_text(summary.in_rate)}"
    if summary.lag is not None:
        facts["lag"] = count_text(summary.lag)
    took = "" if summary.batch is None else f" in {duration_text(summary.batch.duration_ms)}"
    facts["micro-batch"] = f"{summary.batch_id:,}{took}"
    for label, count in (("held", summary.held), ("late", summary.late), ("errors", summary.errors)):
        if count:
            facts[label] = count_text(count)
    if summary.slowest is not None:
        facts["event time"] = event_time_text(summary)
    facts |= {name: value_text(value) for name, value in watermarks_of(summary).items()}
    if summary.busiest is not None:
        facts["slowest"] = summary.busiest.name
    shown = (f'<span style="opacity:.65">{escape(label)}</span> {escape(text)}' for label, text in facts.items())
    return " &nbsp; ".join(shown)


def _table(summary: JobSummary) -> str:
    if not summary.operators:
        return ""
    rows = [_row(operator) for operator in summary.operators]
    names = [name for name in rows[0] if name == "operator" or any(row[name] not in ("", "0") for row in rows)]
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(row[name])}</td>' for name in names)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(operator: OperatorSummary) -> dict[str, str]:
    found = operator.event_time
    return {
        "operator": operator.name,
        "in": "" if operator.kind == "source" else count_text(operator.records_in),
        "out": "" if operator.kind == "sink" else count_text(operator.records_out),
        "per second": rate_text(operator.rate).removesuffix("/s"),
        "busy": "" if operator.busy is None else f"{operator.busy:.0%}",
        "event time": "" if found is None else time_text(found.time),
        "behind": duration_text(operator.behind_ms) if operator.behind_ms else "",
        "held": count_text(operator.held),
        "late": count_text(operator.late),
        "errors": count_text(operator.errors),
    }
