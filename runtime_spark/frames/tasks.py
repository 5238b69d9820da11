"""Maps Spark tasks to the subtasks that they run, to report on tasks that run for long or have failed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.sinks import ParallelSink
from runtime_spark.frames.layout import Layout, spark_partition

_MAX_TASKS = 1000  # per stage


@dataclass(frozen=True)
class Tasks:
    """The tasks of one job."""

    plan: Plan
    layout: Layout

    def sources(self) -> list[str]:
        """Return the sources, as errors name them."""
        return [_named(operator) for operator in self.plan.operators if operator.kind is OperatorKind.SOURCE]

    def subtasks_in(self, task: int) -> list[str]:
        """Return the subtasks of operators and sinks that run in the task with this number, at any level of the job.

        Sources are not included, because they can read in any task.
        """
        found = []
        for (operator_id, subtask), slot in self.layout.slots.items():
            if spark_partition(slot, self.layout.partitions) == task:
                found += [f"{_named(operator)}, subtask {subtask}" for operator in self._run_in_slot(operator_id)]
        return found

    def running(self, spark: SparkSession) -> list[int]:
        """Return the numbers of the running tasks of the session, of any job; empty if Spark does not report them."""
        with suppress(Exception):
            _await_status(spark)
            return _numbers(spark, spark.sparkContext.statusTracker().getActiveStageIds(), "RUNNING")
        return []

    def failed(self, spark: SparkSession, run_id: str) -> list[int]:
        """Return the numbers of the failed tasks of a run of a query; empty if Spark does not report them."""
        with suppress(Exception):
            _await_status(spark)
            tracker = spark.sparkContext.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(run_id)]
            stages = [stage for job in jobs if job is not None and job.status == "FAILED" for stage in job.stageIds]
            return _numbers(spark, stages, "FAILED")
        return []

    def _run_in_slot(self, operator_id: int) -> tuple[Operator, ...]:
        operator = self.plan.operators[operator_id]
        if operator.kind is OperatorKind.SINK:
            return (operator,) if isinstance(operator.body, ParallelSink) else ()
        return self.plan.chains[operator_id]


def _await_status(spark: SparkSession) -> None:
    """Wait until Spark's status includes what has happened so far. A busy machine processes the events later."""
    with suppress(Exception):  # there are always further events
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


def _numbers(spark: SparkSession, stages: Iterable[int], status: str) -> list[int]:
    store = spark.sparkContext._jsc.sc().statusStore()  # not public, and missing in Spark Connect
    lists = [store.taskList(stage, 0, _MAX_TASKS) for stage in stages]
    tasks = [tasks.apply(place) for tasks in lists for place in range(tasks.size())]
    return sorted({task.index() for task in tasks if task.status() == status})


def _named(operator: Operator) -> str:
    return f"{operator}, defined at {operator.location}"
