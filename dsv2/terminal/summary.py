"""What a live view shows of a job, as numbers: derived from its progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.printable import printable
from dsv2.progress import BatchProgress, JobProgress, OperatorProgress
from dsv2.watermark import BoolWatermarkCombinationFunction, NumericWatermarkCombinationFunction
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN, RESERVED
from dsv2.watermark.shown import ShownValue, greatest_shown, least_shown

__all__ = ("EventTimeSummary", "JobSummary", "OperatorSummary", "Summarizer")

_WINDOW_MS = 10_000
_COMPARED = 8  # progress that the time in user code is compared with, in micro-batches
_TAKES_GREATEST = (NumericWatermarkCombinationFunction.MAX, BoolWatermarkCombinationFunction.OR)


@dataclass(frozen=True, slots=True)
class EventTimeSummary:
    """The event time of an operator.

    Attributes:
        time: The lowest event time of its subtasks, or of the splits of a source, in ms. None: one of them has none.
        without: How many of them have no event time yet.
        parts: How many subtasks or splits there are.
        behind_ms: How far it is behind the newest event time in the job. None: unknown, or at the end.
    """

    time: int | None
    without: int
    parts: int
    behind_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """One operator.

    Attributes:
        name: The uid that the user gave, otherwise the name.
        kind: What kind of operator it is.
        records_in: Number of records received.
        records_out: Number of records emitted.
        rate: Records received per second; of a source, those emitted.
        busy: The share of the time that its busiest subtask spends in its callbacks, without those of operators
            chained to it. None: unknown.
        held: Number of records buffered behind aligned watermarks.
        late: Number of records dropped because they were late.
        errors: Number of errors that its policy handled.
        keys: Number of keys with state.
        timers: Number of registered timers.
        state_bytes: Size in bytes of the checkpointed value of the largest subtask.
        event_time: Its event time. None: it has none.
        watermarks: The last value of each watermark of the program.
    """

    name: str
    kind: OperatorKind
    records_in: int
    records_out: int
    rate: float
    busy: float | None
    held: int
    late: int
    errors: int
    keys: int
    timers: int
    state_bytes: int
    event_time: EventTimeSummary | None
    watermarks: Mapping[str, ShownValue]


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job.

    Attributes:
        batch_id: The last complete micro-batch. -1: there is none.
        batch: Its times. None: unknown.
        records_read: Number of records read from sources.
        rate: Records read per second in the last ten seconds. None: unknown.
        rates: Records read per second, by micro-batch.
        lag: Number of records that are available and not read. None: unknown.
        operators: The operators, upstream first.
        slowest: The function with the most time in its callbacks. None: unknown.
        slowest_event_time: The operator whose event time is the lowest. None: there is no event time.
    """

    batch_id: int
    batch: BatchProgress | None
    records_read: int
    rate: float | None
    rates: Sequence[float]
    lag: int | None
    operators: Sequence[OperatorSummary]
    slowest: OperatorSummary | None
    slowest_event_time: OperatorSummary | None

    @property
    def held(self) -> int:
        """Number of records buffered behind aligned watermarks."""
        return sum(operator.held for operator in self.operators)

    @property
    def late(self) -> int:
        """Number of records dropped because they were late."""
        return sum(operator.late for operator in self.operators)

    @property
    def errors(self) -> int:
        """Number of errors that policies handled."""
        return sum(operator.errors for operator in self.operators)


class Summarizer:
    """Summarizes the progress of one job, which it is told from time to time. ``plan``: Its plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._history: deque[tuple[int, Mapping[str, Sequence[float]]]] = deque(maxlen=_COMPARED)
        self._chained = {
            operator.uid: [
                plan.operators[edge.target].uid for edge in plan.edges_out_of[operator.id] if plan.is_chained(edge)
            ]
            for operator in plan.operators
        }

    def summary(self, progress: JobProgress) -> JobSummary:
        """Summarize ``progress``."""
        busy = self._busy(progress)
        newest = _newest(progress)
        known = [(operator, progress.operators.get(operator.uid)) for operator in self._plan.operators]
        operators = [
            self._operator(operator, found, busy.get(operator.uid), newest) for operator, found in known if found
        ]
        functions = [one for one in operators if one.kind is not OperatorKind.SOURCE and one.busy]
        timed = [one for one in operators if one.event_time is not None]
        lags = [split.lag for _, found in known if found for split in found.splits if split.lag is not None]
        return JobSummary(
            progress.batch_id,
            progress.batches[-1] if progress.batches else None,
            sum(self._records_read(source, progress) for source in self._sources()),
            _rate(progress.batches),
            [batch.records_in / max(batch.duration_ms, 1.0) * 1000 for batch in progress.batches],
            sum(lags) if lags else None,
            operators,
            max(functions, key=lambda one: one.busy or 0.0) if len(functions) > 1 else None,
            min(timed, key=_order_of_event_time) if timed else None,
        )

    def _sources(self) -> Iterable[Operator]:
        return (operator for operator in self._plan.operators if operator.kind is OperatorKind.SOURCE)

    def _records_read(self, source: Operator, progress: JobProgress) -> int:
        if (found := progress.operators.get(source.uid)) is not None and found.records_out:
            return found.records_out
        targets = [self._plan.operators[edge.target].uid for edge in self._plan.edges_out_of[source.id]]
        return max((progress.operators[uid].records_in for uid in targets if uid in progress.operators), default=0)

    def _busy(self, progress: JobProgress) -> Mapping[str, float]:
        """The share of time of each operator since some micro-batches ago. Empty: unknown."""
        now = {uid: self._own_times(uid, progress) for uid, found in progress.operators.items() if found.subtasks}
        if not self._history or self._history[-1][0] < progress.batch_id:
            self._history.append((progress.batch_id, now))
        before_id, before = self._history[0]
        elapsed = sum(batch.duration_ms for batch in progress.batches if batch.batch_id > before_id)
        if before_id == progress.batch_id:  # the first that is known
            before, elapsed = {}, sum(batch.duration_ms for batch in progress.batches)
            if progress.batches and progress.batches[0].batch_id > 0:
                return {}
        if not elapsed:
            return {}
        greatest = {uid: max(_differences(times, before.get(uid, ())), default=0.0) for uid, times in now.items()}
        return {uid: min(1.0, time / elapsed) for uid, time in greatest.items()}

    def _own_times(self, uid: str, progress: JobProgress) -> Sequence[float]:
        """The time in user code of each subtask, without that of operators chained to it."""
        of_chained: dict[int, float] = {}
        for chained in self._chained.get(uid, ()):
            if chained in progress.operators:
                for subtask in progress.operators[chained].subtasks:
                    of_chained[subtask.subtask] = of_chained.get(subtask.subtask, 0.0) + subtask.user_time_ms
        subtasks = progress.operators[uid].subtasks
        return [max(0.0, one.user_time_ms - of_chained.get(one.subtask, 0.0)) for one in subtasks]

    def _operator(
        self, operator: Operator, found: OperatorProgress, busy: float | None, newest: int | None
    ) -> OperatorSummary:
        is_source = operator.kind is OperatorKind.SOURCE
        return OperatorSummary(
            printable(operator.name if operator.automatic_uid else operator.uid),
            operator.kind,
            found.records_in,
            found.records_out,
            found.records_out_per_second if is_source else found.records_in_per_second,
            busy,
            found.records_held,
            sum(subtask.late_records for subtask in found.subtasks),
            sum(subtask.errors for subtask in found.subtasks),
            sum(subtask.keys for subtask in found.subtasks),
            sum(subtask.timers for subtask in found.subtasks),
            found.state_bytes,
            _event_time(found, newest),
            self._watermarks(found),
        )

    def _watermarks(self, found: OperatorProgress) -> Mapping[str, ShownValue]:
        values: dict[str, ShownValue] = {}
        for identifier, of_subtasks in found.watermarks.items():
            known = [value for value in of_subtasks if value is not None]
            if not known or identifier.startswith(RESERVED):
                continue
            best = greatest_shown if self._takes_greatest(identifier) else least_shown
            values[identifier] = best(known)
        return values

    def _takes_greatest(self, identifier: str) -> bool:
        declaration = self._plan.declarations.get(identifier)
        return declaration is not None and declaration.combination_policy.combination_function in _TAKES_GREATEST


def _differences(now: Sequence[float], before: Sequence[float]) -> list[float]:
    earlier = [*before, *([0.0] * (len(now) - len(before)))]
    return [max(0.0, time - then) for time, then in zip(now, earlier, strict=False)]


def _times(found: OperatorProgress) -> list[int | None]:
    """The event times of the subtasks, or of the active splits of a source, that hold the operator's time back."""
    if found.splits:
        return [split.event_time for split in found.splits if not split.idle and not split.ended]
    if found.subtasks:
        return [subtask.event_time for subtask in found.subtasks]
    times = found.watermarks.get(EVENT_TIME, ())
    return [time if isinstance(time, int) else None for time in times]


def _event_time(found: OperatorProgress, newest: int | None) -> EventTimeSummary | None:
    times = _times(found)
    known = [time for time in times if time is not None and time > LONG_MIN]
    if not known:
        return None
    without = len(times) - len(known)
    if without:
        return EventTimeSummary(None, without, len(times))
    behind = None if newest is None or min(known) >= LONG_MAX else newest - min(known)
    return EventTimeSummary(min(known), 0, len(times), behind)


def _newest(progress: JobProgress) -> int | None:
    times = (time for found in progress.operators.values() for time in _times(found))
    return max((time for time in times if time is not None and LONG_MIN < time < LONG_MAX), default=None)


def _order_of_event_time(operator: OperatorSummary) -> int:
    assert operator.event_time is not None
    return LONG_MIN if operator.event_time.time is None else operator.event_time.time


def _rate(batches: Sequence[BatchProgress]) -> float | None:
    """Records read per second, from the first of the last micro-batches to the end of the last one."""
    if not batches:
        return None
    last = batches[-1]
    end = last.started_at_ms + last.duration_ms
    recent = [batch for batch in batches if batch is last or batch.started_at_ms >= end - _WINDOW_MS]
    return sum(batch.records_in for batch in recent) / max(end - recent[0].started_at_ms, 1.0) * 1000
