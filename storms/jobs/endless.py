"""An unbounded job that counts numbers by key and writes files."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsv2 import Collector, PartitionedContext, Trigger
from dsv2.connectors.files import read_files as read_sink
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import FileSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations
from storms.common.outputs import read_files
from storms.common.runtimes import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("delay", "difference", "difference_of_published", "run")

KEYS = 500
INTERVAL = timedelta(milliseconds=200)
_DELAY = "delay.json"
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


class Watch:
    """A sink that measures the delay of records, and writes it to the file ``delay.json`` once per second.

    The time at which a record was due is not known, but its distance from the others is. So the least delay is zero.
    """

    def __init__(self, folder: str, records_per_second: float) -> None:
        self._file = Path(folder, _DELAY)
        self._rate = records_per_second
        self._least = inf
        self._delays: list[float] = []
        self._next = 0.0

    def __call__(self, records: list[Counted], batch_id: int) -> None:
        now = time.monotonic()
        if records:
            numbers = [record.number for record in records]
            self._least = min(self._least, now - max(numbers) / self._rate)
            self._delays.append(now - min(numbers) / self._rate - self._least)
        if now >= self._next and self._delays:
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps({"batches": batch_id + 1, "ms": statistics.median(self._delays) * 1000}))
            new.replace(self._file)
            self._delays.clear()
            self._next = now + 1


def delay(folder: Path) -> tuple[int, float]:
    """Return the number of micro-batches, and the median over the last second of the delay of their first record."""
    file = folder / _DELAY
    if not file.exists():
        return 0, 0.0
    found = json.loads(file.read_text())
    return int(found["batches"]), float(found["ms"])


def run(spark: SparkSession | None, folder: str, layout: str = "blob", records_per_second: str = "500") -> None:
    """Run until the process is killed."""
    env = environment(spark, layout)
    env.set_parallelism(2)
    numbers = env.from_source(DataGeneratorSource(same, records_per_second=float(records_per_second)))
    counted = numbers.with_uid("numbers").key_by(key_of).process(Count()).with_uid("count")
    sink, trigger = FileSink(f"{folder}/counted", schema=Counted), Trigger.processing_time(INTERVAL)
    if spark is None:  # micro-batches follow each other, so each has few records
        seconds = timedelta(seconds=5)
        sink = FileSink(f"{folder}/counted", schema=Counted, roll_interval=seconds, retention=seconds)
    counted.to_sink(sink).with_uid("files")
    counted.to_sink(ForeachBatchSink(Watch(folder, float(records_per_second)))).with_uid("driver")
    env.execute("endless", checkpoint_location=f"{folder}/checkpoint", trigger=trigger if spark else None)


def difference(folder: Path, committed: int) -> str:
    """Describe the errors in the files of the first ``committed`` micro-batches; empty if there are none."""
    found = read_files(folder / "counted") - read_files(folder / "counted", first_batch=committed)
    expected = Counter((number, number // KEYS + 1) for number in range(found.total()))
    missing, extra = (expected - found).total(), (found - expected).total()
    return f"{missing:,} missing and {extra:,} extra of {expected.total():,}" if missing or extra else ""


def difference_of_published(folder: Path) -> str:
    """Describe the errors in what readers of the sink see; empty if there are none."""
    found = read_sink(folder / "counted").to_arrow().sort_by("number")
    numbers, nth = found["number"].to_numpy(), found["nth"].to_numpy()
    expected = np.arange(len(numbers))
    wrong = int(np.count_nonzero(numbers != expected)) + int(np.count_nonzero(nth != expected // KEYS + 1))
    return f"{wrong:,} wrong values of {len(numbers):,} records" if wrong else ""
