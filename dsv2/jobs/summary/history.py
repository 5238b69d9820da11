"""The history of a job: what each micro-batch has changed, per operator.

Progress counts since the job first started. A moment is the difference between two progress reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dsv2.jobs.progress import BatchProgress, JobProgress, OperatorProgress
from dsv2.jobs.summary.rates import span_ms
from dsv2.plan_view.model import PlanView

HISTORY = 600
"""The number of micro-batches that a history keeps."""


@dataclass(frozen=True, slots=True)
class OperatorMoment:
    """One operator between two reports.

    Attributes:
        records_in: Number of records received.
        records_out: Number of records emitted.
        busy_ms: Time in the callbacks of its busiest subtask, without the operators that are chained to it. None:
            unknown.
        records_held: Number of records buffered behind aligned watermarks afterwards.
        state_bytes: Size of its state afterwards, in bytes. None: unknown.
        lag: For a source, the number of records that were available and not read afterwards. None: unknown.
    """

    records_in: int = 0
    records_out: int = 0
    busy_ms: float | None = None
    records_held: int = 0
    state_bytes: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """The changes between two reports.

    Attributes:
        batch: The last micro-batch.
        span_ms: The time since the micro-batch before it ended, in ms.
        duration_ms: The duration of all micro-batches between the reports, in ms.
        operators: The operators by uid.
    """

    batch: BatchProgress
    span_ms: float
    duration_ms: float
    operators: Mapping[str, OperatorMoment] = field(default_factory=dict)

    @property
    def state_bytes(self) -> int | None:
        """The size of all state, in bytes. None: unknown."""
        return total(operator.state_bytes for operator in self.operators.values())

    @property
    def lag(self) -> int | None:
        """The number of records that were available and not read. None: unknown."""
        return total(operator.lag for operator in self.operators.values())


class History:
    """The last moments of a job. ``most``: Their number."""

    def __init__(self, most: int = HISTORY) -> None:
        self._chained: dict[str, list[str]] = {}
        self._before: JobProgress | None = None
        self._moments = deque[Moment](maxlen=most)

    def describe(self, plan: PlanView | None) -> History:
        """Set the plan, as the time of an operator includes that of the operators chained to it. Return the history."""
        self._chained = {}
        for edge in () if plan is None else plan.edges:
            if plan is not None and edge.chained:
                source, target = plan.operators[edge.source].uid or "", plan.operators[edge.target].uid or ""
                self._chained.setdefault(source, []).append(target)
        return self

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The last moments, the newest last."""
        return tuple(self._moments)

    def add(self, now: JobProgress) -> Moment | None:
        """Add the progress after a micro-batch. None: it is not newer, or has not reported its times."""
        before, batch = self._before, now.batches[-1] if now.batches else None
        if before is not None and before.batch_id == now.batch_id:
            return None
        self._before = now
        if batch is None or batch.batch_id != now.batch_id:
            return None
        if before is not None:
            known = before.operators
            new = [one for one in now.batches if one.batch_id > before.batch_id] or [batch]
        else:  # what was before is unknown, unless there was nothing
            began = now.batches[0].batch_id == 0
            known = {uid: OperatorProgress(uid, one.name) for uid, one in now.operators.items()} if began else {}
            new = list(now.batches)
        busy = dict(_busy_times(known, now.operators, self._chained))
        earlier = next((one for one in reversed(now.batches) if one.batch_id < batch.batch_id), None)
        moment = Moment(
            batch,
            span_ms(earlier, batch),
            sum(one.duration_ms for one in new),
            {uid: _change(known.get(uid), operator, busy.get(uid)) for uid, operator in now.operators.items()},
        )
        self._moments.append(moment)
        return moment


def total(values: Iterator[int | None]) -> int | None:
    """The sum of those that are known. None: none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def state_bytes_of(operator: OperatorProgress) -> int | None:
    """The size of the state of all subtasks of an operator, in bytes. None: unknown."""
    return total(subtask.state_bytes for subtask in operator.subtasks)


def lag_of(operator: OperatorProgress) -> int | None:
    """The number of records of a source that are available and not read. None: unknown."""
    return total(split.lag for split in operator.splits)


def _change(before: OperatorProgress | None, now: OperatorProgress, busy_ms: float | None) -> OperatorMoment:
    return OperatorMoment(
        records_in=0 if before is None else max(0, now.records_in - before.records_in),
        records_out=0 if before is None else max(0, now.records_out - before.records_out),
        busy_ms=busy_ms,
        records_held=now.records_held,
        state_bytes=state_bytes_of(now),
        lag=lag_of(now),
    )


def _busy_times(
    before: Mapping[str, OperatorProgress], now: Mapping[str, OperatorProgress], chained: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, float]]:
    """The time of the busiest subtask of each operator, in ms. Subtasks of a chain have the same index."""
    times = {uid: _times(before[uid], operator) for uid, operator in now.items() if uid in before and operator.subtasks}
    for uid, of_subtasks in times.items():
        inner = [times[other] for other in chained.get(uid, ()) if other in times]
        own = [spent - sum(other.get(subtask, 0.0) for other in inner) for subtask, spent in of_subtasks.items()]
        yield uid, max(0.0, *own)


def _times(before: OperatorProgress, now: OperatorProgress) -> dict[int, float]:
    earlier = {subtask.subtask: subtask.user_time_ms for subtask in before.subtasks}
    return {one.subtask: _since(earlier.get(one.subtask, 0.0), one.user_time_ms) for one in now.subtasks}


def _since(before_ms: float, now_ms: float) -> float:
    """The time since the last report. It begins with 0 in each run."""
    return now_ms - before_ms if now_ms >= before_ms else now_ms
