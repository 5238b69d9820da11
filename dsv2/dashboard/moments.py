"""The history of a job: what each micro-batch has changed, per operator.

Progress counts since the job first started. A moment is the difference of the progress after two micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dsv2.progress import BatchProgress, JobProgress, OperatorProgress

__all__ = ("HISTORY", "Moment", "OperatorMoment", "moment_of", "state_bytes_of")

HISTORY = 600
"""The number of micro-batches that a dashboard keeps of each job."""


@dataclass(frozen=True, slots=True)
class OperatorMoment:
    """One operator in one micro-batch.

    Attributes:
        records_in: Number of records received in it.
        records_out: Number of records emitted in it.
        busy_ms: Time in the callbacks of its busiest subtask, without the operators that are chained to it. None:
            unknown.
        records_held: Number of records buffered behind aligned watermarks after it.
        state_bytes: Size of its state after it, in bytes.
        lag: For a source, the number of records that were available and not read after it. None: unknown.
    """

    records_in: int = 0
    records_out: int = 0
    busy_ms: float | None = None
    records_held: int = 0
    state_bytes: int = 0
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """One micro-batch: its times, and what it has changed."""

    batch: BatchProgress
    operators: Mapping[str, OperatorMoment] = field(default_factory=dict)

    @property
    def state_bytes(self) -> int:
        """The size of all state, in bytes."""
        return sum(operator.state_bytes for operator in self.operators.values())

    @property
    def lag(self) -> int | None:
        """The number of records that were available and not read. None: unknown."""
        known = [operator.lag for operator in self.operators.values() if operator.lag is not None]
        return sum(known) if known else None


def moment_of(
    before: JobProgress | None, now: JobProgress, chained: Mapping[str, tuple[str, ...]] | None = None
) -> Moment | None:
    """Return what the last micro-batch of ``now`` has changed. None: it has not reported its times.

    Args:
        before: The progress after the micro-batch before it. None: unknown, so the differences are, too, except for
            the first micro-batch of all.
        now: The progress.
        chained: For each operator the uids of those that are chained to it directly, as its time includes theirs.
    """
    batch = next((batch for batch in reversed(now.batches) if batch.batch_id == now.batch_id), None)
    if batch is None:
        return None
    if before is not None:
        known = before.operators
    elif now.batch_id == 0:  # the first one: there was nothing before it
        known = {uid: OperatorProgress(uid, operator.name) for uid, operator in now.operators.items()}
    else:
        known = {}
    busy = dict(_busy_times(known, now.operators, chained or {}))
    return Moment(
        batch,
        {uid: _change(known.get(uid), operator, busy.get(uid)) for uid, operator in now.operators.items()},
    )


def _change(before: OperatorProgress | None, now: OperatorProgress, busy_ms: float | None) -> OperatorMoment:
    lags = [split.lag for split in now.splits if split.lag is not None]
    return OperatorMoment(
        records_in=0 if before is None else max(0, now.records_in - before.records_in),
        records_out=0 if before is None else max(0, now.records_out - before.records_out),
        busy_ms=busy_ms,
        records_held=now.records_held,
        state_bytes=state_bytes_of(now),
        lag=sum(lags) if lags else None,
    )


def state_bytes_of(operator: OperatorProgress) -> int:
    """The size of the state of all subtasks of an operator, in bytes."""
    return sum(subtask.state_bytes for subtask in operator.subtasks) or operator.state_bytes


def _busy_times(
    before: Mapping[str, OperatorProgress],
    now: Mapping[str, OperatorProgress],
    chained: Mapping[str, tuple[str, ...]],
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
