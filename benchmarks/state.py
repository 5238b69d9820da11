"""Many keys held, few touched: what a micro-batch costs as the state grows.

One keyed function, two subtasks in ``local[2]``. A first query meets all keys, in one micro-batch; a second one goes on
from its checkpoint and touches 1,000 of them in each micro-batch, drawn evenly and always the same. Each key has a
value state, the number of its visits.

The second table is about the same subtasks without Spark: the size of the state, and the processor time to restore it,
process the 1,000 records and take the snapshot.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.common import (
    Arguments,
    Report,
    Sample,
    batch_seconds,
    checkpoint,
    conditions,
    spark_session,
)
from benchmarks.common.outside import OutsideSpark
from dsv2 import Collector, ExecutionEnvironment, PartitionedContext, Trigger
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import BaseSource, DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations
from runtime_spark.query import StreamingJob

__all__ = ("main",)

NAME = "state"
TOUCHED = 1000
PARALLELISM = 2
LIMIT = 5.0
"""How many times as long a micro-batch may take with the most keys as with the fewest."""

_WARM_UP = 3  # micro-batches of the second query
_REPEATS = 5  # without Spark

SHORT = {"keys": [1_000, 10_000], "batches": 2}


class Visit(NamedTuple):
    """Somebody came by."""

    user: str


class Visits:
    """Visit number ``index``: the first ``users`` are those of different users, the others those of any of them."""

    def __init__(self, users: int) -> None:
        self.users = users

    def __call__(self, index: int) -> Visit:
        # A multiplicative hash: scattered over all users, and the same at every run.
        user = index if index < self.users else (index * 2_654_435_769 & 0xFFFF_FFFF) * self.users >> 32
        return Visit(f"user-{user:08d}")


VISITS = StateDeclarations.value_state("visits", int, default=0)


class Count(OneInputStreamProcessFunction[Visit, Visit]):
    """Counts the visits of each user, and emits nothing."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [VISITS]

    def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None:
        visits = ctx.state_manager.get_state(VISITS)
        visits.update(visits.value() + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments``; returns the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="numbers of keys held"
    )
    parser.add_argument("--batches", type=int, default=15, help="that are measured for each number of keys (15)")
    options = parser.parse(arguments, SHORT)
    with spark_session("state benchmark") as spark:
        report = Report(NAME, "Many keys held, few touched", conditions(spark, NAME, arguments))
        on_spark(spark, min(options.keys), options.batches)  # warms everything up
        samples = {keys: on_spark(spark, keys, options.batches) for keys in options.keys}
    fewest, most = min(samples), max(samples)
    base = samples[fewest].median
    report.table(
        f"On Spark: micro-batches of {TOUCHED:,} records",
        ("keys held", "median ms", "spread", f"times {fewest:,} keys"),
        [(keys, round(s.median * 1000), s.spread, s.median / base) for keys, s in samples.items()],
    )
    header = ("keys held", "bytes of state per subtask", "restore ms", "process ms", "snapshot ms")
    report.table(
        "Without Spark, both subtasks together", header, [(keys, *outside_spark(keys)) for keys in options.keys]
    )
    report.at_most(f"{most:,} keys in times of {fewest:,}", samples[most].median / base, LIMIT)
    report.publish(options.results)
    return 0


def pipeline(env: ExecutionEnvironment, source: BaseSource[Visit]) -> None:
    """Visits by user."""
    env.set_parallelism(PARALLELISM)
    visits = env.from_source(source, "visits").with_uid("visits")
    kept = visits.key_by(lambda visit: visit.user).process(Count()).with_uid("keys")
    kept.to_sink(ForeachBatchSink(lambda records, batch_id: None)).with_uid("nowhere")


def on_spark(spark: SparkSession, keys: int, batches: int) -> Sample:
    """Micro-batches that touch ``TOUCHED`` of ``keys`` keys."""
    with checkpoint() as folder:
        _finished(spark, Visits(keys), keys, None, folder)
        # One more: the last micro-batch also ends the input.
        query = _finished(spark, Visits(keys), TOUCHED, keys + TOUCHED * (_WARM_UP + batches + 1), folder)
        return Sample.of(batch_seconds(query, 1 + _WARM_UP, batches))


def outside_spark(keys: int) -> tuple[str, float, float, float]:
    """Bytes of state, and milliseconds to restore, process and snapshot ``TOUCHED`` records on ``keys`` keys."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    pipeline(env, DataGeneratorSource(Visits(keys)))
    run = OutsideSpark(env.build_plan())
    run.run_batch(keys)
    run.watches.clear()
    for _ in range(_REPEATS):
        run.run_batch(TOUCHED)
    seconds = run.watches["level 1"].seconds
    restore, process, snapshot = (
        seconds[part] / _REPEATS * 1000 for part in ("restore", "process and route", "snapshot")
    )
    sizes = " + ".join(f"{len(state.blob or b''):,}" for state in run.states.values())
    return sizes, restore, process, snapshot


def _finished(
    spark: SparkSession, visits: Visits, records_per_batch: int, count: int | None, folder: str
) -> StreamingQuery:
    """A query that has run: up to ``count`` records, or one micro-batch."""
    env = ExecutionEnvironment.get_instance(spark=spark)
    pipeline(env, DataGeneratorSource(visits, count=count, records_per_batch=records_per_batch))
    job = env.execute_async("visits", checkpoint_location=folder, trigger=Trigger.available_now())
    assert isinstance(job, StreamingJob)
    job.result()
    return job.query


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import state

    sys.exit(state.main())
