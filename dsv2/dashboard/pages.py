"""What the server sends to the page, as JSON: the plan, the state of a job, its history, and one operator.

Numbers are bounded by what JavaScript represents exactly; values of watermarks, which are not, are texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dsv2.dashboard.jobs import Snapshot, WatchedJob
from dsv2.dashboard.moments import Moment, state_bytes_of
from dsv2.dashboard.picture import Picture, picture_of
from dsv2.dashboard.pressure import Pressure, busiest, pressure_of
from dsv2.dashboard.texts import title_of, watermark_text
from dsv2.explain import OperatorView, PlanView
from dsv2.explain.wording import about, details, headline, short_location, watermark_name
from dsv2.progress import OperatorProgress, SplitProgress, SubtaskProgress
from dsv2.watermark.event_time import EVENT_TIME

__all__ = (
    "FindingLine",
    "HistoryLine",
    "HistoryPage",
    "JobLine",
    "OperatorLine",
    "OperatorPage",
    "PlanOperator",
    "PlanPage",
    "SplitLine",
    "StatePage",
    "SubtaskLine",
    "SummaryLine",
    "WatermarkLine",
    "history_page",
    "job_line",
    "operator_page",
    "plan_page",
    "state_page",
)

_MOST_SUBTASKS = 256


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in the list of jobs."""

    id: str
    name: str
    status: str
    revision: int


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A warning or note of the plan."""

    severity: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class PlanOperator:
    """What does not change about an operator."""

    id: int
    uid: str
    title: str
    kind: str
    about: str
    location: str
    parallelism: int
    level: int | None
    facts: tuple[str, ...]
    findings: tuple[FindingLine, ...]


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The plan of a job, and where the page draws it."""

    headline: str
    operators: tuple[PlanOperator, ...]
    picture: Picture


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """The numbers of an operator, by its id in the plan."""

    records_in: int
    records_out: int
    in_rate: float
    out_rate: float
    held: int
    late: int
    errors: int
    state_bytes: int
    keys: int
    timers: int
    lag: int | None
    level: str
    busy: float | None
    reasons: tuple[str, ...]
    event_time: str
    counters: Mapping[str, int]
    gauges: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SplitLine:
    """A split of a source. ``trouble``: Why it deserves attention, or ""."""

    operator: int
    source: str
    split: str
    subtask: int
    position: str
    lag: int | None
    event_time: str
    status: str
    moved_at_ms: int | None
    trouble: str


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """The numbers of a job."""

    batch_id: int
    in_rate: float
    out_rate: float
    duration_ms: float | None
    lag: int | None
    state_bytes: int
    held: int
    late: int
    errors: int
    event_time: str
    slowest: str
    slowest_busy: float | None


@dataclass(frozen=True, slots=True)
class StatePage:
    """The state of a job."""

    revision: int
    name: str
    status: str
    error: str
    updated_at_ms: int | None
    actions: tuple[str, ...]
    summary: SummaryLine
    operators: Mapping[str, OperatorLine]
    splits: tuple[SplitLine, ...]


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """A micro-batch."""

    batch_id: int
    started_at_ms: int
    duration_ms: float
    phases: Mapping[str, float]
    records_in: int
    records_out: int
    state_bytes: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """The last micro-batches, the newest last. ``first``: The id of the oldest one that is still known, or -1."""

    first: int
    batches: tuple[HistoryLine, ...]


@dataclass(frozen=True, slots=True)
class SubtaskLine:
    """A subtask of an operator."""

    subtask: int
    records_in: int
    records_out: int
    held: int
    late: int
    errors: int
    user_time_ms: float
    state_bytes: int
    keys: int
    timers: int
    event_time: str
    ended: bool


@dataclass(frozen=True, slots=True)
class WatermarkLine:
    """A watermark of an operator: the lowest and the highest value of its subtasks."""

    name: str
    lowest: str
    highest: str


@dataclass(frozen=True, slots=True)
class OperatorPage:
    """An operator in detail. ``more``: The number of subtasks that are not listed."""

    uid: str
    subtasks: tuple[SubtaskLine, ...]
    more: int
    watermarks: tuple[WatermarkLine, ...]


def job_line(identifier: str, job: WatchedJob) -> JobLine:
    """Describe a job in the list of jobs."""
    snapshot = job.record.snapshot()
    return JobLine(identifier, snapshot.name, snapshot.status.value, snapshot.revision)


def plan_page(view: PlanView) -> PlanPage:
    """Describe the plan of a job."""
    return PlanPage(
        headline(view), tuple(_plan_operator(operator, view) for operator in view.operators), picture_of(view)
    )


def state_page(snapshot: Snapshot, actions: tuple[str, ...]) -> StatePage:
    """Describe the state of a job."""
    operators = {} if snapshot.progress is None else snapshot.progress.operators
    views = () if snapshot.plan is None else snapshot.plan.operators
    known = [(view, operators[view.uid]) for view in views if view.uid is not None and view.uid in operators]
    return StatePage(
        revision=snapshot.revision,
        name=snapshot.name,
        status=snapshot.status.value,
        error=snapshot.error,
        updated_at_ms=snapshot.updated_at_ms,
        actions=actions,
        summary=_summary(snapshot, [operator for _, operator in known]),
        operators={
            str(view.id): _operator_line(operator, pressure_of(operator.uid, snapshot.history))
            for view, operator in known
        },
        splits=tuple(line for view, operator in known for line in _split_lines(view, operator)),
    )


def history_page(history: Sequence[Moment], after: int) -> HistoryPage:
    """Describe the micro-batches whose id is greater than ``after``."""
    first = history[0].batch.batch_id if history else -1
    return HistoryPage(first, tuple(_history_line(moment) for moment in history if moment.batch.batch_id > after))


def operator_page(operator: OperatorProgress) -> OperatorPage:
    """Describe an operator in detail."""
    shown = operator.subtasks[:_MOST_SUBTASKS]
    return OperatorPage(
        operator.uid,
        tuple(map(_subtask_line, shown)),
        len(operator.subtasks) - len(shown),
        tuple(_watermark_lines(operator)),
    )


def _plan_operator(operator: OperatorView, view: PlanView) -> PlanOperator:
    return PlanOperator(
        id=operator.id,
        uid=operator.uid or "",
        title=operator.title,
        kind=operator.kind.value,
        about=about(operator),
        location=short_location(operator.location),
        parallelism=operator.parallelism,
        level=operator.level,
        facts=tuple(details(operator)),
        findings=tuple(
            FindingLine(finding.severity.value, finding.message, finding.advice)
            for finding in view.findings
            if finding.operators[0] == operator.id
        ),
    )


def _summary(snapshot: Snapshot, operators: Sequence[OperatorProgress]) -> SummaryLine:
    last = snapshot.history[-1] if snapshot.history else None
    seconds = 0.0 if last is None else last.batch.duration_ms / 1000
    times = [time for operator in operators if (time := _event_time(operator)) is not None]
    slowest = busiest(snapshot.history)
    return SummaryLine(
        batch_id=-1 if snapshot.progress is None else snapshot.progress.batch_id,
        in_rate=last.batch.records_in / seconds if last is not None and seconds else 0.0,
        out_rate=last.batch.records_out / seconds if last is not None and seconds else 0.0,
        duration_ms=None if last is None else last.batch.duration_ms,
        lag=None if last is None else last.lag,
        state_bytes=0 if last is None else last.state_bytes,
        held=sum(operator.records_held for operator in operators),
        late=sum(subtask.late_records for operator in operators for subtask in operator.subtasks),
        errors=sum(subtask.errors for operator in operators for subtask in operator.subtasks),
        event_time=watermark_text(EVENT_TIME, min(times, default=None)),
        slowest="" if slowest is None else title_of(snapshot.plan, slowest[0]),
        slowest_busy=None if slowest is None else slowest[1],
    )


def _operator_line(operator: OperatorProgress, pressure: Pressure) -> OperatorLine:
    subtasks = operator.subtasks
    lags = [split.lag for split in operator.splits if split.lag is not None]
    return OperatorLine(
        records_in=operator.records_in,
        records_out=operator.records_out,
        in_rate=operator.records_in_per_second,
        out_rate=operator.records_out_per_second,
        held=operator.records_held,
        late=sum(subtask.late_records for subtask in subtasks),
        errors=sum(subtask.errors for subtask in subtasks),
        state_bytes=state_bytes_of(operator),
        keys=sum(subtask.keys for subtask in subtasks),
        timers=sum(subtask.timers for subtask in subtasks),
        lag=sum(lags) if lags else None,
        level=pressure.level.value,
        busy=pressure.busy,
        reasons=tuple(pressure.reasons),
        event_time=watermark_text(EVENT_TIME, _event_time(operator)),
        counters=operator.counters,
        gauges=operator.gauges,
    )


def _event_time(operator: OperatorProgress) -> int | None:
    """The lowest event time of the subtasks of an operator, or of the splits of a source."""
    times = [subtask.event_time for subtask in operator.subtasks if not subtask.ended]
    if not operator.subtasks:
        times = [split.event_time for split in operator.splits if not (split.idle or split.ended)]
    known = [time for time in times if time is not None]
    return min(known) if known and len(known) == len(times) else None


def _split_lines(view: OperatorView, operator: OperatorProgress) -> Iterator[SplitLine]:
    active = [split for split in operator.splits if not (split.idle or split.ended)]
    newest = max((split.event_time for split in active if split.event_time is not None), default=None)
    moved = max((split.moved_at_ms for split in operator.splits if split.moved_at_ms is not None), default=None)
    for split in operator.splits:
        yield SplitLine(
            operator=view.id,
            source=view.title,
            split=split.split,
            subtask=split.subtask,
            position=split.position,
            lag=split.lag,
            event_time=watermark_text(EVENT_TIME, split.event_time),
            status=_status(split),
            moved_at_ms=split.moved_at_ms,
            trouble=_trouble(split, active, newest, moved),
        )


def _status(split: SplitProgress) -> str:
    if split.ended:
        return "ended"
    if split.paused:
        return "paused"
    return "idle" if split.idle else "active"


def _trouble(split: SplitProgress, active: Sequence[SplitProgress], newest: int | None, moved: int | None) -> str:
    """Whether a split holds event time back: it is active, and behind others that move."""
    if split not in active or split.paused or len(active) < 2 or newest is None:
        return ""
    stands_still = moved is not None and (split.moved_at_ms is None or split.moved_at_ms < moved)
    if split.event_time is None:
        return "has no event time yet, so it holds back the others"
    lowest = min(other.event_time for other in active if other.event_time is not None)
    if stands_still and split.event_time == lowest < newest:
        return "holds event time back: it does not move, while others do"
    return ""


def _history_line(moment: Moment) -> HistoryLine:
    batch = moment.batch
    return HistoryLine(
        batch.batch_id,
        batch.started_at_ms,
        batch.duration_ms,
        batch.phases,
        batch.records_in,
        batch.records_out,
        moment.state_bytes,
        moment.lag,
    )


def _subtask_line(subtask: SubtaskProgress) -> SubtaskLine:
    return SubtaskLine(
        subtask=subtask.subtask,
        records_in=subtask.records_in,
        records_out=subtask.records_out,
        held=subtask.records_held,
        late=subtask.late_records,
        errors=subtask.errors,
        user_time_ms=subtask.user_time_ms,
        state_bytes=subtask.state_bytes,
        keys=subtask.keys,
        timers=subtask.timers,
        event_time=watermark_text(EVENT_TIME, subtask.event_time),
        ended=subtask.ended,
    )


def _watermark_lines(operator: OperatorProgress) -> Iterator[WatermarkLine]:
    for identifier, of_subtasks in operator.watermarks.items():
        known = [value for value in of_subtasks if value is not None]
        if not known:
            continue
        lowest = watermark_text(identifier, min(known)) if len(known) == len(of_subtasks) else "none yet"
        yield WatermarkLine(watermark_name(identifier), lowest, watermark_text(identifier, max(known)))
