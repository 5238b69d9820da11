"""Converts the progress of jobs to samples of metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from dsv2.jobs.progress import InputProgress, JobProgress, OperatorProgress
from dsv2.jobs.summary.event_time import Slowest, event_time_of_splits, event_time_of_subtasks, watermark_of
from dsv2.jobs.summary.history import lag_of, total
from dsv2.jobs.summary.splits import status_of
from dsv2.views.metrics import definitions as m
from dsv2.views.metrics.definitions import Metric, MetricKind, Sample, Value
from dsv2.views.metrics.jobs import RunningJob
from dsv2.watermark.event_time import EVENT_TIME as EVENT_TIME_WATERMARK
from dsv2.watermark.event_time import IDLE_STATUS, LONG_MAX, LONG_MIN, USE_PROCESSING_TIME

GAUGES_AMONG_COUNTERS = frozenset({"probe_records_waiting"})
"""Counters of dsv2 that also decrease. They are counters because they are part of the checkpoint."""

_OUTCOMES = {"errors_retried": "retried", "errors_skipped": "skipped", "errors_dead_lettered": "dead_lettered"}
_NOT_WATERMARKS = {EVENT_TIME_WATERMARK, IDLE_STATUS, USE_PROCESSING_TIME}

_COUNTS: Sequence[tuple[Metric, Callable[[Any], float]]] = [
    (m.RECORDS_IN, attrgetter("records_in")),
    (m.RECORDS_OUT, attrgetter("records_out")),
    (m.RECORDS_HELD, attrgetter("records_held")),
]
_SUMS: Sequence[tuple[Metric, Callable[[Any], float]]] = [
    (m.LATE_RECORDS, attrgetter("late_records")),
    (m.USER_TIME, lambda subtask: subtask.user_time_ms / 1000),
    (m.KEYS, attrgetter("keys")),
    (m.TIMERS, attrgetter("timers")),
]


def samples_of(job: RunningJob, *, per_subtask: bool, per_split: bool) -> Iterator[Sample]:
    """Return the samples of a running job, except those about the process.

    There are no counter samples before the first micro-batch: counters continue from the checkpoint, not from 0.
    """
    progress = job.progress
    if progress is None:
        return
    labels = {"job_name": job.name}
    yield Sample(m.BATCH_ID, labels, progress.batch_id)
    if progress.batches:
        last = progress.batches[-1]
        yield Sample(m.BATCH_END_TIME, labels, (last.started_at_ms + last.duration_ms) / 1000)
    for operator in progress.operators.values():
        of_operator = {**labels, "operator": operator.uid}
        yield from _operator(operator, of_operator, per_subtask=per_subtask, awaiting=job.awaiting)
        yield from _inputs(operator, of_operator)
        if operator.splits:
            yield from _splits(operator, of_operator, per_split=per_split)
        yield from _of_function(operator, of_operator)


def samples_of_run(job: RunningJob) -> Iterator[Sample]:
    """Return the samples of a running job that are not part of its progress: its start, restarts and phases."""
    labels = {"job_name": job.name}
    yield Sample(m.JOB_START_TIME, labels, job.started_at_ms / 1000)
    yield Sample(m.JOB_RESTARTS, labels, job.restarts)
    for phase, spent in job.phase_ms.items():
        yield Sample(m.BATCH_PHASE_TIME, {**labels, "phase": phase}, spent / 1000)


def samples_of_functions(progress: JobProgress) -> Iterator[Sample]:
    """Return the samples of the metrics that functions have, which may be new in each micro-batch."""
    for operator in progress.operators.values():
        yield from _of_function(operator, {"job_name": progress.job_name, "operator": operator.uid})


def _operator(
    operator: OperatorProgress, labels: Mapping[str, str], *, per_subtask: bool, awaiting: Collection[str] = ()
) -> Iterator[Sample]:
    parts = [({**labels, "subtask": str(one.subtask)}, one, [one]) for one in operator.subtasks]
    for of_part, counted, subtasks in parts if per_subtask else [(labels, operator, operator.subtasks)]:
        for metric, get in _COUNTS:
            yield Sample(metric, of_part, get(counted))
        for metric, get in _SUMS:
            yield Sample(metric, of_part, sum(map(get, subtasks)))
        if (size := total(one.state_bytes for one in subtasks)) is not None:
            yield Sample(m.STATE_SIZE, of_part, size)
        yield from _time(m.EVENT_TIME, of_part, event_time_of_subtasks(operator, subtasks, awaiting))
    if operator.state_bytes is not None:
        yield Sample(m.LARGEST_STATE_SIZE, labels, operator.state_bytes)
    for counter, outcome in _OUTCOMES.items():
        yield Sample(m.ERRORS, {**labels, "outcome": outcome}, operator.counters.get(counter, 0))
    for identifier in operator.watermarks:
        found = watermark_of(operator, identifier)
        if found is not None and isinstance(found.least, int | float) and identifier not in _NOT_WATERMARKS:
            yield Sample(m.WATERMARK, {**labels, "watermark": identifier}, found.least)


def _inputs(operator: OperatorProgress, labels: Mapping[str, str]) -> Iterator[Sample]:
    states: dict[int, Counter[str]] = {}
    for one in (one for subtask in operator.subtasks for one in subtask.inputs):
        states.setdefault(one.input, Counter()).update(_channels(one))
    for index, counts in sorted(states.items()):
        for state, count in counts.items():
            yield Sample(m.CHANNELS, {**labels, "input": str(index), "state": state}, count)


def _channels(one: InputProgress) -> dict[str, int]:
    active = one.channel_count - one.idle_count - one.ended_count
    return {"active": active, "idle": one.idle_count, "ended": one.ended_count}


def _splits(operator: OperatorProgress, labels: Mapping[str, str], *, per_split: bool) -> Iterator[Sample]:
    if (lag := lag_of(operator)) is not None:
        yield Sample(m.RECORDS_LAG, labels, lag)
    states = Counter({"active": 0, "idle": 0, "paused": 0, "ended": 0})
    states.update(map(status_of, operator.splits))
    for state, count in states.items():
        yield Sample(m.SPLITS, {**labels, "state": state}, count)
    yield from _time(m.SOURCE_EVENT_TIME, labels, event_time_of_splits(operator.splits))
    for split in operator.splits if per_split else ():
        of_split = {**labels, "split": split.split}
        if split.lag is not None:
            yield Sample(m.SPLIT_RECORDS_LAG, of_split, split.lag)
        if split.event_time is not None and split.event_time < LONG_MAX:
            yield Sample(m.SPLIT_EVENT_TIME, of_split, split.event_time / 1000)


def _time(metric: Metric, labels: Mapping[str, str], found: Slowest | None) -> Iterator[Sample]:
    """Return the earliest time, unless it is the end of all input. A part without a time is as early as possible."""
    if found is not None and (time := LONG_MIN if found.time is None else found.time) < LONG_MAX:
        yield Sample(metric, labels, time / 1000)


def _of_function(operator: OperatorProgress, labels: Mapping[str, str]) -> Iterator[Sample]:
    of_kinds: Sequence[tuple[MetricKind, Mapping[str, Value]]] = [
        (MetricKind.COUNTER, operator.counters),
        (MetricKind.GAUGE, operator.gauges),
        (MetricKind.HISTOGRAM, operator.histograms),
    ]
    for kind, values in of_kinds:
        for name, value in sorted(values.items()):
            if kind is not MetricKind.COUNTER or name not in _OUTCOMES:
                actual = MetricKind.GAUGE if name in GAUGES_AMONG_COUNTERS else kind
                yield Sample(_function_metric(name, actual), labels, value)


def _function_metric(name: str, kind: MetricKind) -> Metric:
    return Metric(f"function.{name}", kind, "", f"The {kind.value} {name!r} of functions.", ("job_name", "operator"))
