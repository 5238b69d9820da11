"""Counts what the subtasks of each operator have skipped together, and refuses more than its error policy allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dsv2.errors import JobError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.runtime.report.subtask_report import SubtaskReport


class FailureLimits:
    """The limits in total of the operators of ``plan``. A subtask itself knows only its own failures.

    False if there are none.
    """

    def __init__(self, plan: Plan) -> None:
        limited = (one for one in plan.operators if one.error_policy is not None)
        self._limited = {operator.uid: operator for operator in limited if _limit(operator) is not None}
        self._latest: dict[str, dict[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._limited)

    def check(self, reports: Iterable[SubtaskReport], readers: Iterable[Mapping[str, Any]]) -> None:
        """Check the reports of the subtasks and source readers on a micro-batch, before sinks receive it.

        Raises:
            JobError: An operator has skipped more than its policy allows.
        """
        if not self._limited:
            return
        of_readers: dict[str, list[Mapping[str, Any]]] = {}
        for reader in readers:
            of_readers.setdefault(reader["source"], []).append(reader)
        for report in reports:
            self._latest.setdefault(report.uid, {})[report.subtask] = report.errors
        for uid, operator in self._limited.items():
            if operator.kind is OperatorKind.SOURCE:
                _check(operator, _total_of(of_readers.get(uid, ())))
            else:
                _check(operator, sum(self._latest.get(uid, {}).values()))


def _total_of(readers: Iterable[Mapping[str, Any]]) -> int:
    """The failures of a source up to its last micro-batch: its readers keep no counts, they receive them."""
    last = max((report["batch"] for report in readers), default=None)
    of_last = [report for report in readers if report["batch"] == last]
    before = max((report["failures_before"] for report in of_last), default=0)
    return int(before + sum(report["failures"] for report in of_last))


def _check(operator: Operator, count: int) -> None:
    limit = _limit(operator)
    if limit is not None and count > limit:
        raise JobError(
            f"The error policy of {operator}, defined at {operator.location}, allows {limit} failures in total, and "
            f"its subtasks together have had {count}. Correct the program or its input, or set a higher limit."
        )


def _limit(operator: Operator) -> int | None:
    return None if operator.error_policy is None else operator.error_policy.max_failures
