"""The numbers of a job that views show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dsv2.base.printable import printable
from dsv2.jobs.progress import BatchProgress, JobProgress, OperatorProgress
from dsv2.jobs.summary.event_time import Slowest, awaiting_event_time, event_time_of, newest, watermark_of
from dsv2.jobs.summary.history import Moment, lag_of, state_bytes_of, total
from dsv2.jobs.summary.pressure import Pressure, pressure_of
from dsv2.jobs.summary.rates import spans_ms
from dsv2.plan_view.model import OperatorView, PlanView
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN, RESERVED


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """One operator.

    Attributes:
        uid: Its uid.
        name: The uid that the user gave, otherwise the name.
        kind: The name of its ``OperatorKind``.
        records_in: Number of records received.
        records_out: Number of records emitted.
        in_rate: Records received per second of the clock.
        out_rate: Records emitted per second of the clock.
        pressure: How busy it is, and what is wrong.
        held: Number of records buffered behind aligned watermarks.
        late: Number of records dropped because they were late.
        errors: Number of errors that its policy handled.
        keys: Number of keys with state.
        timers: Number of registered timers.
        state_bytes: Size of the state of all subtasks, in bytes. None: unknown.
        lag: For a source, the number of records that are available and not read. None: unknown.
        event_time: Its event time. None: it has none.
        behind_ms: How far it is behind the newest event time in the job. None: unknown, or at the end.
        watermarks: The values of each watermark of the program.
        counters: Counters of the function.
        gauges: Gauges of the function.
    """

    uid: str
    name: str
    kind: str
    records_in: int
    records_out: int
    in_rate: float
    out_rate: float
    pressure: Pressure
    held: int
    late: int
    errors: int
    keys: int
    timers: int
    state_bytes: int | None
    lag: int | None
    event_time: Slowest | None
    behind_ms: int | None
    watermarks: Mapping[str, Slowest] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Records received per second; of a source, those emitted."""
        return self.out_rate if self.kind == "source" else self.in_rate

    @property
    def busy(self) -> float | None:
        """The share of the time that its busiest subtask spends in its callbacks. None: unknown, or a source."""
        return None if self.kind == "source" else self.pressure.busy


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job.

    Attributes:
        batch_id: The last complete micro-batch. -1: there is none.
        batch: Its times. None: unknown.
        rates: Records read per second of the clock, by micro-batch.
        operators: The operators, upstream first.
        busiest: The function whose busiest subtask spends the most time in its callbacks. None: unknown.
        slowest: The operator whose event time is the lowest. None: there is no event time.
    """

    batch_id: int
    batch: BatchProgress | None
    rates: Sequence[float]
    operators: Sequence[OperatorSummary]
    busiest: OperatorSummary | None
    slowest: OperatorSummary | None

    @property
    def records_read(self) -> int:
        """Number of records read from sources."""
        return sum(one.records_out for one in self._of_kind("source"))

    @property
    def in_rate(self) -> float:
        """Records read from sources per second of the clock."""
        return sum(one.out_rate for one in self._of_kind("source"))

    @property
    def out_rate(self) -> float:
        """Records written to sinks per second of the clock."""
        return sum(one.in_rate for one in self._of_kind("sink"))

    def _of_kind(self, kind: str) -> list[OperatorSummary]:
        return [one for one in self.operators if one.kind == kind]

    @property
    def lag(self) -> int | None:
        """Number of records that are available and not read. None: unknown."""
        return total(one.lag for one in self.operators)

    @property
    def state_bytes(self) -> int | None:
        """The size of all state, in bytes. None: unknown."""
        return total(one.state_bytes for one in self.operators)

    @property
    def held(self) -> int:
        """Number of records buffered behind aligned watermarks."""
        return sum(one.held for one in self.operators)

    @property
    def late(self) -> int:
        """Number of records dropped because they were late."""
        return sum(one.late for one in self.operators)

    @property
    def errors(self) -> int:
        """Number of errors that policies handled."""
        return sum(one.errors for one in self.operators)


def summarize(plan: PlanView | None, progress: JobProgress, moments: Sequence[Moment] = ()) -> JobSummary:
    """Summarize the progress of a job.

    Args:
        plan: Its plan. None: unknown, so no operators are known.
        progress: The progress.
        moments: Its history, the newest last.
    """
    views = () if plan is None else plan.operators
    known = [(one, found) for one in views if (found := progress.operators.get(one.uid or "")) is not None]
    awaiting = () if plan is None else awaiting_event_time(plan)
    times = {found.uid: time for _, found in known if (time := event_time_of(found, awaiting)) is not None}
    latest = newest(times.values())
    batches = progress.batches
    operators = [
        _operator(one, found, pressure_of(found.uid, moments), times.get(found.uid), latest) for one, found in known
    ]
    return JobSummary(
        progress.batch_id,
        batches[-1] if batches else None,
        [batch.records_in * 1000 / max(span, 1.0) for batch, span in zip(batches, spans_ms(batches), strict=True)],
        operators,
        max((one for one in operators if one.busy), key=lambda one: one.busy or 0.0, default=None),
        min((one for one in operators if one.event_time is not None), key=_event_time, default=None),
    )


def _operator(
    view: OperatorView, found: OperatorProgress, pressure: Pressure, event_time: Slowest | None, latest: int | None
) -> OperatorSummary:
    time = None if event_time is None else event_time.time
    identifiers = [identifier for identifier in found.watermarks if not identifier.startswith(RESERVED)]
    watermarks = {one: values for one in identifiers if (values := watermark_of(found, one)) is not None}
    return OperatorSummary(
        found.uid,
        printable(view.title),
        view.kind.value,
        found.records_in,
        found.records_out,
        found.records_in_per_second,
        found.records_out_per_second,
        pressure,
        found.records_held,
        sum(subtask.late_records for subtask in found.subtasks),
        sum(subtask.errors for subtask in found.subtasks),
        sum(subtask.keys for subtask in found.subtasks),
        sum(subtask.timers for subtask in found.subtasks),
        state_bytes_of(found),
        lag_of(found),
        event_time,
        None if time is None or latest is None or time >= LONG_MAX else latest - time,
        watermarks,
        found.counters,
        found.gauges,
    )


def _event_time(operator: OperatorSummary) -> int:
    assert operator.event_time is not None
    return LONG_MIN if operator.event_time.time is None else operator.event_time.time
