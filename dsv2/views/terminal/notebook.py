"""A job in a notebook: a table below the cell, which changes while the job runs."""

from __future__ import annotations

import sys
from html import escape
from typing import Any
from uuid import uuid4

from dsv2.jobs.summary import JobSummary
from dsv2.views.terminal.texts import ShownJob, columns_of, duration_text, facts_of

_COLOURS = {"running": "#2e7d32", "finished": "#2e7d32", "failed": "#c62828"}
_OTHER_COLOUR = "#b26a00"


def is_in_notebook() -> bool:
    """Return whether this program is the kernel of a notebook. IPython is not loaded for this."""
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
    shown = (
        f'<span style="opacity:.65">{escape(fact.label)}</span> {escape(fact.text)}'
        for fact in facts_of(summary, blocks=True)
    )
    return " &nbsp; ".join(shown)


def _table(summary: JobSummary) -> str:
    if not summary.operators:
        return ""
    columns = columns_of(summary, blocks=False)
    head = "".join(f"<th>{escape(name)}</th>" for name in ("operator", *(column.header for column in columns)))
    rows = [(one.name, *(column.cell(one) for column in columns)) for one in summary.operators]
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
