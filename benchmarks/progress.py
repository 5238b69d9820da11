"""The cost of collecting progress: jobs of the local runtime with and without it, and the size of the reports.

*Without* replaces what measures times, reports, combines reports and keeps the history by functions that do nothing.
Both run in turn in this process, without Spark, and the CPU times of each round are compared. There are two jobs with
a million records in micro-batches of 50,000: a pass-through function, and a sum per key with 1,000 keys.

The size is that of the rows that bring the reports of one micro-batch to the driver, for an operator with 256 subtasks.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias
from unittest.mock import patch

from benchmarks.common.machine import machine
from benchmarks.common.report import Arguments, Report
from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.checkpoint.task_report import TaskReport
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime, tasks
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.operator.timed_calls import TimedCalls
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations

__all__ = ("main", "report_of")

NAME = "progress"
MOST = 1.01
"""The maximum of the median ratio of the CPU time with progress to that without."""
MOST_BYTES = 300
"""The maximum size of the report of one subtask without metrics, in bytes."""
SHORT = {"records": 10_000, "rounds": 1}

Build: TypeAlias = Callable[[ExecutionEnvironment, int], None]

_KEYS = 1_000
_BATCH = 50_000
_SUBTASKS = 256
TOTAL = StateDeclarations.value_state("total", int, default=0)


class Sum(OneInputStreamProcessFunction[int, int]):
    """Adds up numbers per key."""

    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        total = ctx.state_manager.get_state(TOTAL)
        value = total.value() + record
        total.update(value)
        output.collect(value)


def pass_on(record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
    """Emit a record as it is."""
    output.collect(record)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records of a job (1,000,000)")
    parser.add_argument("--rounds", type=int, default=120, help="runs of each job, with and without (120)")
    options = parser.parse(arguments, SHORT)
    conditions = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": f"./run bench {NAME}",
        **machine(),
    }
    report = Report(NAME, "The cost of collecting progress", conditions)
    rows = []
    for job, build in {"pass-through": _pass_through, "sum per key": _sum_per_key}.items():
        pairs = [_round(build, options.records, with_first=turn % 2 == 0) for turn in range(options.rounds + 1)][1:]
        with_it, without = (round(statistics.median(values)) for values in zip(*pairs, strict=True))
        ratios = sorted(first / second for first, second in pairs)
        ratio, least, most = statistics.median(ratios), ratios[0], ratios[-1]
        rows.append((job, with_it, without, ratio, least, most, options.rounds))
        report.at_most(f"{job}: CPU time with progress, beside without", ratio, MOST)
    header = ("job", "with, ns", "without, ns", "median ratio", "least", "greatest", "rounds")
    report.table("CPU time per record", header, rows)
    size = len(TaskReport([report_of(subtask) for subtask in range(_SUBTASKS)]).encoded())
    report.table(
        "Reports of a micro-batch", ("subtasks", "bytes", "bytes per subtask"), [(_SUBTASKS, size, size / _SUBTASKS)]
    )
    report.at_most("bytes of the report of a subtask", size / _SUBTASKS, MOST_BYTES)
    report.publish(options.results)
    return 0


def _round(build: Build, records: int, *, with_first: bool) -> tuple[float, float]:
    """Run a job with and without progress. Returns the CPU time per record of each in ns."""
    if with_first:
        with_it = _cpu_ns(build, records)
    with _without():
        without = _cpu_ns(build, records)
    return (with_it if with_first else _cpu_ns(build, records)), without


def _cpu_ns(build: Build, records: int) -> float:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, batches=[_BATCH]))
    build(env, records)
    began = time.process_time_ns()
    env.execute()
    return (time.process_time_ns() - began) / records


def _pass_through(env: ExecutionEnvironment, records: int) -> None:
    env.from_source(DataGeneratorSource(int, count=records)).process(pass_on).to_sink(_sink())


def _sum_per_key(env: ExecutionEnvironment, records: int) -> None:
    numbers = env.from_source(DataGeneratorSource(int, count=records))
    numbers.key_by(lambda number: number % _KEYS).process(Sum()).to_sink(_sink())


def _sink() -> ForeachBatchSink[Any]:
    return ForeachBatchSink(lambda records, batch_id: None)


@contextmanager
def _without() -> Iterator[None]:
    """Collect no progress."""

    def on_records(task: Any, input_index: int, batch: Any) -> None:
        task._records_in += len(batch)
        task._processors[input_index].process(batch)

    with ExitStack() as stack:
        for owner, name, instead in (
            (OperatorTask, "on_records", on_records),
            (TimedCalls, "run", lambda calls, call, *args: call(*args)),
            (JobReports, "add", lambda reports, batch_id, entries, now_ms: None),
            (JobReports, "complete", lambda reports, batch, began, duration, phases: None),
            (tasks.LocalTasks, "take_report", lambda of_tasks: TaskReport()),
            (tasks, "elapsed_ns", lambda: 0),
        ):
            stack.enter_context(patch.object(owner, name, instead))
        yield


def report_of(subtask: int) -> SubtaskReport:
    """The report of a subtask in the middle of a long job."""
    return SubtaskReport(
        "a descriptive uid",
        subtask,
        records_in=10_000_000_000 + subtask,
        outputs=[10_000_000_000 + subtask],
        watermarks={"BUILTIN_API_EVENT_TIME": 1_700_000_000_000},
        keys=100_000,
        event_time=1_700_000_000_000,
        user_ns=123_456_789,
        span=(1_700_000_000_000, 1_700_000_000_500),
        state_bytes=1_000_000,
    )


if __name__ == "__main__":
    sys.exit(main())
