"""Builds the report on a watermark."""

from __future__ import annotations

from dataclasses import replace

from dsv2.errors import ConfigurationError
from dsv2.graph import OperatorKind
from dsv2.jobs.progress import ChannelProgress, InputProgress, JobProgress, SubtaskProgress
from dsv2.jobs.summary.event_time import has_ended, is_active, is_idle
from dsv2.jobs.summary.splits import moved_lately_ms
from dsv2.jobs.watermark_report.blockers import barrier_waiting, delivered, held_channel
from dsv2.jobs.watermark_report.model import (
    Cause,
    ChannelWatermark,
    InputWatermark,
    OperatorWatermark,
    WatermarkReport,
)
from dsv2.jobs.watermark_report.route import Route
from dsv2.jobs.watermark_report.trace import Trace, Tracer, uid_of
from dsv2.jobs.watermark_report.wording import Facts, advice, sentence
from dsv2.plan_view.model import OperatorView, PlanView
from dsv2.watermark.event_time import PROCESSING_TIME
from dsv2.watermark.value_text import ShownValue, least_shown

_MAY_ADVANCE = (Cause.QUIET_SPLIT, Cause.BACKLOG, Cause.NOT_EMITTED, Cause.POLLED, Cause.UNKNOWN, Cause.NO_RECORDS)


def report_watermarks(
    view: PlanView, progress: JobProgress, now_ms: int, identifier: str = "event-time", operator: str | None = None
) -> WatermarkReport:
    """Report the values of a watermark, and what holds it back. A pure function.

    Args:
        view: The plan of the job, ``view_of(plan)`` of ``dsv2.plan_view.view``.
        progress: The progress of the job.
        now_ms: The time, in ms since the epoch.
        identifier: The identifier of the watermark; ``event-time`` for event time.
        operator: The uid or the name of an operator. None: all functions that receive the watermark, and all that wait
            for event time.

    Raises:
        ConfigurationError: The watermark is not declared, or there is no such operator.
    """
    route = Route(view, identifier)
    reporter = _Reporter(route, progress, now_ms)
    chosen = filter(reporter.concerns, view.operators) if operator is None else [_find(view, operator)]
    found = tuple(map(reporter.report, chosen))
    return WatermarkReport(route.plain_name, progress.batch_id, now_ms, found)


def _find(view: PlanView, name: str) -> OperatorView:
    functions = [one for one in view.operators if one.kind not in (OperatorKind.SOURCE, OperatorKind.SINK)]
    for by in (uid_of, lambda one: one.name):
        for one in functions:
            if by(one) == name:
                return one
    listed = ", ".join(uid_of(one) for one in functions)
    raise ConfigurationError(f"The job has no function {name!r}. It has: {listed or 'none'}.")


class _Reporter:
    """Reports one watermark of one job."""

    def __init__(self, route: Route, progress: JobProgress, now_ms: int) -> None:
        self._recent_ms = moved_lately_ms(progress, now_ms)
        self._route = route
        self._progress = progress
        self._now_ms = now_ms
        self._tracer = Tracer(route, progress, self._recent_ms)

    def concerns(self, operator: OperatorView) -> bool:
        """Return whether a function receives the watermark, or waits for event time, and reports it."""
        if operator.kind in (OperatorKind.SOURCE, OperatorKind.SINK) or operator.level == 0:
            return False
        waits = self._route.is_event_time and operator.event_time and not self._route.declares(operator)
        return self._route.receives(operator) or waits

    def report(self, operator: OperatorView) -> OperatorWatermark:
        """Report one function."""
        reports = self._tracer.reports_of(operator)
        chosen = min(reports, key=lambda one: self._urgency(operator, one), default=None)
        subtask = 0 if chosen is None else chosen.subtask
        value = None if chosen is None else self._value(operator, chosen)
        trace = self._trace(operator, subtask, chosen, value)
        moved = self._moved_at(trace)
        waiting = None if chosen is None else barrier_waiting(self._route, chosen)
        if waiting is not None:
            moved = waiting.since_ms
        lasted = None if moved is None else max(0, self._now_ms - moved)
        is_moving = moved is not None and moved >= self._recent_ms
        at = self._tracer.report_of(trace.at, trace.subtask)
        received = [] if at is None else list(delivered(self._route, trace.at, at))
        facts = Facts(
            self._route,
            operator,
            chosen,
            value,
            trace,
            received=received[0] if received else None,
            records_in=self._records_in(trace),
            lasted_ms=None if is_moving and waiting is None else lasted,
            waiting=waiting,
            now_ms=self._now_ms,
        )
        return OperatorWatermark(
            uid_of(operator),
            operator.name,
            subtask,
            _shown(value),
            tuple(_shown(self._value(operator, one)) for one in reports),
            () if chosen is None else tuple(map(self._input, chosen.inputs)),
            trace.cause,
            trace.path,
            None if trace.split is None else trace.split.split,
            lasted,
            sentence(facts),
            advice(facts),
        )

    def _trace(
        self, operator: OperatorView, subtask: int, report: SubtaskProgress | None, value: ShownValue | None
    ) -> Trace:
        if report is None:
            return Trace(Cause.UNKNOWN, (), operator, subtask)
        trace = self._tracer.trace(operator, subtask)
        moved = self._moved_at(trace)
        advances = trace.cause in _MAY_ADVANCE and moved is not None and moved >= self._recent_ms
        is_final = value is True or value == PROCESSING_TIME
        if advances or (is_final and trace.cause is not Cause.ENDED):
            return replace(trace, cause=Cause.NOTHING)
        return trace

    def _records_in(self, trace: Trace) -> int | None:
        """The number of records that the cause has received. None: it is a source, or unknown."""
        found = self._progress.operators.get(uid_of(trace.at))
        if found is None or trace.at.kind is OperatorKind.SOURCE:
            return None
        counts = [one.records_in for one in found.subtasks if trace.subtask in (None, one.subtask)]
        return sum(counts) if counts else None

    def _moved_at(self, trace: Trace) -> int | None:
        if trace.first is None or trace.first.channel is None:
            return None
        return trace.first.channel.values_moved_at_ms.get(self._route.identifier)

    def _urgency(self, operator: OperatorView, report: SubtaskProgress) -> tuple[bool, bool, bool, ShownValue]:
        """The sort key of subtasks: the one that is furthest behind comes first, those that wait for nothing last."""
        ended = all(map(has_ended, report.inputs))
        value = self._value(operator, report)
        return ended, not is_active(report), value is not None, 0 if value is None else value

    def _value(self, operator: OperatorView, report: SubtaskProgress) -> ShownValue | None:
        """The value of a subtask: the combined event time, or the least value of the inputs on which it arrives."""
        route = self._route
        continuing = [one for one in report.inputs if not has_ended(one)]
        if route.is_event_time:
            values = [route.of_input(one) for one in continuing]
            if values and all(value == PROCESSING_TIME for value in values):
                return PROCESSING_TIME
            if report.event_time is not None:
                return report.event_time
            return next(iter(delivered(route, operator, report)), None)
        edges = route.edges_into(operator)
        active = [one for one in continuing if route.arrives(edges[one.input]) and not is_idle(one)]
        if route.is_aligned or not active:
            return report.watermarks.get(route.identifier)
        arriving = [route.of_input(one) for one in active]
        known = [value for value in arriving if value is not None]
        return least_shown(known) if known and len(known) == len(arriving) else None

    def _input(self, one: InputProgress) -> InputWatermark:
        held = None if has_ended(one) else held_channel(self._route, one)
        return InputWatermark(
            one.input,
            one.sender,
            _shown(self._route.of_input(one)),
            one.channel_count,
            is_idle(one),
            has_ended(one),
            tuple(self._channel(channel, held) for channel in one.channels),
        )

    def _channel(self, channel: ChannelProgress, held: ChannelProgress | None) -> ChannelWatermark:
        return ChannelWatermark(
            channel.channel,
            _shown(self._route.of_channel(channel)),
            channel.idle,
            channel.ended,
            channel.values_moved_at_ms.get(self._route.identifier),
            held is not None and channel.channel == held.channel,
            channel.blocked_since_ms if channel.blocked_by == self._route.identifier else None,
            channel.records_held if channel.blocked_by == self._route.identifier else 0,
        )


def _shown(value: ShownValue | None) -> ShownValue | None:
    """A value for users. Event time that follows the wall clock has none."""
    return None if value == PROCESSING_TIME else value
