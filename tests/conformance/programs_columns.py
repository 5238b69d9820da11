"""Programs for functions on Arrow tables, together with functions on single records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsv2.arrow import (
    ArrowCollector,
    ArrowEventTimeProcessFunction,
    ArrowForeachBatchSink,
    ArrowProcessFunction,
    ArrowSink,
    ArrowSinkBatch,
    map_tables,
    records_of,
    schema_of,
)
from dsv2.extension.event_time import EventTimeExtension
from dsv2.model import RecordBatch
from dsv2.model.context import NonPartitionedContext, PartitionedContext
from dsv2.sources import DataclassSerializer, Portion, Serializer, SplitSource
from dsv2.watermark import Watermark, WatermarkHandlingResult
from tests.conformance.functions import Pass, Stamped
from tests.conformance.harness import Pipeline, Program, Run


class Reading(NamedTuple):
    """A measurement of a device."""

    device: str
    time: int
    value: float | None


@dataclass(frozen=True)
class Total:
    """The sum of a device's values in a window of ten ms."""

    device: str
    start: int
    value: float


def reading(number: int) -> Reading:
    """The reading with this number."""
    return Reading(f"device {number % 4}", number, None if number % 7 == 3 else number / 2)


READINGS = [reading(number) for number in range(32)]


def totals() -> list[Total]:
    """The expected output of the windows."""
    sums: dict[tuple[str, int], float] = {}
    for device, time, value in READINGS:
        place = device, time // 10 * 10
        sums[place] = sums.get(place, 0.0) + (value or 0.0)
    return [Total(*place, value) for place, value in sums.items()]


class Sums(ArrowEventTimeProcessFunction[Reading, Total]):
    """Adds up by window. Tables wait for event time in its fields."""

    def __init__(self) -> None:
        self.waiting: list[pa.Table] = []

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Total], ctx: PartitionedContext[Total]) -> None:
        starts = pc.multiply(pc.divide(batch["time"], 10), 10)
        values = pc.fill_null(batch["value"], 0.0)
        self.waiting.append(pa.table([batch["device"], starts, values], schema_of(Total)))

    def on_event_time_watermark(
        self, timestamp: int, output: ArrowCollector[Total], ctx: NonPartitionedContext[Total]
    ) -> None:
        rows = pa.concat_tables([schema_of(Total).empty_table(), *self.waiting])
        closed = pc.less_equal(rows["start"], timestamp - 9)
        sums = rows.filter(closed).group_by(["device", "start"]).aggregate([("value", "sum")])
        output.collect_batch(sums.rename_columns(["device", "start", "value"]), time_column="start")
        self.waiting = [rows.filter(pc.invert(closed))]


@dataclass(frozen=True)
class Lane:
    """Every ``step``-th reading, starting at ``first``."""

    first: int
    step: int

    @property
    def split_id(self) -> str:
        """First number and step."""
        return str(self.first % self.step)


class Tables(SplitSource[Reading, Lane]):
    """Reads columns."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes

    @property
    def bounded(self) -> bool:
        return True

    @property
    def split_serializer(self) -> Serializer[Lane]:
        return DataclassSerializer(Lane)

    def discover(self) -> Sequence[Lane]:
        return [Lane(lane, self.lanes) for lane in range(self.lanes)]

    def advance(self, split: Lane, limit: int | None) -> Portion[Lane] | None:
        stop = min(split.first + 7 * split.step, len(READINGS) + split.first % split.step)
        if stop <= split.first:
            return None
        return Portion(replace(split, first=stop), (stop - split.first) // split.step, last=stop >= len(READINGS))

    def read(self, start: Lane, stop: Lane) -> Iterator[RecordBatch[Reading]]:
        rows = READINGS[start.first : stop.first : start.step]
        table = pa.table({name: list(map(attrgetter(name), rows)) for name in Reading._fields})
        yield RecordBatch(records_of(table, Reading))


class WindowsOnTables(Program):
    """Tables made from rows, and tables read by a source, give the same windows with event time and keys."""

    def build(self, p: Pipeline) -> None:
        times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
        by_split = times.build_as_watermark_strategy()
        ways = {
            "rows": p.source(READINGS).process(times.build_as_process_function()),
            "one split": p.env.from_source(Tables(1), "one split").process(times.build_as_process_function()),
            "two splits": p.env.from_source(Tables(2), "two splits", watermarks=by_split),
        }
        for name, timed in ways.items():
            sums = timed.key_by(attrgetter("device")).process(Sums())
            p.collect(sums.key_by(attrgetter("device")).process(Stamped()), name)

    def check(self, run: Run) -> None:
        for name in ("rows", "one split", "two splits"):
            run.expect_all(*((total, total.start) for total in totals()), name=name)


@dataclass(frozen=True)
class Seen:
    """A reading, and the subtask that received it."""

    device: str
    time: int
    subtask: int


class Locate(ArrowProcessFunction[Reading, Seen]):
    """Emits where readings arrive."""

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Seen], ctx: PartitionedContext[Seen]) -> None:
        subtask = ctx.task_info.index_of_this_subtask
        output.collect_batch(batch.append_column("subtask", pa.array([subtask] * batch.num_rows)))


class KeysOfTables(Program):
    """Keys in columns and keys of single records meet in one subtask each, in the order of their channel."""

    def build(self, p: Pipeline) -> None:
        rows, columns = p.source(READINGS), p.source(READINGS).process(map_tables(same, Reading, Reading))
        for name, selector in (("one", attrgetter("device")), ("two", attrgetter("device", "time"))):
            p.collect(columns.key_by(selector).process(Locate()).process(Pass[Seen]()), name)
        p.collect(rows.key_by(lambda record: record.device).process(Locate()), "one by one")
        p.collect(rows.key_by(lambda record: (record.device, record.time)).process(Locate()), "two by one")
        p.collect(columns.shuffle().process(Locate()), "shuffled")
        p.collect(columns.global_().process(Locate()), "global")

    def check(self, run: Run) -> None:
        for name in ("one", "two", "one by one", "two by one", "shuffled", "global"):
            assert sorted((seen.device, seen.time) for seen in run.out(name)) == sorted(r[:2] for r in READINGS)
        for of_device in run.grouped(attrgetter("device"), "one").values():
            for lane in range(run.parallelism):  # read by one source subtask
                times = [seen.time for seen in of_device if seen.time % run.parallelism == lane]
                assert times == sorted(times)
        for name in ("one", "two"):
            assert set(run.out(name)) == set(run.out(f"{name} by one"))
        assert {seen.subtask for seen in run.out("shuffled")} == set(range(run.parallelism))


def same(table: pa.Table) -> pa.Table:
    """Return the same table."""
    return table


class Signals(ArrowProcessFunction[Reading, Total]):
    """Emits one total for all readings since the last event-time watermark."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Total], ctx: PartitionedContext[Total]) -> None:
        self.values += batch["value"].drop_null().to_pylist()

    def on_watermark(
        self, watermark: Watermark, output: ArrowCollector[Total], ctx: NonPartitionedContext[Total]
    ) -> WatermarkHandlingResult:
        if EventTimeExtension.is_event_time_watermark(watermark):
            output.collect(Total("all", int(watermark.value), sum(self.values)))
            self.values = []
        return WatermarkHandlingResult.PEEK


class WatermarksBetweenTables(Program):
    """Tables are split at a watermark after each record."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.timed(READINGS, attrgetter("time")).process(Signals()).with_parallelism(1))

    def check(self, run: Run) -> None:
        assert run.out()[:-1] == [Total("all", time - 1, value or 0.0) for _, time, value in READINGS]


@dataclass(frozen=True)
class TableTo:
    """Writes a table to a file for each micro-batch."""

    folder: Path

    def __call__(self, table: pa.Table, batch_id: int) -> None:
        self.folder.mkdir(exist_ok=True)
        pq.write_table(table, self.folder / f"{batch_id}-0")


class WritesTables:
    """Writes a file for each micro-batch and subtask."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write_tables(self, batch: ArrowSinkBatch) -> None:
        self.folder.mkdir(exist_ok=True)
        pq.write_table(pa.concat_tables(batch.tables), self.folder / f"{batch.batch_id}-{batch.subtask}")


class SeenInFiles(WritesTables, ArrowSink[Seen]):
    """With the columns of ``Seen``."""


class LocateEach(Locate):
    """Emits single records for the first of each table."""

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Seen], ctx: PartitionedContext[Seen]) -> None:
        first = batch.slice(0, 1).to_pylist()[0]
        output.collect(Seen(first["device"], first["time"], ctx.task_info.index_of_this_subtask))
        super().process_batch(batch.slice(1), output, ctx)


class TablesForSinks(Program):
    """Sinks receive tables and single records as tables, separately for each subtask."""

    def build(self, p: Pipeline) -> None:
        located = p.source(READINGS).key_by(attrgetter("device")).process(LocateEach())
        located.to_sink(SeenInFiles(p.folder / "tasks"))
        located.to_sink(ArrowForeachBatchSink(TableTo(p.folder / "driver"), Seen))

    def check(self, run: Run) -> None:
        for name in ("tasks", "driver"):
            found: list[dict[str, Any]] = []
            for file in sorted((run.folder / name).iterdir(), key=lambda file: int(file.name.partition("-")[0])):
                table = pq.ParquetFile(file).read()
                assert table.schema == schema_of(Seen)
                assert name == "driver" or set(table["subtask"].to_pylist()) == {int(file.name.partition("-")[2])}
                found += table.to_pylist()
            assert sorted((row["device"], row["time"]) for row in found) == sorted(r[:2] for r in READINGS)
            for device in {reading.device for reading in READINGS}:
                for lane in range(run.parallelism):  # read by one source subtask
                    of_lane = [row["time"] for row in found if row["device"] == device]
                    times = [time for time in of_lane if time % run.parallelism == lane]
                    assert times == sorted(times)


class Half(NamedTuple):
    """A reading with a value, in halves."""

    device: str
    time: int
    halves: float
    is_even: bool


class Expressions(Program):
    """Expressions give the same for rows, for tables, and behind ``key_by`` and ``global_``, and keep timestamps."""

    def build(self, p: Pipeline) -> None:
        times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
        tables = p.env.from_source(Tables(2), "tables", watermarks=times.build_as_watermark_strategy())
        rows = p.source(READINGS).process(times.build_as_process_function())
        known, even = ~nw.col("value").is_null(), nw.col("time") % 2 == 0
        for name, stream in (("rows", rows), ("tables", tables)):
            halves = stream.where(known).with_columns(Half, halves=nw.col("value") * 2, is_even=even)
            p.collect(halves.process(Stamped()), name)
            keyed = stream.key_by(attrgetter("device")).where(known)
            p.collect(keyed.key_by(attrgetter("device")).process(Stamped()), f"keyed {name}")
        everywhere = rows.global_().select(
            Half, Reading, device=nw.lit("all"), time="time", halves=nw.lit(1.0), is_even=even
        )
        p.collect(everywhere, "global")

    def check(self, run: Run) -> None:
        known = [reading for reading in READINGS if reading.value is not None]
        halves = [Half(one.device, one.time, float(one.time), one.time % 2 == 0) for one in known]
        for name in ("rows", "tables"):
            run.expect_all(*((half, half.time) for half in halves), name=name)
            run.expect_all(*((reading, reading.time) for reading in known), name=f"keyed {name}")
        run.expect_all(*(Half("all", one.time, 1.0, one.time % 2 == 0) for one in READINGS), name="global")


PROGRAMS = (WindowsOnTables(), KeysOfTables(), WatermarksBetweenTables(), TablesForSinks(), Expressions())
