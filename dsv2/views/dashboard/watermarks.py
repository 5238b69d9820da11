"""The watermarks of a job for the page: the value in each operator, and what holds it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dsv2.base.clock import SystemClock
from dsv2.jobs.watermark_report import Cause, OperatorWatermark, Step, report_watermarks
from dsv2.plan_view.model import OperatorView, PlanView
from dsv2.views.dashboard.jobs import JobSnapshot, Status
from dsv2.views.dashboard.json_lines import Line, line_of, watermark_text
from dsv2.watermark.event_time import EVENT_TIME, RESERVED
from dsv2.watermark.value_text import greatest_shown

_BY_NAME = "event-time"
_FINE = (Cause.NOTHING, Cause.ENDED, Cause.UNKNOWN)  # there is nothing to do about these
_MOST_CHANNELS = 64


@dataclass(frozen=True, slots=True)
class WatermarkPage:
    """One watermark in all operators that receive it.

    Attributes:
        identifiers: The watermarks of the job.
        identifier: The one that the page shows; "" if there is none.
        now_ms: The time of the report, in ms since the epoch.
        operators: The operators, upstream first.
    """

    identifiers: tuple[str, ...]
    identifier: str
    now_ms: int
    operators: tuple[Line, ...]


def watermark_page(snapshot: JobSnapshot, identifier: str) -> WatermarkPage:
    """Report on a watermark.

    Args:
        snapshot: The job.
        identifier: The watermark. "": the first one.

    Raises:
        ConfigurationError: The job has no such watermark.
    """
    plan, progress = snapshot.plan, snapshot.progress
    now_ms = _now_ms(snapshot)
    identifiers = () if plan is None else _identifiers(plan)
    if plan is None or progress is None or not identifiers:
        return WatermarkPage(identifiers, "", now_ms, ())
    chosen = identifier or identifiers[0]
    report = report_watermarks(plan, progress, now_ms, chosen)
    key = EVENT_TIME if chosen == _BY_NAME else chosen
    views = {view.uid or "": view for view in plan.operators}
    return WatermarkPage(identifiers, chosen, now_ms, tuple(_operator(one, views, key) for one in report.operators))


def _identifiers(plan: PlanView) -> tuple[str, ...]:
    declared = [watermark.identifier for watermark in plan.watermarks if not watermark.key_type]
    own = sorted(identifier for identifier in declared if not identifier.startswith(RESERVED))
    return (*([_BY_NAME] if EVENT_TIME in declared else []), *own)


def _now_ms(snapshot: JobSnapshot) -> int:
    """The time of the report: a job that has ended, or is stored, is as old as its last micro-batch."""
    if snapshot.status is Status.RUNNING or snapshot.updated_at_ms is None:
        return SystemClock().now_ms()
    return snapshot.updated_at_ms


def _operator(found: OperatorWatermark, views: Mapping[str, OperatorView], key: str) -> Line:
    known = [value for value in found.values if value is not None]
    return line_of(
        replace(found, inputs=(), values=()),
        operator=views[found.uid].id,
        title=views[found.uid].title,
        value=watermark_text(key, found.value),
        highest=watermark_text(key, greatest_shown(known) if known else None),
        cause="advances" if found.cause is Cause.NOTHING else found.cause.value,
        is_fine=found.cause in _FINE,
        path=[_step(step, views[step.operator]) for step in found.path],
        channels=_channels(found, views, key)[:_MOST_CHANNELS],
    )


def _step(step: Step, view: OperatorView) -> Line:
    subtask = "" if step.subtask is None else f", subtask {step.subtask}"
    return {"operator": view.id, "text": f"{view.title}{subtask}"}


def _channels(found: OperatorWatermark, views: Mapping[str, OperatorView], key: str) -> list[Line]:
    behind = found.path[0].input if found.path else None  # the input that is furthest behind
    lines = [
        line_of(
            channel,
            input=one.input,
            sender=views[one.sender].title if one.sender in views else one.sender,
            value=watermark_text(key, channel.value),
            status="ended" if channel.ended else "idle" if channel.idle else "active",
            holds_back=channel.holds_back and one.input == behind,
        )
        for one in found.inputs
        for channel in one.channels
    ]
    return sorted(lines, key=lambda line: not line["holds_back"])
