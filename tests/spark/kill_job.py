"""A job that tests kill: two levels, two file sinks and three on the driver, many micro-batches.

``python -m tests.spark.kill_job FOLDER RECORDS [STATE_LAYOUT]``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink, FileSink, ForeachBatchSink, PrintSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations
from runtime_spark import SparkRuntime, StateLayout
from tests.spark.processes import Gate

RECORDS_PER_BATCH = 1_000
KEYS = 7
COUNT = StateDeclarations.value_state("count", int, default=0)


class Counted(NamedTuple):
    key: int
    nth: int


class Total(NamedTuple):
    records: int


class CountPerKey(OneInputStreamProcessFunction[int, Counted]):
    """Emits the number of the record within its key: 1, 2, 3, … if none is lost or repeated."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        self._gate.pass_through()
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect(Counted(record % KEYS, count.value()))


class CountAll(OneInputStreamProcessFunction[Counted, Total]):
    """The same over all records, in a field."""

    def __init__(self, gate: Gate) -> None:
        self.total = 0
        self._gate = gate

    def process_record(self, record: Counted, output: Collector[Total], ctx: PartitionedContext[Total]) -> None:
        self._gate.pass_through()
        self.total += 1
        output.collect(Total(self.total))


class Calls:
    """Writes the records of each micro-batch to a file of its own, and waits at the gate of the micro-batch."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, records: list[Counted], batch_id: int) -> None:
        file = Path(self._folder, "calls", f"{batch_id}-{os.getpid()}.json")
        file.parent.mkdir(exist_ok=True)
        partial = file.with_suffix(".partial")  # until the process has lived to its end
        partial.write_text(json.dumps(sorted(records)))
        partial.rename(file)
        gate_of_batch(self._folder, batch_id).pass_through()


def gate_of_batch(folder: str | Path, batch_id: int) -> Gate:
    """The gate between the output of a micro-batch to files and its commit."""
    return Gate(folder, f"batch-{batch_id}")


def number_of(total: Total) -> str:
    """Text for the log."""
    return str(total.records)


def number(index: int) -> int:
    """The record at ``index``."""
    return index * 7919


def new_session(folder: str) -> SparkSession:
    """A session for a job in ``folder``. It retries a task up to four times, as clusters do."""
    spark: SparkSession = (
        SparkSession.builder.master("local[2, 4]")
        .appName("kill")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", f"{folder}/local")
        .config("spark.network.timeout", "1h")  # a busy machine does not lose its only executor
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(spark: SparkSession, folder: str, records: int, state_layout: StateLayout = StateLayout.BLOB) -> None:
    """Run, or continue, the job whose checkpoint and output are in ``folder``."""
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=state_layout))
    env.set_parallelism(2)
    source = DataGeneratorSource(number, count=records, records_per_batch=RECORDS_PER_BATCH)
    keyed = env.from_source(source).key_by(lambda record: record % KEYS)
    counted = keyed.process(CountPerKey(Gate(folder, "per-key"))).with_uid("per-key")
    counted.to_sink(FileSink(f"{folder}/counted", schema=Counted))
    counted.to_sink(ForeachBatchSink(Calls(folder)))
    total = counted.global_().process(CountAll(Gate(folder, "all"))).with_uid("all")
    total.to_sink(FileSink(f"{folder}/total", format="json", schema=Total))
    total.to_sink(PrintSink("total", format=number_of))
    total.to_sink(collected := CollectSink[Total]())
    env.execute("kill", checkpoint_location=f"{folder}/checkpoint")
    Path(folder, "collected.json").write_text(json.dumps([one.records for one in collected.results]))


def main(folder: str, records: str, state_layout: str = StateLayout.BLOB.value) -> None:
    """Run the job with its own session."""
    spark = new_session(folder)
    run(spark, folder, int(records), StateLayout(state_layout))
    spark.stop()


if __name__ == "__main__":
    # The importable module, not this copy of it: tests continue the job.
    from tests.spark import kill_job

    kill_job.main(*sys.argv[1:])
