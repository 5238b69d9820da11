"""Many small operators, each with a different kind of key selector, state or declaration.

The edits in ``storms.common.changes`` refer to the text of this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import FileSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from runtime_spark import SparkRuntime, StateLayout
from storms.common.processes import Gate

from . import helper

__all__ = ("COUNT", "KEYS", "PER_BATCH", "STOPS_AT", "run")

COUNT = 300
PER_BATCH = 100
STOPS_AT = 200
KEYS = 7
TABLE = {"column": 0}


class Record(NamedTuple):
    key: str
    place: str
    value: int

    def own_key(self) -> str:
        return self.key


class Line(NamedTuple):
    operator: str
    key: str
    number: int


class Pair(NamedTuple):
    records: int
    highest: int


@dataclass
class Held:
    name: str
    records: int


COUNTED = StateDeclarations.value_state("count", int, default=0)
DECLARED = StateDeclarations.value_state("declared", int, default=0)
PAIR = StateDeclarations.value_state("pair", Pair)
HELD = StateDeclarations.value_state("held", Held)
MARK = new_builder("mark").type_long().combine_function_max().combine_wait_for_all_channels(False).build()


class Generate:
    """The generator of the source. The first run is suspended at a gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __call__(self, index: int) -> Record:
        if index >= STOPS_AT:
            self._gate.pass_through()
        return Record(key=f"key-{index % KEYS}", place=f"place-{index % 5}", value=index)


def by_key(record: Record) -> str:
    return record.key


class Select:
    """A callable object that serves as key selector."""

    def __call__(self, record: Record) -> str:
        return self.chosen(record)

    def chosen(self, record: Record) -> str:
        return record.key


class Count(OneInputStreamProcessFunction[Record, Line]):
    """Numbers the records of each key, in a declared state."""

    def __init__(self, name: str, limit: int = 10_000) -> None:
        self._name = name
        self._limit = limit

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNTED]

    def process_record(self, record: Record, output: Collector[Line], ctx: PartitionedContext[Line]) -> None:
        count = ctx.state_manager.get_state(COUNTED)
        count.update(count.value() + 1)
        if count.value() < self._limit:
            output.collect(Line(self._name, str(ctx.state_manager.current_key), count.value()))


class CountTwice(Count):
    """Like ``Count`` in steps of two, with a state of the same name and type."""

    def process_record(self, record: Record, output: Collector[Line], ctx: PartitionedContext[Line]) -> None:
        count = ctx.state_manager.get_state(COUNTED)
        count.update(count.value() + 2)
        output.collect(Line(self._name, str(ctx.state_manager.current_key), count.value()))


class Declared(OneInputStreamProcessFunction[Record, Line]):
    """Numbers the records of each key, in a state with a different name."""

    def uses_states(self) -> list[StateDeclaration]:
        return [DECLARED]

    def process_record(self, record: Record, output: Collector[Line], ctx: PartitionedContext[Line]) -> None:
        count = ctx.state_manager.get_state(DECLARED)
        count.update(count.value() + 1)
        output.collect(Line("declared", record.key, count.value()))


class InPairs(OneInputStreamProcessFunction[Record, Line]):
    """Keeps a NamedTuple for each key."""

    def uses_states(self) -> list[StateDeclaration]:
        return [PAIR]

    def process_record(self, record: Record, output: Collector[Line], ctx: PartitionedContext[Line]) -> None:
        state = ctx.state_manager.get_state(PAIR)
        before = state.value() or Pair(records=0, highest=0)
        state.update(Pair(records=before.records + 1, highest=record.value))
        output.collect(Line("pair", record.key, before.records + 1))


class InObjects(OneInputStreamProcessFunction[Record, Line]):
    """Keeps a dataclass for each key."""

    def uses_states(self) -> list[StateDeclaration]:
        return [HELD]

    def process_record(self, record: Record, output: Collector[Line], ctx: PartitionedContext[Line]) -> None:
        state = ctx.state_manager.get_state(HELD)
        before = state.value() or Held(name=record.key, records=0)
        state.update(Held(name=before.name, records=before.records + 1))
        output.collect(Line(f"held {before.name}", record.key, before.records + 1))


class InField(OneInputStreamProcessFunction[Record, Line]):
    """Numbers the records of each key, in a field."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def process_record(self, record: Record, output: Collector[Line], ctx: PartitionedContext[Line]) -> None:
        self.seen[record.key] = self.seen.get(record.key, 0) + 1
        output.collect(Line("field", record.key, self.seen[record.key]))


class Mark(OneInputStreamProcessFunction[Record, Line]):
    """Emits a watermark that no other operator depends on."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [MARK]

    def process_record(self, record: Record, output: Collector[Line], ctx: PartitionedContext[Line]) -> None:
        output.collect(Line("mark", "", record.value))
        ctx.non_partitioned_context.watermark_manager.emit_watermark(MARK.new_watermark(record.value))


class Follow(OneInputStreamProcessFunction[Line, Line]):
    """Receives the watermarks."""

    def process_record(self, record: Line, output: Collector[Line], ctx: PartitionedContext[Line]) -> None:
        output.collect(record)

    def on_watermark(
        self, watermark: Watermark, output: Collector[Line], ctx: NonPartitionedContext[Line]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


def same(record: Record) -> Record:
    return record


def lines_in(folder: str, name: str) -> Callable[[list[Line], int], None]:
    """Create a function that writes each micro-batch to a file, which a repeated micro-batch replaces."""

    def write(lines: list[Line], batch_id: int) -> None:
        file = Path(folder, "lines", f"{name} {batch_id}.json")
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(lines))

    return write


def run(spark: SparkSession, folder: str, checkpoint: str = "checkpoint") -> None:
    """Run or resume the program."""
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=StateLayout.BLOB))
    env.set_parallelism(2)
    source = DataGeneratorSource(Generate(Gate(folder, "stop")), count=COUNT, records_per_batch=PER_BATCH)
    records = env.from_source(source).with_uid("source")
    counts = records.key_by(by_key).process(Count("counts")).with_uid("counts")
    streams = {
        "counts": counts,
        "helper": records.key_by(lambda record: helper.pick(record)).process(Count("helper")).with_uid("helper"),
        "method": records.key_by(lambda record: record.own_key()).process(Count("method")).with_uid("method"),
        "table": records.key_by(lambda record: record[TABLE["column"]]).process(Count("table")).with_uid("table"),
        "callable": records.key_by(Select()).process(Count("callable")).with_uid("callable"),
        "declared": records.key_by(by_key).process(Declared()).with_uid("declared"),
        "pair": records.key_by(by_key).process(InPairs()).with_uid("pair"),
        "held": records.key_by(by_key).process(InObjects()).with_uid("held"),
        "field": records.key_by(by_key).process(InField()).with_uid("field"),
        "mark": records.process(Mark()).with_uid("mark").shuffle().process(Follow()).with_uid("follow"),
        "mapped": records.map(same).with_uid("mapped").key_by(by_key).process(Count("mapped")).with_uid("behind map"),
    }
    counts.to_sink(FileSink(f"{folder}/files", schema=Line))
    streams["once"] = records.key_by(by_key).process(Count("once"))
    streams["twice"] = records.key_by(by_key).process(CountTwice("twice"))
    for name, stream in streams.items():
        stream.to_sink(ForeachBatchSink(lines_in(folder, name))).with_uid(f"lines of {name}")
    env.execute("changing", checkpoint_location=f"{folder}/{checkpoint}")
