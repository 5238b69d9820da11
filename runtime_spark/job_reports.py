"""The progress that the subtasks of a job report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from dsv2.graph import OperatorKind, Plan
from dsv2.progress import JobProgress
from dsv2.runtime.report.progress import job_progress

__all__ = ("JobReports",)


class JobReports:
    """The latest progress report of every operator and subtask."""

    def __init__(self, plan: Plan, ended_sources: Collection[tuple[str, int]]) -> None:
        """``ended_sources``: The subtasks of sources that ended in earlier runs, and report nothing in this one."""
        self._plan = plan
        self._ended_sources = ended_sources
        self._awaited = [
            (operator.uid, subtask)
            for operator in [*(one for chain in plan.chains.values() for one in chain), *plan.read_by_sinks]
            for subtask in range(operator.parallelism)
        ]
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}
        self._batch_id = -1
        # Sources and the operators chained to them have no state to count in, so they report each portion separately.
        sources = [operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE]
        self._in_portions = {operator.uid for operator in [*sources, *plan.chained_to_sources]}
        self._sums: dict[tuple[str, int], dict[str, Any]] = {}

    def add(self, batch_id: int, reports: list[dict[str, Any]]) -> None:
        for report in reports:
            place = (report["uid"], report["subtask"])
            self._latest[place] = report
            if report["uid"] in self._in_portions:
                before = self._sums.get(place, {"records_in": 0, "records_out": 0, "counters": {}})
                sums = {count: before[count] + report[count] for count in ("records_in", "records_out")}
                counters = Counter(before["counters"])
                counters.update(report["counters"])
                self._sums[place] = {**report, **sums, "counters": dict(counters)}
        self._batch_id = batch_id

    def progress(self) -> JobProgress:
        return job_progress(self._plan, self._batch_id, [*self._latest.values(), *self._sums.values()])

    def held(self) -> dict[str, int]:
        """Return the number of records buffered behind aligned watermarks, for each operator that has any."""
        counts = Counter[str]()
        for (uid, _), report in self._latest.items():
            counts[uid] += report["records_held"]
        return {str(operator): counts[operator.uid] for operator in self._plan.operators if counts[operator.uid]}

    def all_ended(self) -> bool:
        """Whether every subtask has received the end of its input, and every source that a sink reads has ended."""
        return all(self._latest.get(place, {}).get("ended") or place in self._ended_sources for place in self._awaited)
