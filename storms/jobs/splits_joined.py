"""A hybrid source with splits, joined with a table whose snapshot ends later (LEFT temporal join)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dsv2 import Collector, PartitionedContext, RuntimeContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import FileSink
from dsv2.sources import DataGeneratorSource, HybridSource
from storms.common.outputs import Output, read_files
from storms.common.processes import Gate
from storms.common.runtimes import environment
from tests.spans import Item, Spans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("GATES", "SINKS", "expected", "run", "written")

HISTORY = {"span-0": 1_500, "span-1": 2_000, "span-2": 1_500}
LIVE = {"span-3": 2_000, "span-4": 3_000}
LIMIT = 400
ROWS = 60
"""The number of rows of the table. It ends some micro-batches after the start of the job; until then, records wait."""
KEYS = 80
GATES = ("join", "count")
SINKS = ("joined", "counted")


class Row(NamedTuple):
    key: int
    value: str


class Joined(NamedTuple):
    span: str
    number: int
    value: str


class Counted(NamedTuple):
    span: str
    nth: int


def row(index: int) -> Row:
    return Row(index, f"row {index}")


def key_of_item(item: Item) -> int:
    return item.number % KEYS


def key_of_row(table_row: Row) -> int:
    return table_row.key


def number_of(item: Item) -> int:
    return item.number


def span_of(joined: Joined) -> str:
    return joined.span


class Count(OneInputStreamProcessFunction[Joined, Counted]):
    """Numbers the records of each span, in a field."""

    def __init__(self, gate: Gate) -> None:
        self.counts: dict[str, int] = {}
        self._gate = gate

    def process_record(self, record: Joined, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        self._gate.pass_through()
        self.counts[record.span] = self.counts.get(record.span, 0) + 1
        output.collect(Counted(record.span, self.counts[record.span]))


class Join:
    """Joins a record with the row of its key."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __call__(self, item: Item, table_row: Row | None, output: Collector[Joined], ctx: RuntimeContext) -> None:
        self._gate.pass_through()
        output.collect(Joined(item.span, item.number, table_row.value if table_row is not None else ""))


def run(spark: SparkSession | None, folder: str, layout: str = "blob") -> None:
    """Run or resume the job, with its checkpoint and output in ``folder``."""
    env = environment(spark, layout)
    env.set_parallelism(2)
    source = HybridSource([Spans(ends, limit=LIMIT, run=50) for ends in (HISTORY, LIVE)])
    strategy = EventTimeExtension.new_watermark_generator_builder(number_of).build_as_watermark_strategy()
    items = env.from_source(source, watermarks=strategy).with_uid("spans").with_parallelism(3)
    rows = env.from_source(DataGeneratorSource(row, count=ROWS, records_per_batch=15)).with_uid("rows")
    current = join(Join(Gate(folder, "join")), JoinMode.temporal(), JoinType.LEFT)
    joined = items.key_by(key_of_item).connect_and_process(rows.key_by(key_of_row), current).with_uid("join")
    joined.to_sink(FileSink(f"{folder}/joined", schema=Joined)).with_uid("joined")
    counted = joined.key_by(span_of).process(Count(Gate(folder, "count"))).with_uid("count")
    counted.to_sink(FileSink(f"{folder}/counted", format="json", schema=Counted)).with_uid("counted")
    env.execute("splits joined", checkpoint_location=f"{folder}/checkpoint")


def expected(layout: str = "blob") -> Output:
    """The expected content of the sinks."""
    spans = {**HISTORY, **LIVE}
    return {
        "joined": Counter(
            (span, number, f"row {number % KEYS}" if number % KEYS < ROWS else "")
            for span, end in spans.items()
            for number in range(end)
        ),
        "counted": Counter((span, nth) for span, end in spans.items() for nth in range(1, end + 1)),
    }


def written(folder: Path, first_batch: int) -> Output:
    """Read the content of the sinks."""
    return {"joined": read_files(folder / "joined"), "counted": read_files(folder / "counted", "json")}
