"""An unbounded job that counts numbers by key and writes files."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dsv2 import Collector, PartitionedContext, Trigger
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import FileSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations
from storms.common.outputs import read_files
from storms.common.runtimes import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("difference", "run")

KEYS = 500
INTERVAL = timedelta(milliseconds=200)
COUNT = StateDeclarations.value_state("count", int, default=0)


class Counted(NamedTuple):
    number: int
    nth: int


class Count(OneInputStreamProcessFunction[int, Counted]):
    """Numbers the records of each key."""

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect(Counted(record, count.value()))


def same(index: int) -> int:
    return index


def key_of(number: int) -> int:
    return number % KEYS


def forget(records: list[Counted], batch_id: int) -> None:
    """Discard records. The sink exists to send records to the driver."""


def run(spark: SparkSession | None, folder: str, layout: str = "blob", records_per_second: str = "500") -> None:
    """Run until the process is killed."""
    env = environment(spark, layout)
    env.set_parallelism(2)
    numbers = env.from_source(DataGeneratorSource(same, records_per_second=float(records_per_second)))
    counted = numbers.with_uid("numbers").key_by(key_of).process(Count()).with_uid("count")
    counted.to_sink(FileSink(f"{folder}/counted", schema=Counted)).with_uid("files")
    counted.to_sink(ForeachBatchSink(forget)).with_uid("driver")
    trigger = Trigger.processing_time(INTERVAL)
    env.execute("endless", checkpoint_location=f"{folder}/checkpoint", trigger=trigger)


def difference(folder: Path, committed: int) -> str:
    """Describe the errors in the files of the first ``committed`` micro-batches; empty if there are none."""
    found = read_files(folder / "counted") - read_files(folder / "counted", first_batch=committed)
    expected = Counter((number, number // KEYS + 1) for number in range(found.total()))
    missing, extra = (expected - found).total(), (found - expected).total()
    return f"{missing:,} missing and {extra:,} extra of {expected.total():,}" if missing or extra else ""
