"""The latency of records, from their due time to the sink, by rate.

The job is the running count (``benchmarks/jobs/running_count.py``): a source, a keyed function with state, and a sink
on the driver, in ``local[2]``. Each record has a due time. A micro-batch contains the records that are due when it is
planned, so a record waits for the previous micro-batch and then for its own. The first seconds, in which the job starts
and catches up, are not measured. A rate is sustained if the latency at the end is not higher than at the beginning.

Java's compilers need minutes, so each rate is measured twice: after 20 s and after 120 s. Only the first rate begins in
a new JVM. A second table shows the parts of the micro-batches, as Spark times them.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

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
from dsv2.model import RecordBatch
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import Portion
from dsv2.state import StateDeclaration, StateDeclarations
from runtime_spark.job.query import StreamingJob

__all__ = ("main",)

NAME = "latency"
SHORT = {"rates": [200], "seconds": 2.0, "skip": [1.0]}
PERCENTILES = (50, 90, 95, 99)

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
    header = (
        "records/s",
        "after s",
        "records",
        *(f"{percent} % ms" for percent in PERCENTILES),
        "longest ms",
        "last second / first",
    )
    report.table("From due to the sink", header, [_numbers(rate, one) for rate, one in measured])
    names = dict.fromkeys(name for _, one in measured for name in one.parts)
    table: list[tuple[str | float, ...]] = [
        (name, *(round(one.parts.get(name, 0), 1) for _, one in measured)) for name in names
    ]
    whole = [round(sum(one.parts.values()), 1) for _, one in measured]
    title = "Parts of a micro-batch, median in ms, by records/s"
    settings = [f"{rate}, after {one.skipped:g} s" for rate, one in measured]
    report.table(title, ("part", *settings), [*table, ("sum of the medians", *whole)])
    report.publish(options.results)
    return 0


@dataclass(frozen=True)
class Measured:
    """A measurement that began ``skipped`` seconds after the first record.

    ``late``: The due time and the latency of the records, in seconds. ``parts``: The parts of the micro-batches, in ms.
    """

    skipped: float
    late: list[tuple[float, float]]
    parts: dict[str, float]


def measure(spark: SparkSession, rate: int, options: argparse.Namespace) -> list[Measured]:
    """Run the job once, and measure it as often as ``options`` say."""
    late: list[tuple[float, float]] = []
    begin = time.time() + 1
    spans = [(begin + skipped, begin + skipped + options.seconds) for skipped in options.skip]

    def write(counts: list[tuple[int, float]], batch_id: int) -> None:
        now = time.time()
        late.extend((moment, now - moment) for _, moment in counts if any(a <= moment < b for a, b in spans))

    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(_SPLITS)
    count = int(rate * (max(options.skip) + options.seconds))
    records = env.from_source(Paced(rate, begin, count), "records").with_uid("records")
    counts = records.key_by(lambda record: record.user).process(Count()).with_uid("counts")
    counts.to_sink(ForeachBatchSink(write)).with_uid("late")
    with checkpoint() as folder:
        job = env.execute_async("latency", checkpoint_location=folder)
        job.result()
        assert isinstance(job, StreamingJob)
        progress = [one for one in job.query.recentProgress if "addBatch" in one.durationMs]
        stages = stages_of(spark)
    assert len(late) == sum(any(a <= begin + index / rate < b for a, b in spans) for index in range(count))
    last_begin = [*(end for _, end in spans[:-1]), math.inf]  # the last records may wait for their micro-batch
    return [
        Measured(
            skipped,
            sorted(one for one in late if first <= one[0] < end),
            median_parts([parts_of(one, stages) for one in progress if first <= _began(one) < until]),
        )
        for skipped, (first, end), until in zip(options.skip, spans, last_begin, strict=True)
    ]


def _began(progress: StreamingQueryProgress) -> float:
    return datetime.fromisoformat(progress.timestamp).timestamp()


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
        *(round(cuts[percent - 1] * 1000) for percent in PERCENTILES),
        round(delays[-1] * 1000),
        growth,
    )


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import latency

    sys.exit(latency.main())
