"""Which subtasks run in a task of Spark: what to say of one that runs for long, or has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.sinks import ParallelSink
from runtime_spark.layout import Layout, spark_partition

__all__ = ("Tasks",)

_MOST = 1000


@dataclass(frozen=True)
class Tasks:
    """The tasks of one job."""

    plan: Plan
    layout: Layout

    def sources(self) -> list[str]:
        """The sources, as errors call them."""
        return [_named(operator) for operator in self.plan.operators if operator.kind is OperatorKind.SOURCE]

    def subtasks_in(self, task: int) -> list[str]:
        """The subtasks of operators and sinks that run in the task of this number, at any level of the job.

        A source reads in tasks as they come, so the list does not include sources.
        """
        found = []
        for (operator_id, subtask), slot in self.layout.slots.items():
            if spark_partition(slot, self.layout.partitions) == task:
                found += [f"{_named(operator)}, subtask {subtask}" for operator in self._run_in_slot(operator_id)]
        return found

    def running(self, spark: SparkSession) -> list[int]:
        """The numbers of the tasks that run now in the session, of this job or of others."""
        context = spark.sparkContext
        store = context._jsc.sc().statusStore()
        numbers = set[int]()
        for stage in context.statusTracker().getActiveStageIds():
            numbers |= _numbers(store.taskList(stage, 0, _MOST), "RUNNING")
        return sorted(numbers)

    def failed(self, spark: SparkSession, run_id: str) -> list[int]:
        """The numbers of the tasks that have failed in the jobs of a query's run."""
        context = spark.sparkContext
        store, tracker = context._jsc.sc().statusStore(), context.statusTracker()
        numbers = set[int]()
        for job in tracker.getJobIdsForGroup(run_id):
            info = tracker.getJobInfo(job)
            for stage in () if info is None or info.status != "FAILED" else info.stageIds:
                numbers |= _numbers(store.taskList(stage, 0, _MOST), "FAILED")
        return sorted(numbers)

    def _run_in_slot(self, operator_id: int) -> tuple[Operator, ...]:
        operator = self.plan.operators[operator_id]
        if operator.kind is OperatorKind.SINK:
            return (operator,) if isinstance(operator.body, ParallelSink) else ()
        return self.plan.chains[operator_id]


def _numbers(tasks: Any, status: str) -> set[int]:
    found = [tasks.apply(place) for place in range(tasks.size())]
    return {task.index() for task in found if task.status() == status}


def _named(operator: Operator) -> str:
    return f"{operator}, defined at {operator.location}"
