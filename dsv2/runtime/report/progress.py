"""Combines the progress reports of the subtasks of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import TypeAlias, TypeVar

from dsv2.graph import Exchange, Operator, OperatorKind, Plan
from dsv2.jobs.progress import (
    BatchProgress,
    HistogramProgress,
    InputProgress,
    JobProgress,
    OperatorProgress,
    SplitProgress,
    SubtaskProgress,
)
from dsv2.runtime.report.metrics import HistogramParts, merged
from dsv2.runtime.report.subtask_report import SubtaskReport

N = TypeVar("N", int, float)

LATE_RECORDS_DROPPED = "late_records_dropped"
"""The counter of late records that a window or join drops."""

Counts: TypeAlias = tuple[float, float]
"""Records in and out, or records in and out per second."""

Place: TypeAlias = tuple[str, int]
"""The uid of an operator, and a subtask."""

_NS_PER_MS = 1_000_000


def job_progress(
    plan: Plan,
    batch_id: int,
    reports: Iterable[SubtaskReport],
    inputs: Mapping[Place, tuple[InputProgress, ...]],
    rates: Mapping[str, Counts],
    batches: Sequence[BatchProgress],
    splits: Mapping[str, Sequence[SplitProgress]],
    restarts: int,
) -> JobProgress:
    """Return the progress of a job.

    Args:
        plan: The plan of the job.
        batch_id: The micro-batch that the progress describes.
        reports: Those of the subtasks. The last report of a subtask counts.
        inputs: The inputs of the subtasks, as ``Channels.note`` returns them.
        rates: The records per second of the operators, by uid. Of others they are 0.
        batches: The last micro-batches.
        splits: The splits of the sources, by uid. Those of others are unknown.
        restarts: How often the job was restarted.
    """
    by_operator: dict[str, dict[int, SubtaskReport]] = {operator.uid: {} for operator in plan.operators}
    for report in reports:
        by_operator[report.uid][report.subtask] = report
    totals = total_counts(plan, [report for of_subtasks in by_operator.values() for report in of_subtasks.values()])
    operators = {
        operator.uid: _operator_progress(
            operator,
            by_operator[operator.uid],
            inputs,
            totals[operator.uid],
            rates.get(operator.uid, (0.0, 0.0)),
            splits.get(operator.uid, ()),
        )
        for operator in plan.operators
    }
    return JobProgress(batch_id, operators, tuple(batches), plan.job_name, restarts)


def total_counts(plan: Plan, reports: Iterable[SubtaskReport]) -> dict[str, tuple[int, int]]:
    """Return how many records each operator has received and emitted, by uid.

    A sink has received what the operators upstream have sent to it.

    Args:
        plan: The plan of the job.
        reports: The report of each subtask.
    """
    received = Counter[str]()
    sent = {operator.uid: [0] * operator.outputs for operator in plan.operators}
    for report in reports:
        received[report.uid] += report.records_in
        sent[report.uid] = list(map(add, sent[report.uid], report.outputs))
    for operator in plan.operators:
        if operator.kind is OperatorKind.SINK:
            for edge in plan.edges_into[operator.id]:
                copies = operator.parallelism if edge.exchange is Exchange.BROADCAST else 1
                received[operator.uid] += copies * sent[plan.operators[edge.source].uid][edge.output]
    return {uid: (received[uid], sum(outputs)) for uid, outputs in sent.items()}


def _operator_progress(
    operator: Operator,
    reports: Mapping[int, SubtaskReport],
    inputs: Mapping[Place, tuple[InputProgress, ...]],
    totals: tuple[int, int],
    rates: Counts,
    splits: Sequence[SplitProgress],
) -> OperatorProgress:
    sizes = [report.state_bytes for report in reports.values() if report.state_bytes is not None]
    identifiers = sorted({identifier for report in reports.values() for identifier in report.watermarks})
    return OperatorProgress(
        operator.uid,
        operator.name,
        records_in=totals[0],
        records_out=totals[1],
        records_held=sum(report.records_held for report in reports.values()),
        watermarks={
            identifier: tuple(
                reports[subtask].watermarks.get(identifier) if subtask in reports else None
                for subtask in range(operator.parallelism)
            )
            for identifier in identifiers
        },
        counters=sums(report.counters for report in reports.values()),
        gauges=sums(report.gauges for report in reports.values()),
        histograms=_histograms(report.histograms for report in reports.values()),
        state_bytes=max(sizes, default=None),
        records_in_per_second=rates[0],
        records_out_per_second=rates[1],
        subtasks=tuple(_subtask_progress(reports[subtask], inputs) for subtask in sorted(reports)),
        splits=tuple(splits),
    )


def _subtask_progress(report: SubtaskReport, inputs: Mapping[Place, tuple[InputProgress, ...]]) -> SubtaskProgress:
    return SubtaskProgress(
        report.subtask,
        records_in=report.records_in,
        records_out=sum(report.outputs),
        outputs=tuple(report.outputs),
        records_held=report.records_held,
        late_records=report.counters.get(LATE_RECORDS_DROPPED, 0),
        errors=report.errors,
        user_time_ms=report.user_ns / _NS_PER_MS,
        state_bytes=report.state_bytes,
        keys=report.keys,
        timers=report.timers,
        event_time=report.event_time,
        watermarks=report.watermarks,
        ended=report.ended,
        inputs=inputs.get((report.uid, report.subtask), ()),
    )


def sums(parts: Iterable[Mapping[str, N]]) -> dict[str, N]:
    total: dict[str, N] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _histograms(reports: Iterable[Mapping[str, HistogramParts]]) -> dict[str, HistogramProgress]:
    parts: dict[str, list[HistogramParts]] = {}
    for report in reports:
        for name, one in report.items():
            parts.setdefault(name, []).append(one)
    return {name: merged(of_subtasks) for name, of_subtasks in parts.items()}
