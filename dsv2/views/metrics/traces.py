"""A trace of each micro-batch: its phases, and the operators within their level."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from dsv2.graph import Operator, Plan
from dsv2.jobs.progress import BatchProgress, JobProgress, OperatorProgress
from dsv2.views.metrics.definitions import ATTRIBUTES
from dsv2.views.metrics.jobs import RunningJob

_NS_PER_MS = 1_000_000


def record_batch(tracer: Tracer, job: RunningJob, before: JobProgress | None, batch: BatchProgress) -> None:
    """Record a complete micro-batch.

    Args:
        tracer: Records the spans.
        job: The job.
        before: The progress before the micro-batch, to tell what the operators did in it. None: it is not known.
        batch: The micro-batch.
    """
    begin = _ns(batch.started_at_ms)
    end = begin + _ns(batch.duration_ms)
    attributes: dict[str, AttributeValue] = {
        ATTRIBUTES["job_name"]: job.name,
        "dsv2.batch.id": batch.batch_id,
        "dsv2.batch.records_in": batch.records_in,
        "dsv2.batch.records_out": batch.records_out,
    }
    root = tracer.start_span("micro-batch", Context(), start_time=begin, attributes=attributes)
    places: dict[str, tuple[Span, int]] = {}
    cursor = begin
    for phase, spent_ms in batch.phases.items():
        # Phases that ran at the same time can take longer in sum than the micro-batch.
        start = max(begin, min(cursor, end - _ns(spent_ms)))
        places[phase] = _span(tracer, root, phase, start, spent_ms, {ATTRIBUTES["phase"]: phase}), start
        cursor = start + _ns(spent_ms)
    if job.progress is not None and (before is not None or batch.batch_id == 0):
        for operator in job.plan.operators:
            if (now := job.progress.operators.get(operator.uid)) is not None:
                earlier = None if before is None else before.operators.get(operator.uid)
                parent, start = places.get(_phase_of(job.plan, operator), (root, begin))
                _record_operator(tracer, parent, start, earlier, now)
    root.end(end)


def record_failure(tracer: Tracer, job: RunningJob, now_ms: int) -> None:
    """Record that a job has failed, in the time since its last complete micro-batch. The error is in the log."""
    started_at_ms = job.started_at_ms
    if job.progress is not None and job.progress.batches:
        last = job.progress.batches[-1]
        started_at_ms = max(started_at_ms, round(last.started_at_ms + last.duration_ms))
    span = tracer.start_span(
        "micro-batch",
        Context(),
        start_time=_ns(min(started_at_ms, now_ms)),
        attributes={ATTRIBUTES["job_name"]: job.name},
    )
    span.set_status(Status(StatusCode.ERROR, "The job failed."))
    span.end(_ns(now_ms))


def _record_operator(
    tracer: Tracer, parent: Span, start: int, earlier: OperatorProgress | None, now: OperatorProgress
) -> None:
    """Record the subtask that has spent the longest time in the function, if the time is known."""
    before = {} if earlier is None else {one.subtask: one.user_time_ms for one in earlier.subtasks}
    spent = [one.user_time_ms - before.get(one.subtask, 0.0) for one in now.subtasks]
    longest = max(spent, default=0.0)
    if longest <= 0:
        return
    counted = (0, 0) if earlier is None else (earlier.records_in, earlier.records_out)
    attributes: dict[str, AttributeValue] = {
        ATTRIBUTES["operator"]: now.uid,
        ATTRIBUTES["name"]: now.name,
        "dsv2.operator.records_in": now.records_in - counted[0],
        "dsv2.operator.records_out": now.records_out - counted[1],
        "dsv2.operator.user_time": sum(spent) / 1000,
    }
    _span(tracer, parent, now.uid, start, longest, attributes)


def _span(
    tracer: Tracer, parent: Span, name: str, start: int, spent_ms: float, attributes: Mapping[str, AttributeValue]
) -> Span:
    span = tracer.start_span(
        name, set_span_in_context(parent, Context()), start_time=start, attributes=dict(attributes)
    )
    span.end(start + _ns(spent_ms))
    return span


def _phase_of(plan: Plan, operator: Operator) -> str:
    """The phase in which the subtasks of ``operator`` run. Empty: it is not known."""
    depth = plan.depths.get(plan.chain_heads.get(operator.id, operator.id))
    return "source" if depth is None else f"level {depth}"


def _ns(ms: float) -> int:
    return round(ms * _NS_PER_MS)
