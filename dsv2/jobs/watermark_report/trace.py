"""Follows what holds a watermark back upstream, to the split or function that is the cause."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from dsv2.graph import Exchange, OperatorKind
from dsv2.jobs.progress import JobProgress, SplitProgress, SubtaskProgress
from dsv2.jobs.summary.event_time import is_idle
from dsv2.jobs.watermark_report.blockers import Hold, delivered, held_channel, held_input
from dsv2.jobs.watermark_report.model import Cause, Step
from dsv2.jobs.watermark_report.route import Route
from dsv2.jobs.watermark_report.splits import (
    cause_in_split,
    has_no_records,
    slowest_in_group,
    split_for_records,
    split_for_time,
)
from dsv2.plan_view.model import OperatorView
from dsv2.watermark.holders import Order
from dsv2.watermark.value_text import ShownValue, greatest_shown, least_shown


@dataclass(frozen=True, slots=True)
class Trace:
    """The way from a subtask to the cause.

    Attributes:
        cause: The cause.
        path: The way to it.
        at: The operator that is the cause.
        subtask: Its subtask. None: any of them.
        first: Where the first subtask waits. None: it waits for nothing.
        split: The split that is the cause, or None.
        behind: The source that watermark alignment waits for, or None.
    """

    cause: Cause
    path: tuple[Step, ...]
    at: OperatorView
    subtask: int | None
    first: Hold | None = None
    split: SplitProgress | None = None
    behind: OperatorView | None = None


@dataclass
class _Way:
    """The way so far."""

    steps: list[Step] = field(default_factory=list)
    first: Hold | None = None

    def add(self, operator: OperatorView, subtask: int | None, hold: Hold) -> None:
        """Add a step that leads on."""
        self.first = self.first or hold
        channel = None if hold.channel is None else hold.channel.channel
        self.steps.append(Step(uid_of(operator), subtask, hold.input, channel))

    def ends(self, cause: Cause, at: OperatorView, subtask: int | None) -> Trace:
        """Return the trace that ends at ``at``."""
        return Trace(cause, (*self.steps, Step(uid_of(at), subtask)), at, subtask, self.first)


class Tracer:
    """Follows one watermark in the progress of a job. ``recent_ms``: What has moved since then is moving."""

    def __init__(self, route: Route, progress: JobProgress, recent_ms: int) -> None:
        self._route = route
        self._progress = progress
        self._recent_ms = recent_ms

    def reports_of(self, operator: OperatorView) -> list[SubtaskProgress]:
        """The progress of the subtasks with known inputs."""
        found = self._progress.operators.get(uid_of(operator))
        return [] if found is None else [one for one in found.subtasks if one.inputs]

    def report_of(self, operator: OperatorView, subtask: int | None) -> SubtaskProgress | None:
        """The progress of a subtask with its inputs, or None if it is unknown."""
        return next((one for one in self.reports_of(operator) if one.subtask == subtask), None)

    def trace(self, operator: OperatorView, subtask: int) -> Trace:
        """Follow what holds the watermark back in a subtask."""
        route, way = self._route, _Way()
        current: OperatorView = operator
        number: int | None = subtask
        value: ShownValue | None = None
        receiver: SubtaskProgress | None = None
        while current.kind is not OperatorKind.SOURCE:
            report = self.report_of(current, number)
            if way.steps and (cause := self._stops(current, report, value, receiver)) is not None:
                ending = way.ends(cause, current, number)
                return self._of_records(ending, report) if cause is Cause.NOT_EMITTED else ending
            hold = self._hold(current, report, forwarding=bool(way.steps))
            if hold is Cause.IDLE:
                return self._of_idle(way, current, number)
            if isinstance(hold, Cause):
                return way.ends(hold, current, number)
            if report is not None and hold.input == 0 and report.inputs[0].blocked:
                way.add(current, number, Hold(1, held_channel(route, report.inputs[1])))
                return way.ends(Cause.BROADCAST_WAIT, *route.upstream(current, number, 1, None))
            way.add(current, number, hold)
            channel = None if hold.channel is None else hold.channel.channel
            sender, its_number = route.upstream(current, number, hold.input, channel)
            if not route.arrives(route.edges_into(current)[hold.input]):
                cause = Cause.NOT_FORWARDED if route.is_declared_upstream(sender) else Cause.NOT_DECLARED
                return way.ends(cause, sender, its_number)
            if hold.channel is not None:
                value = route.of_channel(hold.channel)
            current, number, receiver = sender, its_number, report
        return self._at_source(way.ends(Cause.NOT_EMITTED, current, number))

    def _hold(self, operator: OperatorView, report: SubtaskProgress | None, *, forwarding: bool) -> Hold | Cause:
        if report is None:  # it is chained to a source, or has not reported
            return Hold(0, None) if len(self._route.edges_into(operator)) == 1 else Cause.UNKNOWN
        found = held_input(self._route, operator, report, forwarding=forwarding)
        return found if isinstance(found, Cause) else Hold(found.input, held_channel(self._route, found))

    def _stops(
        self,
        operator: OperatorView,
        report: SubtaskProgress | None,
        value: ShownValue | None,
        receiver: SubtaskProgress | None,
    ) -> Cause | None:
        """Return why an operator that sent ``value`` to ``receiver`` is the cause. None: it depends on its inputs."""
        route = self._route
        declares = route.declares(operator)
        if report is None or not route.receives(operator):
            return Cause.NOT_EMITTED if declares else None
        sent = list(delivered(route, operator, report))
        if route.is_barrier:
            reached = None if receiver is None else receiver.watermarks.get(route.identifier)
            passed_on = not sent or (reached is not None and least_shown([*sent, reached]) in sent)
        elif route.is_aligned:
            passed_on = not sent or (receiver is not None and route.identifier in receiver.watermarks)
        else:
            passed_on = value in sent if sent else value is None
        forwards_itself = route.is_event_time and operator.event_time
        if passed_on:
            return Cause.NOT_EMITTED if declares and not sent and not forwards_itself else None
        if declares:
            return Cause.NOT_EMITTED
        handles = operator.handlers or any(one.watermark == route.identifier for one in operator.watermark_handlers)
        if not handles or forwards_itself:
            return None
        return Cause.POLLED if value is None or self._is_ahead(sent, value) else Cause.NOT_EMITTED

    def _is_ahead(self, received: Collection[ShownValue], sent: ShownValue) -> bool:
        """Return whether a function has received another value than it has sent, a greater one if there is an order."""
        if self._route.order is Order.ANY:
            return sent not in received
        return greatest_shown([*received, sent]) != sent

    def _of_idle(self, way: _Way, operator: OperatorView, subtask: int | None) -> Trace:
        """Follow idle channels to the function or source that is idle."""
        current, number = operator, subtask
        while (report := self.report_of(current, number)) is not None:
            one = next((one for one in report.inputs if is_idle(one)), None)
            if one is None:
                break
            channel = next((row for row in one.channels if row.idle), None)
            way.add(current, number, Hold(one.input, channel))
            index = None if channel is None else channel.channel
            current, number = self._route.upstream(current, number, one.input, index)
        ending = way.ends(Cause.IDLE, current, number)
        if current.kind is OperatorKind.SOURCE and self._has_no_records(current):
            return replace(ending, cause=Cause.NO_RECORDS)
        return ending

    def _of_records(self, ending: Trace, report: SubtaskProgress | None) -> Trace:
        """Continue to the source, if an operator emits nothing because it receives no records."""
        is_generator = ending.at.idle_after_ms is not None
        if not is_generator and not self._route.is_barrier and (report is None or report.records_in > 0):
            return ending
        current, number, path = ending.at, ending.subtask, list(ending.path)
        while current.kind is not OperatorKind.SOURCE:
            edges = self._route.edges_into(current)
            if len(edges) != 1:
                return ending
            (edge,) = edges
            path[-1] = Step(uid_of(current), number, 0)
            current = self._route.view.operators[edge.source]
            number = number if edge.exchange is Exchange.FORWARD else 0 if current.parallelism == 1 else None
            path.append(Step(uid_of(current), number))
        split = split_for_records(self._splits(current, number))
        if split is None:
            return ending
        cause = Cause.NO_RECORDS if self._has_no_records(current) else cause_in_split(split, self._recent_ms)
        if cause is Cause.NOT_EMITTED:
            return ending
        return self._with_split(replace(ending, path=tuple(path), at=current, subtask=number), cause, split)

    def _at_source(self, ending: Trace) -> Trace:
        source = ending.at
        splits = self._splits(source, ending.subtask)
        if source.idle_after_ms is None and not self._route.is_barrier:
            return ending  # the source emits the watermark itself
        split = split_for_records(splits) if self._route.is_barrier else split_for_time(splits)
        if split is None and self._route.is_barrier:
            return ending
        if split is None:
            return replace(ending, cause=Cause.NO_RECORDS if self._has_no_records(source) else Cause.IDLE)
        cause = Cause.NO_RECORDS if self._has_no_records(source) else cause_in_split(split, self._recent_ms)
        return self._with_split(ending, cause, split)

    def _with_split(self, ending: Trace, cause: Cause, split: SplitProgress) -> Trace:
        behind = None
        if cause is Cause.PAUSED_SPLIT:
            group = ending.at.alignment_group
            members = [one for one in self._route.view.operators if one.alignment_group == group]
            behind = slowest_in_group([(one, self._splits(one, None)) for one in members])
        return replace(ending, cause=cause, split=split, behind=behind)

    def _has_no_records(self, source: OperatorView) -> bool:
        """Return whether a source has not had any record, as far as it is known."""
        found = self._progress.operators.get(uid_of(source))
        return found is not None and found.records_out == 0 and has_no_records(found.splits)

    def _splits(self, source: OperatorView, subtask: int | None) -> Sequence[SplitProgress]:
        """The splits of a reader, or of all readers if it is unknown which one has what."""
        found = self._progress.operators.get(uid_of(source))
        splits = () if found is None else found.splits
        return [split for split in splits if split.subtask == subtask] or splits


def uid_of(operator: OperatorView) -> str:
    """The uid of an operator of a plan that could be built."""
    return operator.uid or operator.name
