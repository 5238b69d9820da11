"""Jobs on Spark that continue from savepoints with other parallelisms, partitions and state layouts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, JobError, JobHandle, JobStatus, PartitionedContext, Trigger
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.extension.event_time import EventTimeExtension, EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.window import WindowStrategy, window
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.state import StateDeclaration, StateDeclarations
from runtime_spark import SparkRuntime, StateKey, StateLayout, create_savepoint
from tests.durations import ms
from tests.spans import Item, Spans
from tests.support import wait_until
from tests.windows import WindowRecorder

KEY = StateKey(b"k" * 32)
ENDS = {"a": 140, "b": 67, "c": 133}
PER_BATCH = 10


class Letter(NamedTuple):
    letter: str
    at: int


LETTERS = [Letter("abcdefg"[number * number % 7], 100 * number) for number in range(400)]
LAST = StateDeclarations.value_state("last", Letter)


class Tally(NamedTuple):
    times: int
    at: datetime
    of_day: time
    price: Decimal
    tags: dict[str, list[int]]


TALLY = StateDeclarations.value_state("tally", Tally)
BOTH = StateDeclarations.map_state("both", str, int)


def time_of(letter: Letter) -> int:
    return letter.at


def letter_of(letter: Letter) -> str:
    return letter.letter


def span_of(item: Item) -> str:
    return item.span


class Gaps(OneInputEventTimeStreamProcessFunction[Letter, Any]):
    """Emits for each letter the pauses of 300 ms, at timers."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [LAST]

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: Letter, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        ctx.state_manager.get_state(LAST).update(record)
        self.event_time.register_timer(record.at + 300)

    def on_event_timer(self, timestamp: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        last = ctx.state_manager.get_state(LAST).value()
        assert last is not None
        if last.at + 300 == timestamp:
            output.collect(("gap", last))


class Both(TwoInputNonBroadcastStreamProcessFunction[Letter, Item, Any]):
    """Counts the letters and the items of each key."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [BOTH]

    def process_record_from_first_input(self, record: Letter, output: Collector[Any], ctx: Any) -> None:
        self._count("letters", output, ctx)

    def process_record_from_second_input(self, record: Item, output: Collector[Any], ctx: Any) -> None:
        self._count("items", output, ctx)

    def _count(self, what: str, output: Collector[Any], ctx: Any) -> None:
        both = ctx.state_manager.get_state(BOTH)
        both.put(what, (both.get(what) or 0) + 1)
        output.collect((what, ctx.state_manager.current_key, both.get(what)))


class Line(NamedTuple):
    value: str


def line_of(line: Line) -> str:
    return line.value


def tally_of(count: int) -> Tally:
    at = datetime(1960, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    return Tally(count, at, time(23, 59, 59, 999999), Decimal("1.5"), {"a": [count]})


class Counted(OneInputStreamProcessFunction[Line, Any]):
    """Counts each line."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [TALLY]

    def process_record(self, record: Line, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        state = ctx.state_manager.get_state(TALLY)
        tally = state.value()
        count = 1 if tally is None else tally.times + 1
        state.update(tally_of(count))
        output.collect((record.value, count))


class Parallelism(NamedTuple):
    spans: int
    gaps: int
    windows: int
    both: int


def build(env: ExecutionEnvironment, parallelism: Parallelism, per_batch: int | None = None) -> Any:
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).per_event_watermark()
    letters = env.from_collection(LETTERS, "letters", records_per_batch=per_batch).with_uid("letters")
    timed = letters.process(generator.build_as_process_function()).with_uid("timed").with_parallelism(1)
    by_letter = timed.key_by(letter_of)
    spans = env.from_source(Spans(ENDS, limit=per_batch)).with_uid("spans").with_parallelism(parallelism.spans)
    gaps = by_letter.process(Gaps()).with_uid("gaps").with_parallelism(parallelism.gaps)
    told = by_letter.process(window(WindowStrategy.tumbling(ms(700)), WindowRecorder())).with_uid("windows")
    both = by_letter.connect_and_process(spans.key_by(span_of), Both()).with_uid("both")
    return gaps, told.with_parallelism(parallelism.windows), both.with_parallelism(parallelism.both)


class Broken:
    """Fails when it first receives records."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.fails = False

    def write(self, records: list[Any], batch_id: int) -> None:
        if self.fails:
            raise ValueError("not now")
        self.results += records


class Job:
    """The job in several runs. ``results``: The output of all of them, after that of earlier ones."""

    def __init__(self, spark: SparkSession, results: Iterable[Any] = ()) -> None:
        self._spark = spark
        self._sink = Broken()
        self._sink.results += results

    @property
    def results(self) -> list[Any]:
        return self._sink.results

    def start(
        self,
        checkpoint: Path,
        parallelism: Parallelism,
        *,
        layout: StateLayout = StateLayout.BLOB,
        partitions: int | None = None,
        savepoint: str | None = None,
        to_end: bool = False,
        fails: bool = False,
    ) -> JobHandle:
        runtime = SparkRuntime(self._spark, state_layout=layout, partitions=partitions, state_key=KEY)
        env = ExecutionEnvironment.get_instance(runtime)
        self._sink.fails = fails
        for number, stream in enumerate(build(env, parallelism, None if to_end else PER_BATCH)):
            stream.to_sink(ForeachBatchSink(self._sink.write)).with_uid(f"out-{number}")
        # With pauses in which the job can be stopped.
        trigger = Trigger.available_now() if to_end else Trigger.processing_time(timedelta(seconds=2))
        return env.execute_async("moved", checkpoint_location=checkpoint, trigger=trigger, savepoint=savepoint)


def expected() -> list[Any]:
    """The results of a run from start to end."""
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime()), CollectSink[Any]()
    for stream in build(env, Parallelism(1, 1, 1, 1)):
        stream.to_sink(sink)
    env.execute("steady")
    return sorted(sink.results, key=repr)


def after(job: JobHandle, batches: int) -> JobHandle:
    """Wait until ``batches`` micro-batches are complete."""
    wait_until(lambda: job.progress.batch_id >= batches - 1 or job.status is not JobStatus.RUNNING)
    assert job.status is JobStatus.RUNNING
    return job


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Path]:
    """The results of a job that was stopped with a savepoint, in the folder ``first`` next to its checkpoint."""
    folder = tmp_path_factory.mktemp("savepoints")
    job = Job(spark)
    handle = after(job.start(folder / "a", Parallelism(2, 2, 3, 1)), 2)
    assert handle.stop_with_savepoint(folder / "first") == str(folder / "first")
    return job.results, folder


def test_job_continues_with_other_parallelisms_partitions_and_layouts(
    spark: SparkSession, first: tuple[list[Any], Path]
) -> None:
    before, folder = first
    job = Job(spark, before)
    shutil.copytree(folder / "first", folder / "copy")
    begun: dict[str, Any] = {"layout": StateLayout.MAP, "partitions": 2}
    smaller, larger = Parallelism(1, 3, 2, 2), Parallelism(3, 1, 1, 3)
    with pytest.raises(JobError, match="not now"):
        job.start(folder / "b", smaller, savepoint=str(folder / "copy"), fails=True, **begun).result()
    assert job.results == before
    handle = after(job.start(folder / "b", smaller, **begun), 1)  # restores, because nothing was committed
    handle.savepoint(folder / "running")
    handle.stop_with_savepoint(folder / "second")
    shutil.rmtree(folder / "copy")
    with pytest.raises(ConfigurationError, match=r"began from the savepoint .*copy"):
        job.start(folder / "b", smaller, savepoint=str(folder / "second"), **begun)
    assert Savepoint.open(folder / "running").origin.batch_id <= Savepoint.open(folder / "second").origin.batch_id
    last = after(job.start(folder / "c", larger, savepoint=str(folder / "second")), 1)
    shutil.rmtree(folder / "second")  # it has been restored
    after(last, 2).stop()
    job.start(folder / "c", larger, to_end=True).result()
    assert sorted(job.results, key=repr) == expected()


def test_job_continues_locally(first: tuple[list[Any], Path]) -> None:
    before, folder = first
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime()), CollectSink[Any]()
    for number, stream in enumerate(build(env, Parallelism(2, 3, 1, 2))):
        stream.to_sink(sink).with_uid(f"out-{number}")
    env.execute("local", savepoint=folder / "first")
    assert sorted([*before, *sink.results], key=repr) == expected()


def test_savepoints_that_cannot_be_taken(spark: SparkSession, first: tuple[list[Any], Path]) -> None:
    _, folder = first
    with pytest.raises(ConfigurationError, match="first is not empty"):
        create_savepoint(folder / "a", folder / "first", spark=spark, state_key=KEY)
    with pytest.raises(ConfigurationError, match="is not a checkpoint with a complete micro-batch"):
        create_savepoint(folder / "nothing", folder / "new", spark=spark)
    with pytest.raises(CorruptDataError, match="is signed, but the job has no key"):
        create_savepoint(folder / "a", folder / "new", spark=spark)
    with pytest.raises(ConfigurationError, match="not a savepoint: it has no"):
        Savepoint.open(folder / "new")


def test_starts_that_are_refused(spark: SparkSession, first: tuple[list[Any], Path]) -> None:
    _, folder = first
    job, as_before = Job(spark), Parallelism(2, 2, 3, 1)
    with pytest.raises(ConfigurationError, match="a began without a savepoint"):
        job.start(folder / "a", as_before, savepoint=str(folder / "first"))
    with pytest.raises(ConfigurationError, match="not a savepoint"):
        job.start(folder / "new", as_before, savepoint=str(folder / "a"))
    shutil.copytree(folder / "first", folder / "damaged")
    part = max((folder / "damaged" / "state").rglob("*.parquet"), key=lambda file: file.stat().st_size)
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    part.with_name(f".{part.name}.crc").unlink()
    with pytest.raises(CorruptDataError, match=re.escape(f"{part.name} was changed")):
        job.start(folder / "new", as_before, savepoint=str(folder / "damaged"))
    assert not (folder / "new" / "offsets").exists()
    assert job.results == []


def test_position_of_a_streaming_dataframe_has_to_be_confirmed(spark: SparkSession, tmp_path: Path) -> None:
    def start(rows: str, checkpoint: str, **options: Any) -> list[Any]:
        env, sink = ExecutionEnvironment.get_instance(spark=spark), CollectSink[Any]()
        lines = spark.readStream.schema("value string").text(str(tmp_path / rows))
        counted = (
            env.from_dataframe(lines, Line).with_uid("lines").key_by(line_of).process(Counted()).with_uid("counted")
        )
        counted.to_sink(sink).with_uid("out")
        now = Trigger.available_now()
        env.execute("lines", checkpoint_location=tmp_path / checkpoint, trigger=now, **options)
        return sorted(sink.results)

    for rows, text in (("old", "x\ny\nx\n"), ("new", "y\nx\n")):
        (tmp_path / rows).mkdir()
        (tmp_path / rows / "lines.txt").write_text(text)
    assert start("old", "a") == [("x", 1), ("x", 2), ("y", 1)]
    path = create_savepoint(tmp_path / "a", tmp_path / "savepoint", spark=spark)
    rows = Savepoint.open(path).state("counted", "tally").to_arrow().sort_by("key").to_pylist()
    tallies = [tally_of(2), tally_of(1)]
    assert [(row["key"], row["value"] | {"tags": dict(row["value"]["tags"])}) for row in rows] == [
        (key, tally._asdict() | {"of_day": str(tally.of_day)}) for key, tally in zip("xy", tallies, strict=True)
    ]
    with pytest.raises(ConfigurationError, match=r"taken at \[\{'logOffset': 0\}\].*continued_sources=\['lines'\]"):
        start("new", "b", savepoint=path)
    assert start("new", "b", savepoint=path, continued_sources=["lines"]) == [("x", 3), ("y", 2)]
