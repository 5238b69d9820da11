"""A job with three splits and event time, a keyed count and windows, and two file sinks."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, JobHandle, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowContext, WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import FileSink
from dsv2.state import StateDeclaration, StateDeclarations, aggregate_of
from runtime_spark import SparkRuntime, StateLayout
from storms.common.outputs import Output, read_files
from storms.common.processes import Gate
from tests.spans import Item, Spans

__all__ = ("GATES", "expected", "run", "start", "written")

ENDS = {"span-0": 1_000, "span-1": 1_100, "span-2": 1_200}
LIMIT = 500
KEYS = 40
WINDOW = 200  # ms
GATES = ("count",)
COUNT = StateDeclarations.value_state("count", int, default=0)


class Counted(NamedTuple):
    key: int
    nth: int


class Window(NamedTuple):
    key: int
    start: int
    records: int


def key_of(item: Item) -> int:
    return item.number % KEYS


def number_of(item: Item) -> int:
    return item.number


def count_one(item: Item, count: int) -> int:
    return count + 1


def as_window(records: int, window: WindowContext, ctx: PartitionedContext[Window]) -> Window:
    key = ctx.state_manager.current_key
    assert isinstance(key, int)
    return Window(key, window.start_time, records)


class Count(OneInputStreamProcessFunction[Item, Counted]):
    """Numbers the records of each key."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: Item, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        self._gate.pass_through()
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect(Counted(key_of(record), count.value()))


def start(spark: SparkSession, folder: str, layout: str = "blob") -> JobHandle:
    """Start or resume the job, with its checkpoint and output in ``folder``."""
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=StateLayout(layout)))
    env.set_parallelism(2)
    strategy = EventTimeExtension.new_watermark_generator_builder(number_of).build_as_watermark_strategy()
    source = Spans(ENDS, limit=LIMIT, run=50)
    keyed = env.from_source(source, watermarks=strategy).with_uid("spans").with_parallelism(3).key_by(key_of)
    keyed.process(Count(Gate(folder, "count"))).with_uid("count").to_sink(
        FileSink(f"{folder}/counted", schema=Counted)
    ).with_uid("counted")
    tumbling = WindowStrategy.tumbling(timedelta(milliseconds=WINDOW))
    keyed.window(tumbling).aggregate(aggregate_of(int, count_one, int), as_window).with_uid("windows").to_sink(
        FileSink(f"{folder}/windows", schema=Window)
    ).with_uid("windows-sink")
    return env.execute_async("splits counted", checkpoint_location=f"{folder}/checkpoint")


def run(spark: SparkSession, folder: str, layout: str = "blob") -> None:
    """Run or resume the job to its end."""
    start(spark, folder, layout).await_termination()


def expected(layout: str = "blob") -> Output:
    """The expected content of the sinks."""
    numbers = [number for end in ENDS.values() for number in range(end)]
    sizes = Counter(number % KEYS for number in numbers)
    windows = Counter((number % KEYS, number - number % WINDOW) for number in numbers)
    return {
        "counted": Counter((key, nth) for key, size in sizes.items() for nth in range(1, size + 1)),
        "windows": Counter((key, start, count) for (key, start), count in windows.items()),
    }


def written(folder: Path, first_batch: int = 0) -> Output:
    """Read the content of the sinks."""
    return {"counted": read_files(folder / "counted"), "windows": read_files(folder / "windows")}
