"""The server's answers to the page, as JSON: the plan, the state of a job, its history, and one operator.

Numbers are bounded by what JavaScript represents exactly; values of watermarks, which are not, are texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dsv2.jobs.progress import JobProgress, OperatorProgress, SubtaskProgress
from dsv2.jobs.summary import JobSummary, Moment, OperatorSummary
from dsv2.jobs.summary.splits import status_of, trouble_with
from dsv2.plan_view.model import OperatorView, PlanView
from dsv2.views.dashboard.jobs import JobSnapshot, WatchedJob
from dsv2.views.dashboard.json_lines import Line, line_of, watermark_text
from dsv2.views.explain.svg import graph_svg
from dsv2.views.explain.wording import about, details, headline, short_location
from dsv2.watermark.event_time import EVENT_TIME

_MOST_SUBTASKS = 256
_LIVE_LINES = 2  # of an operator in the graph: its rates, and its state


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The plan of a job. ``svg``: Its graph, in which the page shows the numbers of operators."""

    headline: str
    operators: tuple[Line, ...]
    svg: str


@dataclass(frozen=True, slots=True)
class StatePage:
    """The state of a job: numbers of its summary, and those of each operator by its id in the plan."""

    name: str
    status: str
    error: str
    updated_at_ms: int | None
    actions: tuple[str, ...]
    summary: Line
    operators: Mapping[str, Line]
    splits: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """The last micro-batches, the newest last. ``first``: The id of the oldest one that is still known, or -1."""

    first: int
    batches: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class OperatorPage:
    """An operator in detail. ``more``: The number of subtasks that are not listed."""

    uid: str
    subtasks: tuple[Line, ...]
    more: int


def job_line(identifier: str, job: WatchedJob) -> Line:
    """Describe a job in the list of jobs."""
    snapshot = job.record.snapshot()
    status, revision = snapshot.status.value, snapshot.revision
    return {"id": identifier, "name": snapshot.name, "status": status, "revision": revision}


def plan_page(view: PlanView) -> PlanPage:
    """Describe the plan of a job."""
    operators = tuple(_plan_operator(operator, view) for operator in view.operators)
    return PlanPage(headline(view), operators, graph_svg(view, _LIVE_LINES))


def state_page(snapshot: JobSnapshot, actions: tuple[str, ...]) -> StatePage:
    """Describe the state of a job."""
    summary = snapshot.summary()
    views = {view.uid or "": view for view in (() if snapshot.plan is None else snapshot.plan.operators)}
    return StatePage(
        name=snapshot.name,
        status=snapshot.status.value,
        error=snapshot.error,
        updated_at_ms=snapshot.updated_at_ms,
        actions=actions,
        summary=_summary(summary, is_known=bool(snapshot.history)),
        operators={str(views[one.uid].id): _operator(one) for one in summary.operators},
        splits=tuple(_split_lines(views, snapshot.progress or JobProgress(-1, {}))),
    )


def history_page(history: Sequence[Moment], after: int) -> HistoryPage:
    """Describe the micro-batches whose id is greater than ``after``."""
    first = history[0].batch.batch_id if history else -1
    return HistoryPage(first, tuple(_history_line(moment) for moment in history if moment.batch.batch_id > after))


def operator_page(operator: OperatorProgress) -> OperatorPage:
    """Describe an operator in detail."""
    shown = operator.subtasks[:_MOST_SUBTASKS]
    return OperatorPage(operator.uid, tuple(map(_subtask_line, shown)), len(operator.subtasks) - len(shown))


def _plan_operator(operator: OperatorView, view: PlanView) -> Line:
    return line_of(
        operator,
        uid=operator.uid or "",
        title=operator.title,
        about=about(operator),
        location=short_location(operator.location),
        upstream=tuple(edge.source for edge in view.edges_into(operator)),
        facts=tuple(details(operator)),
        findings=tuple(finding for finding in view.findings if finding.operators[0] == operator.id),
    )


def _summary(summary: JobSummary, *, is_known: bool) -> Line:
    busiest, slowest = summary.busiest, summary.slowest
    return {
        "batch_id": summary.batch_id,
        "in_rate": summary.in_rate,
        "out_rate": summary.out_rate,
        "duration_ms": summary.batch.duration_ms if is_known and summary.batch is not None else None,
        "lag": summary.lag,
        "state_bytes": summary.state_bytes,
        "late": summary.late,
        "errors": summary.errors,
        "event_time": "" if slowest is None else _time_text(slowest),
        "slowest": "" if busiest is None else busiest.name,
        "slowest_busy": None if busiest is None else busiest.busy,
    }


def _operator(one: OperatorSummary) -> Line:
    level, busy, reasons = one.pressure.level.value, one.pressure.busy, one.pressure.reasons
    return line_of(one, level=level, busy=busy, reasons=reasons, event_time=_time_text(one))


def _time_text(one: OperatorSummary) -> str:
    found = one.event_time
    if found is None:
        return ""
    return "none yet" if found.time is None else watermark_text(EVENT_TIME, found.time)


def _split_lines(views: Mapping[str, OperatorView], progress: JobProgress) -> Iterator[Line]:
    for uid, view in views.items():
        splits = progress.operators[uid].splits if uid in progress.operators else ()
        for split in splits:
            yield line_of(
                split,
                operator=view.id,
                source=view.title,
                event_time=watermark_text(EVENT_TIME, split.event_time),
                status=status_of(split),
                trouble=trouble_with(split, splits, progress),
            )


def _history_line(moment: Moment) -> Line:
    return line_of(
        moment.batch,
        in_rate=moment.batch.records_in * 1000 / max(moment.span_ms, 1.0),
        out_rate=moment.batch.records_out * 1000 / max(moment.span_ms, 1.0),
        state_bytes=moment.state_bytes,
        lag=moment.lag,
    )


def _subtask_line(subtask: SubtaskProgress) -> Line:
    numbers = replace(subtask, inputs=(), watermarks={})
    return line_of(numbers, event_time=watermark_text(EVENT_TIME, subtask.event_time))
