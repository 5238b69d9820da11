"""A job with two generators, a keyed function with states and timers, windows, a field, and file and collect sinks."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dsv2 import Collector, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowContext, WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.sinks import CollectSink, FileSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations, aggregate_of
from storms.common.outputs import Output, read_files
from storms.common.processes import Gate
from storms.common.runtimes import environment, rolling_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("GATES", "SINKS", "expected", "run", "written")

KEYS = 13
PARTS = 3
PER_BATCH = 200
RECORDS = 5_000
"""The number of records of each source."""
WINDOW = 10_000  # ms
GATES = ("match", "count")
SINKS = ("seen", "windows", "total")

LEFT = StateDeclarations.value_state("left", int, default=0)
RIGHT = StateDeclarations.value_state("right", int, default=0)
PARTS_SEEN = StateDeclarations.map_state("parts", str, int)


class Event(NamedTuple):
    key: str
    number: int
    at: int  # ms


class Seen(NamedTuple):
    key: str
    what: str
    nth: int


class Window(NamedTuple):
    key: str
    start: int
    records: int


class Total(NamedTuple):
    records: int


def event(index: int) -> Event:
    """The record at ``index`` of both sources."""
    return Event(f"key-{index * index % KEYS}", index, index * 20)


def key_of(record: Event | Seen) -> str:
    return record.key


def time_of(record: Event) -> int:
    return record.at


class Match(TwoInputNonBroadcastStreamProcessFunction[Event, Event, Seen]):
    """Numbers the records of each key, by side, and by part for both sides together.

    The first record of each key registers a processing-time timer.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def uses_states(self) -> list[StateDeclaration]:
        return [LEFT, RIGHT, PARTS_SEEN]

    def process_record_from_first_input(
        self, record: Event, output: Collector[Seen], ctx: PartitionedContext[Seen]
    ) -> None:
        count = ctx.state_manager.get_state(LEFT)
        count.update(count.value() + 1)
        output.collect(Seen(record.key, "left", count.value()))
        self._part(record, output, ctx)

    def process_record_from_second_input(
        self, record: Event, output: Collector[Seen], ctx: PartitionedContext[Seen]
    ) -> None:
        count = ctx.state_manager.get_state(RIGHT)
        count.update(count.value() + 1)
        output.collect(Seen(record.key, "right", count.value()))
        self._part(record, output, ctx)

    def _part(self, record: Event, output: Collector[Seen], ctx: PartitionedContext[Seen]) -> None:
        self._gate.pass_through()
        parts, part = ctx.state_manager.get_state(PARTS_SEEN), f"part-{record.number % PARTS}"
        if parts.is_empty():
            timers = ctx.processing_time_manager
            timers.register_timer(timers.current_time() + 2_000)
        nth = (parts.get(part) or 0) + 1
        parts.put(part, nth)
        output.collect(Seen(record.key, part, nth))

    def on_processing_timer(self, timestamp: int, output: Collector[Seen], ctx: PartitionedContext[Seen]) -> None:
        output.collect(Seen(str(ctx.state_manager.current_key), "timer", 1))


class CountAll(OneInputStreamProcessFunction[Seen, Total]):
    """Numbers all records, in a field."""

    def __init__(self, gate: Gate) -> None:
        self.total = 0
        self._gate = gate

    def process_record(self, record: Seen, output: Collector[Total], ctx: PartitionedContext[Total]) -> None:
        self._gate.pass_through()
        self.total += 1
        output.collect(Total(self.total))


def is_of_a_part(record: Seen) -> bool:
    return record.what.startswith("part")


def count_one(record: Seen, count: int) -> int:
    return count + 1


def as_window(records: int, window: WindowContext, ctx: PartitionedContext[Window]) -> Window:
    return Window(str(ctx.state_manager.current_key), window.start_time, records)


def run(spark: SparkSession | None, folder: str, layout: str = "blob", records: str = str(RECORDS)) -> None:
    """Run or resume the job, with its checkpoint and output in ``folder``."""
    env = environment(spark, layout)
    env.set_parallelism(2)
    sides = []
    for side in ("left", "right"):
        generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
        source = DataGeneratorSource(event, count=int(records), records_per_batch=PER_BATCH)
        timed = env.from_source(source, side).with_uid(side).process(generator).with_uid(f"{side}-time")
        sides.append(timed.key_by(key_of))
    seen = sides[0].connect_and_process(sides[1], Match(Gate(folder, "match"))).with_uid("match")
    counting = aggregate_of(int, count_one, int)
    tumbling = WindowStrategy.tumbling(timedelta(milliseconds=WINDOW))
    windows = seen.filter(is_of_a_part).with_uid("parts").key_by(key_of)
    collected = CollectSink[Seen]()
    seen.to_sink(FileSink(f"{folder}/seen", schema=Seen)).with_uid("seen")
    windows.window(tumbling).aggregate(counting, as_window).with_uid("windows").to_sink(
        FileSink(f"{folder}/windows", format="json", schema=Window)
    ).with_uid("windows-sink")
    seen.global_().process(CountAll(Gate(folder, "count"))).with_uid("count").to_sink(
        rolling_files(spark, f"{folder}/total", Total)
    ).with_uid("total")
    seen.to_sink(collected).with_uid("collected")
    env.execute("two sources", checkpoint_location=f"{folder}/checkpoint")
    Path(folder, "collected.json").write_text(json.dumps(collected.results))


def expected(layout: str = "blob", records: str = str(RECORDS)) -> Output:
    """The expected content of the sinks."""
    events = [event(index) for index in range(int(records))]
    seen: Counter[tuple[str, str, int]] = Counter()
    for key, size in Counter(record.key for record in events).items():
        seen.update((key, side, nth) for side in ("left", "right") for nth in range(1, size + 1))
        seen[key, "timer", 1] = 1
    parts = Counter((record.key, f"part-{record.number % PARTS}") for record in events)
    seen.update((key, part, nth) for (key, part), size in parts.items() for nth in range(1, 2 * size + 1))
    starts = Counter((record.key, record.at - record.at % WINDOW) for record in events)
    return {
        "seen": seen,
        "windows": Counter((key, start, 2 * count) for (key, start), count in starts.items()),
        "total": Counter((number,) for number in range(1, seen.total() + 1)),
        "collected": Counter(),
    }


def written(folder: Path, first_batch: int) -> Output:
    """Read the content of the sinks.

    ``collected`` has the differences between the records that the last run collected and those that it wrote to files.
    ``first_batch`` is the first micro-batch of the last run.
    """
    seen = read_files(folder / "seen")
    of_last_run = read_files(folder / "seen", first_batch=first_batch)
    collected = Counter(tuple(record) for record in json.loads((folder / "collected.json").read_text()))
    return {
        "seen": seen,
        "windows": read_files(folder / "windows", "json"),
        "total": read_files(folder / "total"),
        "collected": (collected - of_last_run) + (of_last_run - collected),
    }
