"""The progress of a job, from what its subtasks report after each micro-batch."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import add

from msgspec.structs import replace

from dsv2.graph import OperatorKind, Plan
from dsv2.jobs.progress import BatchProgress, InputProgress, JobProgress, SplitProgress
from dsv2.jobs.summary.rates import Rates
from dsv2.runtime.report.channels import Channels
from dsv2.runtime.report.progress import Place, job_progress, sums, total_counts
from dsv2.runtime.report.subtask_report import SubtaskReport

_BATCHES = 100
"""The number of micro-batches in the history of the progress."""


@dataclass(frozen=True)
class ReportedBatch:
    """A micro-batch on which all subtasks have reported.

    Attributes:
        batch_id: Its id.
        reports: The latest report of each subtask.
        inputs: The inputs of each subtask.
        increases: The numbers of records that each operator has received and emitted in it, by uid.
        records_in: Number of records read from sources.
        records_out: Number of records for sinks.
    """

    batch_id: int
    reports: Sequence[SubtaskReport]
    inputs: Mapping[Place, tuple[InputProgress, ...]]
    increases: Mapping[str, tuple[int, int]]
    records_in: int
    records_out: int


class JobReports:
    """The latest progress report of every operator and subtask, and the last micro-batches.

    Args:
        plan: The plan.
        ended_sources: The subtasks of sources that ended in earlier runs, and report nothing in this one.
        before: The progress of the job before this run. None (default): it is unknown, or there is none.
        is_new: Whether the job begins with this run.
        in_portions: Whether sources, and the operators chained to them, report only the records of the micro-batch, as
            on Spark, where they have no state to count in. If not, they report the records of this run.
        restarts: How often the job was restarted before this run.
    """

    def __init__(
        self,
        plan: Plan,
        ended_sources: Collection[Place] = (),
        before: JobProgress | None = None,
        *,
        is_new: bool = True,
        in_portions: bool,
        restarts: int = 0,
    ) -> None:
        self._plan = plan
        self._ended_sources = ended_sources
        self._in_portions = in_portions
        self._restarts = restarts
        self._awaited = [
            (operator.uid, subtask)
            for operator in [*(one for chain in plan.chains.values() for one in chain), *plan.read_by_sinks]
            for subtask in range(operator.parallelism)
        ]
        sources = [operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE]
        self._stateless = {operator.uid: operator.parallelism for operator in [*sources, *plan.chained_to_sources]}
        self._sources = [operator.uid for operator in sources]
        self._sinks = [operator.uid for operator in plan.operators if operator.kind is OperatorKind.SINK]
        self._lock = threading.Lock()
        self._latest: dict[Place, SubtaskReport] = {}
        self._earlier = {} if before is None else self._counts_of_earlier_runs(before)
        self._sums: dict[Place, SubtaskReport] = dict(self._earlier)
        self._inputs: dict[Place, tuple[InputProgress, ...]] = {}
        self._totals: dict[str, tuple[int, int]] | None = None
        if before is not None:
            self._totals = {uid: (one.records_in, one.records_out) for uid, one in before.operators.items()}
        elif is_new:
            self._totals = {}
        self._reported = ReportedBatch(-1, self._current(), {}, {}, 0, 0)
        self._rates = Rates()
        self._channels = Channels(plan, before)
        self._splits: Mapping[str, Sequence[SplitProgress]] = {}
        self._batches = deque[BatchProgress]([] if before is None else before.batches, maxlen=_BATCHES)

    def add(self, batch_id: int, reports: Iterable[SubtaskReport], now_ms: int) -> ReportedBatch:
        """Called after each micro-batch with the reports of its subtasks. ``now_ms``: Its time, in ms."""
        with self._lock:
            for report in reports:
                self._note((report.uid, report.subtask), report, now_ms)
            current, before = self._current(), self._totals
            self._totals = now = total_counts(self._plan, current)
            increases = {} if before is None else {uid: _increase(before.get(uid, (0, 0)), now[uid]) for uid in now}
            self._reported = ReportedBatch(
                batch_id,
                current,
                dict(self._inputs),
                increases,
                sum(increases.get(uid, (0, 0))[1] for uid in self._sources),
                sum(increases.get(uid, (0, 0))[0] for uid in self._sinks),
            )
            return self._reported

    def complete(
        self, batch: ReportedBatch, started_at_ms: int, duration_ms: float, phases: Mapping[str, float]
    ) -> None:
        """Called after each micro-batch when it is complete.

        Args:
            batch: The result of ``add``.
            started_at_ms: When the micro-batch began, in ms since the epoch.
            duration_ms: How long it took.
            phases: The time of its phases in ms.
        """
        done = BatchProgress(batch.batch_id, started_at_ms, duration_ms, phases, batch.records_in, batch.records_out)
        with self._lock:
            self._rates.add(done, batch.increases)
            self._batches.append(done)

    def progress(self, after: ReportedBatch | None = None) -> JobProgress:
        """The progress with the counts as of a micro-batch, and the rates and times as of the last complete one.

        It is not made before somebody asks for it, because that takes as long as processing a few hundred records.

        Args:
            after: The micro-batch. None (default): that of the last call of ``add``.
        """
        with self._lock:
            batch = self._reported if after is None else after
            rates, batches, splits = self._rates.per_second(), tuple(self._batches), self._splits
        of_batch = batch.batch_id, batch.reports, batch.inputs
        return job_progress(self._plan, *of_batch, rates, batches, splits, self._restarts)

    def note_splits(self, splits: Mapping[str, Sequence[SplitProgress]]) -> None:
        """Called when the splits of the sources, by uid, may have changed."""
        with self._lock:
            self._splits = splits

    def held(self) -> dict[str, int]:
        """Return the number of records buffered behind aligned watermarks, for each operator that has any."""
        counts = Counter[str]()
        for (uid, _), report in self._latest.items():
            counts[uid] += report.records_held
        return {str(operator): counts[operator.uid] for operator in self._plan.operators if counts[operator.uid]}

    def all_ended(self) -> bool:
        """Return whether every subtask has received the end of its input, and every source of a sink has ended."""
        ended = {place for place, report in self._latest.items() if report.ended}
        return all(place in ended or place in self._ended_sources for place in self._awaited)

    def _note(self, place: Place, report: SubtaskReport, now_ms: int) -> None:
        self._inputs[place] = self._channels.note(now_ms, report)
        if (last := self._latest.get(place)) is not None:
            report = replace(report, user_ns=last.user_ns + report.user_ns)
        self._latest[place] = report
        if place[0] in self._stateless:
            before = (self._sums if self._in_portions else self._earlier).get(place)
            self._sums[place] = report if before is None else _sum(before, report)

    def _current(self) -> list[SubtaskReport]:
        return list((self._latest | self._sums).values())

    def _counts_of_earlier_runs(self, before: JobProgress) -> dict[Place, SubtaskReport]:
        """The counts of operators that have no state to count in."""
        counts: dict[Place, SubtaskReport] = {}
        for uid, parallelism in self._stateless.items():
            if (operator := before.operators.get(uid)) is None:
                continue
            for subtask in operator.subtasks:
                place = uid, subtask.subtask % parallelism
                report = SubtaskReport(*place, subtask.records_in, list(subtask.outputs))
                counts[place] = _sum(counts[place], report) if place in counts else report
            if operator.counters:  # they are not stored for each subtask
                place = uid, 0
                counts[place] = replace(counts.get(place, SubtaskReport(*place)), counters=dict(operator.counters))
        return counts


def _sum(before: SubtaskReport, report: SubtaskReport) -> SubtaskReport:
    """Add the counts ``before`` to a report."""
    outputs = before.outputs if len(before.outputs) == len(report.outputs) else repeat(0)  # the program has changed
    return replace(
        report,
        records_in=before.records_in + report.records_in,
        outputs=list(map(add, outputs, report.outputs)),
        counters=sums([before.counters, report.counters]),
    )


def _increase(before: tuple[int, int], now: tuple[int, int]) -> tuple[int, int]:
    return max(0, now[0] - before[0]), max(0, now[1] - before[1])
