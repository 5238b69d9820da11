"""The phases of a micro-batch on Spark, from the times of its tasks and from what Spark measures itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.runtime.report.phases import COMMIT, PLANNING, SINKS, SOURCE, level
from dsv2.runtime.report.subtask_report import SubtaskReport
from runtime_spark.sink.sinks import SinkWriter

_PLANNING: Final = ("latestOffset", "getBatch", "queryPlanning", "walCommit")
_COMMIT: Final = ("commitOffsets", "commitBatch")
_EXECUTED: Final = "addBatch"
_ALL: Final = "triggerExecution"


@dataclass(frozen=True)
class TaskTimes:
    """The times of the tasks of a micro-batch, by the clocks of the workers.

    Attributes:
        phases: For the sources and each level, the time in ms from the first begin to the last end.
        first: When the first task began, in ms since the epoch.
        last: When the last task ended.
    """

    phases: Mapping[str, float]
    first: int
    last: int


@dataclass(frozen=True)
class SparkTimes:
    """Spark's measurements of a micro-batch. Times in ms; ``started_at`` is since the epoch."""

    started_at: int
    duration: float
    planning: float
    commit: float


def task_times(plan: Plan, reports: Iterable[SubtaskReport], now_ms: int) -> TaskTimes:
    """Return the times of the tasks that sent ``reports``. Without any, they began and ended at ``now_ms``."""
    operators = {operator.uid: operator for operator in plan.operators}
    spans: dict[str, tuple[int, int]] = {}
    for report in reports:
        if (span := report.span) is not None:
            phase = _phase(plan, operators[report.uid])
            begin, end = spans.get(phase, span)
            spans[phase] = min(begin, span[0]), max(end, span[1])
    return TaskTimes(
        {phase: float(end - begin) for phase, (begin, end) in spans.items()},
        min((begin for begin, _ in spans.values()), default=now_ms),
        max((end for _, end in spans.values()), default=now_ms),
    )


def spark_times(progress: StreamingQueryProgress) -> SparkTimes | None:
    """Return the times of the micro-batch of ``progress``. None: it has run none."""
    durations = progress.durationMs
    if _EXECUTED not in durations:
        return None
    return SparkTimes(
        round(datetime.fromisoformat(progress.timestamp).timestamp() * 1_000),
        float(durations[_ALL]),
        float(sum(durations.get(name, 0) for name in _PLANNING)),
        float(sum(durations.get(name, 0) for name in _COMMIT)),
    )


def batch_phases(levels: int, tasks: TaskTimes, *, planning: float, written_at: int, commit: float) -> dict[str, float]:
    """Return the phases of a micro-batch in order.

    Args:
        levels: The number of levels of the plan.
        tasks: The times of the tasks.
        planning: The time in ms before them.
        written_at: When all records had been written to the sinks, in ms since the epoch.
        commit: The time in ms of the commit.
    """
    of_levels = {level(depth): tasks.phases.get(level(depth), 0.0) for depth in range(1, levels + 1)}
    return {
        PLANNING: planning,
        SOURCE: tasks.phases.get(SOURCE, 0.0),
        **of_levels,
        SINKS: float(max(0, written_at - tasks.last)),
        COMMIT: commit,
    }


def _phase(plan: Plan, operator: Operator) -> str:
    return SOURCE if operator.kind is OperatorKind.SOURCE else level(plan.depths[operator.id])


def what_runs(writer: SinkWriter, spark: SparkSession, doing: str) -> str:
    """Describe what has not returned: a sink on the driver, or tasks. ``doing``: What Spark itself says about it."""
    if (sink := writer.writes_to) is not None:
        return f"the function of the sink {sink}, defined at {sink.location}, has not returned"
    numbers = writer.tasks.running(spark)
    found = [name for number in numbers for name in writer.tasks.subtasks_in(number)]
    running = (
        f"; tasks {', '.join(map(str, numbers))} are running, which may contain {'; '.join(found)}" if found else ""
    )
    return f"Spark reports {doing!r}{running}"
