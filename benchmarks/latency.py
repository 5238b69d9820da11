"""The latency of records, from their due time to the sink, by rate.

The job is the running count (``benchmarks/jobs/running_count.py``): a source, a keyed function with state, and a sink
on the driver, in Spark's ``local[2]`` and on the local runtime. Each record has a due time. A micro-batch contains the
records that are due when it is planned, so a record waits for the previous micro-batch and then for its own. The first
seconds, in which the job starts and catches up, are not measured. A rate is sustained if the latency at the end is not
higher than at the beginning.

Java's compilers need minutes, so each rate is measured twice on Spark: after 20 s and after 120 s. Only the first rate
begins in a new JVM. A second table shows the parts of the micro-batches, as Spark times them. The local runtime is
measured once for each rate.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.common.batch_parts import median_parts, parts_of, stages_of
from benchmarks.common.machine import machine
from benchmarks.common.measure import checkpoint, spark_session
from benchmarks.common.parts import DealtOut, Part
from benchmarks.common.report import Arguments, Report
from benchmarks.jobs.running_count import one_more
from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.progress_log import read_progress
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import Portion
from dsv2.state import StateDeclaration, StateDeclarations
from runtime_spark.job.query import StreamingJob

__all__ = ("main",)

NAME = "latency"
SHORT = {"rates": [200], "seconds": 2.0, "skip": [1.0]}
PERCENTILES = (50, 90, 95, 99)

LOCAL: Mapping[str, Mapping[str, Any]] = {
    "local": {},
    "local, not durable": {"durable": False},
    "local, 2 processes": {"processes": 2},
}
"""The settings of the local runtime that are measured."""

_KEYS = 1_000
_SPLITS = 2
_COUNT = StateDeclarations.value_state("count", int, default=0)


@dataclass(frozen=True)
class Due:
    """A record of ``user``, due at ``moment`` (seconds since the epoch)."""

    user: int
    moment: float


class Paced(DealtOut[Due]):
    """A source with ``count`` records, ``rate`` per second from ``begin`` on (seconds since the epoch)."""

    def __init__(self, rate: int, begin: float, count: int) -> None:
        super().__init__(_SPLITS)
        self.rate = rate
        self.begin = begin
        self.count = count

    def advance(self, split: Part, limit: int | None) -> Portion[Part] | None:
        due = min(int((time.time() - self.begin) * self.rate), self.count)
        new = max(0, -(-(due - split.first) // _SPLITS))
        last = due >= self.count
        if not new and not last:
            return None
        return Portion(replace(split, first=split.first + new * _SPLITS), new, last=last)

    def read(self, start: Part, stop: Part) -> Iterator[RecordBatch[Due]]:
        yield RecordBatch([self._record(index) for index in range(start.first, stop.first, _SPLITS)])

    def _record(self, index: int) -> Due:
        return Due((index * 2_654_435_769 & 0xFFFF_FFFF) * _KEYS >> 32, self.begin + index / self.rate)


class Count(OneInputStreamProcessFunction[Due, tuple[int, float]]):
    """Emits the count of the user, and the due time of the record."""

    def uses_states(self) -> Sequence[StateDeclaration]:
        return [_COUNT]

    def process_record(
        self, record: Due, output: Collector[tuple[int, float]], ctx: PartitionedContext[tuple[int, float]]
    ) -> None:
        state = ctx.state_manager.get_state(_COUNT)
        count = one_more(state.value())
        state.update(count)
        output.collect((count, record.moment))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    rates = [1_000, 10_000, 50_000, 100_000, 200_000]
    parser.add_argument("--rates", type=int, nargs="+", default=rates, help="records per second (1,000 to 200,000)")
    parser.add_argument("--seconds", type=float, default=30, help="measured seconds for each rate (30)")
    parser.add_argument("--skip", type=float, nargs="+", default=[20, 120], help="seconds before those (20 120)")
    options = parser.parse(arguments, SHORT)
    conditions = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": f"./run bench {NAME}",
        **machine(),
    }
    report = Report(NAME, "Latency by rate", conditions)
    with spark_session("latency benchmark") as spark:
        measured = [(rate, one) for rate in options.rates for one in measure(spark, rate, options)]
    report.table("From due to the sink", _HEADER, [_numbers(rate, one) for rate, one in measured])
    _add_parts(report, [(f"{rate}, after {one.skipped:g} s", one) for rate, one in measured])
    local = [(name, rate, measure_locally(name, rate, options)) for name in LOCAL for rate in options.rates]
    rows = [(name, *_numbers(rate, one)) for name, rate, one in local]
    report.table("From due to the sink, local runtime", ("runtime", *_HEADER), rows)
    _add_parts(report, [(f"{name}, {rate}", one) for name, rate, one in local])
    report.publish(options.results)
    return 0


def _add_parts(report: Report, measured: Sequence[tuple[str, Measured]]) -> None:
    names = dict.fromkeys(name for _, one in measured for name in one.parts)
    table: list[tuple[str | float, ...]] = [
        (name, *(round(one.parts.get(name, 0), 1) for _, one in measured)) for name in names
    ]
    whole = [round(sum(one.parts.values()), 1) for _, one in measured]
    title, settings = "Parts of a micro-batch, median in ms, by records/s", [setting for setting, _ in measured]
    report.table(title, ("part", *settings), [*table, ("sum of the medians", *whole)])


@dataclass(frozen=True)
class Measured:
    """A measurement that began ``skipped`` seconds after the first record.

    ``late``: The due time and the latency of the records, in seconds. ``parts``: The parts of the micro-batches, in ms.
    """

    skipped: float
    late: list[tuple[float, float]]
    parts: dict[str, float]


def measure(spark: SparkSession, rate: int, options: argparse.Namespace) -> list[Measured]:
    """Run the job once on Spark, and measure it as often as ``options`` say."""
    begin = time.time() + 1
    spans = [(begin + skipped, begin + skipped + options.seconds) for skipped in options.skip]

    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(_SPLITS)
    late = _build(env, rate, begin, spans)
    with checkpoint() as folder:
        job = env.execute_async("latency", checkpoint_location=folder)
        job.result()
        assert isinstance(job, StreamingJob)
        progress = [one for one in job.query.recentProgress if "addBatch" in one.durationMs]
        stages = stages_of(spark)
    pairs = late.pairs()
    _check_complete(pairs, rate, begin, spans)
    last_begin = [*(end for _, end in spans[:-1]), math.inf]  # the last records may wait for their micro-batch
    return [
        Measured(
            skipped,
            [one for one in pairs if first <= one[0] < end],
            median_parts([parts_of(one, stages) for one in progress if first <= _began(one) < until]),
        )
        for skipped, (first, end), until in zip(options.skip, spans, last_begin, strict=True)
    ]


def measure_locally(name: str, rate: int, options: argparse.Namespace) -> Measured:
    """Run the job once on the local runtime with the settings ``name``."""
    begin, skipped = time.time() + 1, min(options.skip)
    first, end = begin + skipped, begin + skipped + options.seconds
    settings = LOCAL[name]
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, **settings))
    env.set_parallelism(settings.get("processes", 1))
    late = _build(env, rate, begin, [(first, end)])
    with checkpoint() as folder:
        env.execute("latency", checkpoint_location=folder)
        batches = {batch.batch_id: batch for progress in read_progress(folder) for batch in progress.batches}
    pairs = late.pairs()
    _check_complete(pairs, rate, begin, [(first, end)])
    measured = [batch for batch in batches.values() if first <= batch.started_at_ms / 1000 < end]
    parts = [{**batch.phases, "rest": batch.duration_ms - sum(batch.phases.values())} for batch in measured]
    return Measured(skipped, pairs, median_parts(parts))


class _Latencies:
    """The due times and the latencies of records in seconds.

    In arrays: Python's garbage collector would traverse objects, and delay the job.
    """

    def __init__(self) -> None:
        self._moments = array("d")
        self._delays = array("d")

    def extend(self, moments: Sequence[float], now: float) -> None:
        """Add records that arrive ``now``."""
        self._moments.extend(moments)
        self._delays.extend([now - moment for moment in moments])

    def pairs(self) -> list[tuple[float, float]]:
        """Return all, by their due times."""
        return sorted(zip(self._moments, self._delays, strict=True))


def _build(env: ExecutionEnvironment, rate: int, begin: float, spans: Sequence[tuple[float, float]]) -> _Latencies:
    """Build the job. Return what will contain the latencies of the records due in ``spans``."""
    late = _Latencies()

    def write(counts: list[tuple[int, float]], batch_id: int) -> None:
        late.extend([moment for _, moment in counts if any(a <= moment < b for a, b in spans)], time.time())

    count = int(rate * (max(end for _, end in spans) - begin))
    records = env.from_source(Paced(rate, begin, count), "records").with_uid("records")
    counts = records.key_by(lambda record: record.user).process(Count()).with_uid("counts")
    counts.to_sink(ForeachBatchSink(write)).with_uid("late")
    return late


def _check_complete(
    late: Sequence[tuple[float, float]], rate: int, begin: float, spans: Sequence[tuple[float, float]]
) -> None:
    count = int(rate * (max(end for _, end in spans) - begin))
    assert len(late) == sum(any(a <= begin + index / rate < b for a, b in spans) for index in range(count))


def _began(progress: StreamingQueryProgress) -> float:
    return datetime.fromisoformat(progress.timestamp).timestamp()


_HEADER = (
    "records/s",
    "after s",
    "records",
    *(f"{percent} % ms" for percent in PERCENTILES),
    "longest ms",
    "last second / first",
)


def _numbers(rate: int, measured: Measured) -> tuple[float | int, ...]:
    late = measured.late
    delays = sorted(delay for _, delay in late)
    cuts = statistics.quantiles(delays, n=100)
    first = [delay for moment, delay in late if moment < late[0][0] + 1]
    last = [delay for moment, delay in late if moment > late[-1][0] - 1]
    growth = statistics.mean(last) / statistics.mean(first)
    return (
        rate,
        measured.skipped,
        len(late),
        *(round(cuts[percent - 1] * 1000, 1) for percent in PERCENTILES),
        round(delays[-1] * 1000, 1),
        growth,
    )


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import latency

    sys.exit(latency.main())
