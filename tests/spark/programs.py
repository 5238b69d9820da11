"""The program that tests stop, kill and restart, and a function to read its output.

::

    readings (2) ─> number (2, chained: double) ─shuffle─> tag (3) ─by sensor─> total (2) ─> FileSink

Its output depends on every part of a checkpoint: function fields at every level, state of keys and subtasks, the values
of every channel of a watermark combiner, the position of the round-robin shuffle, the keys of a subtask, and the end of
every channel.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext, RuntimeExecutionMode
from dsv2.connectors.files import WrittenFiles, read_files
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import FileSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import RedistributionStrategy, StateDeclaration, StateDeclarations, ValueState
from dsv2.streams import ConfiguredStream
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder

TOTAL = StateDeclarations.value_state("total", int, default=0)
VALUES = StateDeclarations.list_state_builder("values", int).redistribute_by(RedistributionStrategy.SPLIT).build()
HIGHEST = new_builder("highest").type_long().combine_function_min().combine_wait_for_all_channels(True).build()


class Reading(NamedTuple):
    sensor: str
    value: int
    place: str = ""


class Answer(NamedTuple):
    what: str
    sensor: str
    number: int
    place: str


def environment(
    spark: SparkSession, parallelism: int = 1, mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING
) -> ExecutionEnvironment:
    """An environment of the session."""
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(parallelism)
    env.set_execution_mode(mode)
    return env


def persisted(spark: SparkSession) -> set[int]:
    """The numbers of the RDDs that the session keeps. Other tests may have left some."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def reading(index: int) -> Reading:
    """The same for the same index, in no simple order."""
    return Reading(f"sensor-{index * index % 7}", index * 37 % 101)


def sensor_of(record: Reading) -> str:
    return record.sensor


def double(record: Reading) -> Reading:
    return record._replace(value=record.value * 2)


class Number(OneInputStreamProcessFunction[Reading, Reading]):
    """Emits the consecutive number of the reading in its subtask, and sends the maximum value so far as a watermark."""

    def __init__(self) -> None:
        self.seen = 0
        self.highest = -1

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [HIGHEST]

    def process_record(self, record: Reading, output: Collector[Reading], ctx: PartitionedContext[Reading]) -> None:
        self.seen += 1
        output.collect(record._replace(place=f"{ctx.task_info.index_of_this_subtask}:{self.seen}"))
        if record.value > self.highest:
            self.highest = record.value
            ctx.non_partitioned_context.watermark_manager.emit_watermark(HIGHEST.new_watermark(self.highest))


class Tag(OneInputStreamProcessFunction[Reading, Reading]):
    """Adds the subtask that the shuffle chose, and the consecutive number of the record there."""

    def __init__(self) -> None:
        self.seen = 0

    def process_record(self, record: Reading, output: Collector[Reading], ctx: PartitionedContext[Reading]) -> None:
        self.seen += 1
        output.collect(record._replace(place=f"{record.place}>{ctx.task_info.index_of_this_subtask}:{self.seen}"))


class Total(OneInputStreamProcessFunction[Reading, Answer]):
    """Adds up the values of each sensor. Emits each sum, each watermark, and at the end every sensor's total."""

    def __init__(self) -> None:
        self.total: ValueState[int, int] | None = None

    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL, VALUES]

    def process_record(self, record: Reading, output: Collector[Answer], ctx: PartitionedContext[Answer]) -> None:
        if self.total is None:
            self.total = ctx.state_manager.get_state(TOTAL)
        self.total.update(self.total.value() + record.value)
        ctx.state_manager.get_state(VALUES).add(record.value)
        output.collect(Answer("sum", str(ctx.state_manager.current_key), self.total.value(), record.place))

    def on_watermark(
        self, watermark: Watermark, output: Collector[Answer], ctx: NonPartitionedContext[Answer]
    ) -> WatermarkHandlingResult:
        subtask, sums = ctx.task_info.index_of_this_subtask, [0]
        ctx.apply_to_all_partitions(
            lambda output, partition: sums.append(sum(partition.state_manager.get_state(VALUES).get()))
        )
        output.collect(Answer("watermark", "", watermark.value, f"{subtask}:{sums[-1]}"))
        return WatermarkHandlingResult.PEEK

    def end_input(self, ctx: NonPartitionedContext[Answer]) -> None:
        def emit(output: Collector[Answer], partition: PartitionedContext[Answer]) -> None:
            sensor = str(partition.state_manager.current_key)
            output.collect(Answer("total", sensor, partition.state_manager.get_state(TOTAL).value(), ""))

        ctx.apply_to_all_partitions(emit)


def build(
    env: ExecutionEnvironment,
    output: str,
    count: int,
    records_per_batch: int,
    *,
    generator: Callable[[int], Reading] = reading,
    key: Callable[[Reading], str] = sensor_of,
    version: int | None = None,
    tag: type[OneInputStreamProcessFunction[Reading, Reading]] = Tag,
) -> ConfiguredStream[Answer]:
    """The program over ``count`` readings. Returns the stream of its answers, which ``output`` receives.

    ``version``: of ``key``. ``tag``: the function after the shuffle.
    """
    env.set_parallelism(2)
    source = DataGeneratorSource(generator, count=count, records_per_batch=records_per_batch)
    numbered = env.from_source(source, "readings").with_uid("readings").process(Number()).with_uid("number")
    tagged = numbered.map(double).with_uid("double").shuffle().process(tag()).with_uid("tag").with_parallelism(3)
    totals = tagged.key_by(key, version=version).process(Total()).with_uid("total")
    totals.to_sink(FileSink(output, schema=Answer)).with_uid("answers")
    return totals


def read_back(output: str | Path) -> list[tuple[Any, ...]]:
    """The output of a ``FileSink``, with the micro-batch first, in no order of the files."""
    position = read_files(output).position
    batches = [WrittenFiles(str(output), batch - 1, batch).to_arrow().to_pylist() for batch in range(position + 1)]
    return sorted((batch, *row.values()) for batch, rows in enumerate(batches) for row in rows)
