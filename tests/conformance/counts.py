"""A check of the counts in the progress of a job: all that an operator has sent has arrived."""

from __future__ import annotations

from dsv2 import JobHandle
from dsv2.graph import Exchange, Operator, OperatorKind, Plan
from dsv2.jobs import JobListener, JobProgress, OperatorProgress


class KeptPlan(JobListener):
    """Keeps the plan of the last job."""

    plan: Plan

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        self.plan = plan


def miscounts(plan: Plan, progress: JobProgress) -> list[str]:
    """Describe the operators of ``plan`` whose counts do not fit those upstream, or those of their subtasks."""
    found = []
    for operator in plan.operators:
        own = progress.operators[operator.uid]
        expected = sum(
            _sent(progress.operators[plan.operators[edge.source].uid], edge.output)
            * (operator.parallelism if edge.exchange is Exchange.BROADCAST else 1)
            for edge in plan.edges_into[operator.id]
        )
        if own.records_in + own.records_held != expected:
            found.append(f"{operator}: {own.records_in} received and {own.records_held} held of {expected}")
        found += _miscounts_of_subtasks(operator, own)
    return found


def _sent(operator: OperatorProgress, output: int) -> int:
    return sum(subtask.outputs[output] for subtask in operator.subtasks)


def _miscounts_of_subtasks(operator: Operator, progress: OperatorProgress) -> list[str]:
    if operator.kind is OperatorKind.SINK:
        return []
    subtasks = progress.subtasks
    if [subtask.subtask for subtask in subtasks] != list(range(operator.parallelism)):
        return [f"{operator}: only {len(subtasks)} of {operator.parallelism} subtasks have reported"]
    totals = {
        "in": (progress.records_in, sum(subtask.records_in for subtask in subtasks)),
        "out": (progress.records_out, sum(subtask.records_out for subtask in subtasks)),
        "by output": (progress.records_out, sum(sum(subtask.outputs) for subtask in subtasks)),
        "held": (progress.records_held, sum(subtask.records_held for subtask in subtasks)),
    }
    return [f"{operator}: {what}: {one} is not {other}" for what, (one, other) in totals.items() if one != other]
