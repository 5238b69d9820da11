"""Combines the progress reports of the subtasks of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.progress import HistogramProgress, JobProgress, OperatorProgress
from dsv2.runtime.report.metrics import HistogramParts, merged

__all__ = ("job_progress",)


def job_progress(plan: Plan, batch_id: int, reports: Iterable[Mapping[str, Any]]) -> JobProgress:
    """Return the progress of a job.

    Args:
        plan: The plan of the job.
        batch_id: The micro-batch that the progress describes.
        reports: Results of ``Subtask.progress``. The last report of a subtask counts.
    """
    by_operator: dict[str, dict[int, Mapping[str, Any]]] = {}
    for report in reports:
        by_operator.setdefault(report["uid"], {})[report["subtask"]] = report
    return JobProgress(
        batch_id,
        {
            operator.uid: _operator_progress(operator, by_operator.get(operator.uid, {}))
            for operator in plan.operators
            if operator.kind not in (OperatorKind.SOURCE, OperatorKind.SINK)
            or any(report["counters"] for report in by_operator.get(operator.uid, {}).values())
        },
        job_name=plan.job_name,
    )


def _operator_progress(operator: Operator, reports: Mapping[int, Mapping[str, Any]]) -> OperatorProgress:
    identifiers = sorted({identifier for report in reports.values() for identifier in report["watermarks"]})
    return OperatorProgress(
        operator.uid,
        operator.name,
        records_in=sum(report["records_in"] for report in reports.values()),
        records_out=sum(report["records_out"] for report in reports.values()),
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
        histograms=_histograms(report.get("histograms", {}) for report in reports.values()),
        state_bytes=max((report.get("state_bytes", 0) for report in reports.values()), default=0),
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
