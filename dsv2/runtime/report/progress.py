"""Combines the progress reports of the subtasks of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any, TypeAlias

from dsv2.graph import Exchange, Operator, OperatorKind, Plan
from dsv2.jobs.progress import (
    BatchProgress,
    HistogramProgress,
    JobProgress,
    OperatorProgress,
    SplitProgress,
    SubtaskProgress,
)
from dsv2.runtime.report.metrics import HistogramParts, merged
from dsv2.runtime.report.policy_rules import SKIPPED_COUNTERS

LATE_RECORDS_DROPPED = "late_records_dropped"
"""The counter of late records that a window or join drops."""

Counts: TypeAlias = tuple[float, float]
"""Records in and out, or records in and out per second."""

_NS_PER_MS = 1_000_000


def job_progress(
    plan: Plan,
    batch_id: int,
    reports: Iterable[Mapping[str, Any]],
    rates: Mapping[str, Counts] | None = None,
    batches: Sequence[BatchProgress] = (),
    splits: Mapping[str, Sequence[SplitProgress]] | None = None,
) -> JobProgress:
    """Return the progress of a job.

    Args:
        plan: The plan of the job.
        batch_id: The micro-batch that the progress describes.
        reports: Results of ``Subtask.progress``, with ``inputs`` as ``Channels.note`` returns them. The last
            report of a subtask counts.
        rates: The records per second of the operators, by uid. None (default): they are 0.
        batches: The last micro-batches.
        splits: The splits of the sources, by uid. None (default): they are unknown.
    """
    by_operator: dict[str, dict[int, Mapping[str, Any]]] = {operator.uid: {} for operator in plan.operators}
    for report in reports:
        by_operator[report["uid"]][report["subtask"]] = report
    totals = total_counts(plan, [report for of_subtasks in by_operator.values() for report in of_subtasks.values()])
    operators = {
        operator.uid: _operator_progress(
            operator,
            by_operator[operator.uid],
            totals[operator.uid],
            (rates or {}).get(operator.uid, (0.0, 0.0)),
            (splits or {}).get(operator.uid, ()),
        )
        for operator in plan.operators
    }
    return JobProgress(batch_id, operators, tuple(batches), plan.job_name)


def total_counts(plan: Plan, reports: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return how many records each operator has received and emitted, by uid.

    A sink has received what the operators upstream have sent to it.

    Args:
        plan: The plan of the job.
        reports: The report of each subtask.
    """
    received = Counter[str]()
    sent = {operator.uid: [0] * operator.outputs for operator in plan.operators}
    for report in reports:
        received[report["uid"]] += report["records_in"]
        sent[report["uid"]] = list(map(add, sent[report["uid"]], report["outputs"]))
    for operator in plan.operators:
        if operator.kind is OperatorKind.SINK:
            for edge in plan.edges_into[operator.id]:
                copies = operator.parallelism if edge.exchange is Exchange.BROADCAST else 1
                received[operator.uid] += copies * sent[plan.operators[edge.source].uid][edge.output]
    return {uid: (received[uid], sum(outputs)) for uid, outputs in sent.items()}


def _operator_progress(
    operator: Operator,
    reports: Mapping[int, Mapping[str, Any]],
    totals: tuple[int, int],
    rates: Counts,
    splits: Sequence[SplitProgress],
) -> OperatorProgress:
    sizes = [report["state_bytes"] for report in reports.values() if report.get("state_bytes") is not None]
    identifiers = sorted({identifier for report in reports.values() for identifier in report["watermarks"]})
    return OperatorProgress(
        operator.uid,
        operator.name,
        records_in=totals[0],
        records_out=totals[1],
        records_held=sum(report["records_held"] for report in reports.values()),
        watermarks={
            identifier: tuple(
                reports[subtask]["watermarks"].get(identifier) if subtask in reports else None
                for subtask in range(operator.parallelism)
            )
            for identifier in identifiers
        },
        counters=_sums(report["counters"] for report in reports.values()),
        gauges=_sums(report["gauges"] for report in reports.values()),
        histograms=_histograms(report["histograms"] for report in reports.values()),
        state_bytes=max(sizes, default=None),
        records_in_per_second=rates[0],
        records_out_per_second=rates[1],
        subtasks=tuple(_subtask_progress(reports[subtask]) for subtask in sorted(reports)),
        splits=tuple(splits),
    )


def _subtask_progress(report: Mapping[str, Any]) -> SubtaskProgress:
    counters = report["counters"]
    return SubtaskProgress(
        report["subtask"],
        records_in=report["records_in"],
        records_out=sum(report["outputs"]),
        outputs=tuple(report["outputs"]),
        records_held=report["records_held"],
        late_records=counters.get(LATE_RECORDS_DROPPED, 0),
        errors=sum(counters.get(name, 0) for name in SKIPPED_COUNTERS),
        user_time_ms=report["user_ns"] / _NS_PER_MS,
        state_bytes=report.get("state_bytes"),
        keys=report["keys"],
        timers=report["timers"],
        event_time=report["event_time"],
        watermarks=report["watermarks"],
        ended=report["ended"],
        inputs=tuple(report["inputs"]),
    )


def _sums(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for part in parts:
        for name, value in part.items():
            total[name] += value
    return dict(total)


def _histograms(reports: Iterable[Mapping[str, HistogramParts]]) -> dict[str, HistogramProgress]:
    parts: dict[str, list[HistogramParts]] = {}
    for report in reports:
        for name, one in report.items():
            parts.setdefault(name, []).append(one)
    return {name: merged(of_subtasks) for name, of_subtasks in parts.items()}
