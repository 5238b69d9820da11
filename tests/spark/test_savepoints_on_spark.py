"""Savepoints of jobs on Spark: read, edited, and continued with other parallelisms, layouts and runtimes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, JobError, JobHandle, JobStatus, PartitionedContext, Trigger
from dsv2.aggregates import Count, First, Key, Last, Max, Mean, Sum, WindowStart
from dsv2.arrow import ArrowCollector, ArrowContext, ArrowEventTimeProcessFunction
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.extension.event_time import EventTimeExtension, EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.window import WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl
from runtime_spark import SparkRuntime, StateKey, StateLayout, create_savepoint
from tests.durations import ms
from tests.spans import Item, Spans
from tests.spark.programs import persisted
from tests.support import wait_until
from tests.windows import WindowRecorder

KEY = StateKey(b"k" * 32)
ENDS = {"a": 140, "b": 67, "c": 133}
PER_BATCH, MORE = 30, 1_000_000


class Letter(NamedTuple):
    """A record."""

    letter: str
    time: int
    size: float | None


class Seen(NamedTuple):
    """The state of a letter."""

    times: int
    last: int
    sizes: list[float] | None


class Lately(NamedTuple):
    """A value that expires, which it does not within a test."""

    times: int


class Known(NamedTuple):
    """The output for a letter."""

    letter: str
    why: str
    times: int
    last: int
    sizes: list[float] | None


class Running(NamedTuple):
    """Running aggregates."""

    letter: str
    times: int
    mean: float
    size: float | None
    first: float | None
    last: int


class Window(NamedTuple):
    """Aggregates of a window."""

    letter: str
    start: int
    times: int
    mean: float
    size: float | None


class Whole(NamedTuple):
    """Aggregates of whole numbers, which are combined before the exchange."""

    letter: str
    start: int
    times: int
    total: int
    mean: float


LETTERS = [Letter("abcdefg"[n * n % 7], 100 * n, None if n % 5 == 0 else n / 8) for n in range(400)]
LAST = StateDeclarations.value_state("last", Letter)
BOTH = StateDeclarations.map_state("both", str, int)
SEEN = StateDeclarations.value_state("seen", Seen, default=Seen(0, -1, None))
LATELY = StateDeclarations.value_state("lately", Lately, default=Lately(0), ttl=StateTtl(timedelta(days=1)))
BY_LETTER, BY_SPAN = attrgetter("letter"), attrgetter("span")


class Gaps(OneInputEventTimeStreamProcessFunction[Letter, Any]):
    """Emits for each letter the pauses of 300 ms, at timers."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [LAST]

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: Letter, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        ctx.state_manager.get_state(LAST).update(record)
        self.event_time.register_timer(record.time + 300)

    def on_event_timer(self, timestamp: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        last = ctx.state_manager.get_state(LAST).value()
        assert last is not None
        if last.time + 300 == timestamp:
            output.collect(("gap", last))


class Both(TwoInputNonBroadcastStreamProcessFunction[Letter, Item, Any]):
    """Counts the letters and the items of each key."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [BOTH]

    def process_record_from_first_input(self, record: Letter, output: Collector[Any], ctx: Any) -> None:
        self._count("letters", output, ctx)

    def process_record_from_second_input(self, record: Item, output: Collector[Any], ctx: Any) -> None:
        self._count("items", output, ctx)

    def _count(self, kind: str, output: Collector[Any], ctx: Any) -> None:
        both = ctx.state_manager.get_state(BOTH)
        both.put(kind, (both.get(kind) or 0) + 1)
        output.collect((kind, ctx.state_manager.current_key, both.get(kind)))


class Follow(ArrowEventTimeProcessFunction[Letter, Known]):
    """Keeps values in columns, and emits them at timers."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [SEEN, LATELY]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Known], ctx: ArrowContext[Known]) -> None:
        keys, seen = batch["letter"], ctx.keyed_state(SEEN)
        seen.aggregate(keys, {"times": 1, "last": batch["time"]}, {"times": "sum", "last": "max"})
        sizes = [None if size is None else [size, -size] for size in batch["size"].to_pylist()]
        seen.update(keys, {"sizes": pa.array(sizes, pa.list_(pa.float64()))})
        ctx.keyed_state(LATELY).aggregate(keys, {"times": 1}, {"times": "sum"})
        times = batch["time"].to_numpy()
        ctx.event_timers.register(keys, times - times % 5000 + 5000)

    def on_event_timers(self, timers: pa.Table, output: ArrowCollector[Known], ctx: ArrowContext[Known]) -> None:
        seen, lately = ctx.keyed_state(SEEN).get(timers["letter"]), ctx.keyed_state(LATELY).get(timers["letter"])
        assert seen["times"] == lately["times"]
        for timer, values in zip(timers.to_pylist(), seen.to_pylist(), strict=True):
            output.collect(Known(timer["letter"], f"at {timer['timestamp']}", *values.values()))


def letter_of(letter: Letter) -> str:
    return letter.letter


def build(
    env: ExecutionEnvironment, turn: int, per_batch: int | None = None, select: Callable[[Letter], str] = BY_LETTER
) -> dict[str, Any]:
    """Streams by uid. Each turn gives them other parallelisms.

    ``select``: The key selector of the aggregates, which decides whether they are on columns.
    """
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).per_event_watermark()
    letters = env.from_collection(LETTERS, "letters", records_per_batch=per_batch).with_uid("letters")
    timed = letters.process(generator.build_as_process_function()).with_uid("timed").with_parallelism(1)
    spans = env.from_source(Spans(ENDS, limit=per_batch)).with_uid("spans").with_parallelism(1 + turn % 3)
    keyed, by_letter = timed.key_by(select, version=1), timed.key_by(letter_of)
    windows = WindowStrategy.sliding(ms(3000), ms(1000))
    of_window: dict[str, Any] = {"letter": Key(), "start": WindowStart(), "times": Count(), "mean": Mean("time")}
    of_letter: dict[str, Any] = {"letter": Key(), "times": Count(), "mean": Mean("time"), "size": Sum("size")}
    streams: dict[str, Any] = {
        "gaps": by_letter.process(Gaps()),
        "windows": by_letter.window(WindowStrategy.tumbling(ms(700))).process(WindowRecorder()),
        "both": by_letter.connect_and_process(spans.key_by(BY_SPAN), Both()),
        "follow": timed.key_by(BY_LETTER, version=1).process(Follow()),
        "running": keyed.aggregate(Running, Letter, **of_letter, first=First("size"), last=Last("time")),
        "sums": keyed.window(windows).aggregate(Window, Letter, **of_window, size=Max("size")),
        "whole": keyed.window(windows).aggregate(Whole, Letter, **of_window, total=Sum("time")),
    }
    for number, (uid, stream) in enumerate(streams.items()):
        stream.with_uid(uid).with_parallelism(1 + (number + turn) % 3)
    return streams


class Job:
    """The job in several runs. ``results``: The output of all of them, after that of earlier ones."""

    def __init__(self, spark: SparkSession, results: Iterable[Any] = ()) -> None:
        self._spark = spark
        self.results = list(results)
        self._fails = False

    def _write(self, records: list[Any], batch_id: int) -> None:
        if self._fails:
            raise ValueError("not now")
        self.results += records

    def start(
        self,
        checkpoint: Path,
        turn: int,
        *,
        layout: StateLayout = StateLayout.BLOB,
        partitions: int | None = None,
        savepoint: str | Path | None = None,
        pause: timedelta = timedelta(hours=1),
        to_end: bool = False,
        fails: bool = False,
    ) -> JobHandle:
        """Start it. Unless it runs ``to_end``, it can be stopped in the pause after its first micro-batch."""
        runtime = SparkRuntime(self._spark, state_layout=layout, partitions=partitions, state_key=KEY)
        env = ExecutionEnvironment.get_instance(runtime)
        self._fails = fails
        for uid, stream in build(env, turn, None if to_end else PER_BATCH).items():
            stream.to_sink(ForeachBatchSink(self._write)).with_uid(f"{uid} out")
        trigger = Trigger.available_now() if to_end else Trigger.processing_time(pause)
        return env.execute_async("moved", checkpoint_location=checkpoint, trigger=trigger, savepoint=savepoint)


def locally(turn: int, savepoint: str | Path | None = None, select: Callable[[Letter], str] = BY_LETTER) -> list[Any]:
    """The results of a local run to the end."""
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime()), CollectSink[Any]()
    for uid, stream in build(env, turn, select=select).items():
        stream.to_sink(sink).with_uid(f"{uid} out")
    env.execute("local", savepoint=savepoint)
    return sink.results


def alike(found: Iterable[Any], expected: Iterable[Any]) -> bool:
    return sorted(map(repr, found)) == sorted(map(repr, expected))


def after(job: JobHandle, batches: int) -> JobHandle:
    """Wait until ``batches`` micro-batches are complete."""
    wait_until(lambda: job.progress.batch_id >= batches - 1 or job.status is not JobStatus.RUNNING)
    assert job.status is JobStatus.RUNNING
    return job


class Taken(NamedTuple):
    """The folder of a job that was stopped with a savepoint, the results of the job, and the savepoint."""

    folder: Path
    results: list[Any]
    savepoint: Savepoint


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    folder, job = tmp_path_factory.mktemp("savepoints"), Job(spark)
    handle = after(job.start(folder / "a", 0, pause=timedelta(seconds=2)), 3)
    assert handle.stop_with_savepoint(folder / "first") == str(folder / "first")
    return Taken(folder, job.results, Savepoint.open(folder / "first"))


def test_state_is_a_table(spark: SparkSession, taken: Taken) -> None:
    savepoint = taken.savepoint
    savepoint.verify()
    read = LETTERS[: savepoint.positions["letters"]["position"]]
    own = {key: [letter for letter in read if letter.letter == key] for key in {letter.letter for letter in read}}
    assert 0 < len(read) < len(LETTERS)
    seen = {row["key"]: row["value"] for row in savepoint.state("follow", "seen").to_arrow().to_pylist()}
    assert seen == {
        key: {
            "times": len(letters),
            "last": letters[-1].time,
            "sizes": None if letters[-1].size is None else [letters[-1].size, -letters[-1].size],
        }
        for key, letters in own.items()
    }
    on_spark = savepoint.state("follow", "lately").to_spark(spark).collect()
    assert {row.key: row.value.times for row in on_spark} == {key: len(letters) for key, letters in own.items()}
    assert {row["key"] for row in savepoint.timers("follow").to_arrow().to_pylist()} == own.keys()
    running = savepoint.state("running", "aggregates").to_arrow().to_pylist()
    assert {row["key"]: (row["value"]["mean__sum"], row["value"]["mean__count"]) for row in running} == {
        key: (sum(letter.time for letter in letters), len(letters)) for key, letters in own.items()
    }
    for uid in ("sums", "whole"):
        rows = savepoint.contents(uid).to_arrow().to_pylist()
        assert rows
        for row in rows:
            inside = [one for one in own[row["key"]] if row["window"] <= one.time < row["window"] + 3000]
            assert (row["value"]["times"], row["value"]["mean__sum"]) == (len(inside), sum(one.time for one in inside))


def test_job_continues_with_other_parallelisms_partitions_and_layouts(spark: SparkSession, taken: Taken) -> None:
    folder, before, _ = taken
    job = Job(spark, before)
    shutil.copytree(folder / "first", folder / "copy")
    begun: dict[str, Any] = {"layout": StateLayout.MAP, "partitions": 2}
    with pytest.raises(JobError, match="not now"):
        job.start(folder / "b", 1, savepoint=folder / "copy", fails=True, **begun).result()
    assert job.results == before
    handle = after(job.start(folder / "b", 1, **begun), 1)  # restores, because nothing was committed
    handle.savepoint(folder / "running")
    handle.stop_with_savepoint(folder / "second")
    shutil.rmtree(folder / "copy")
    with pytest.raises(ConfigurationError, match=r"began from the savepoint .*copy"):
        job.start(folder / "b", 1, savepoint=folder / "second", **begun)
    assert Savepoint.open(folder / "running").origin.batch_id <= Savepoint.open(folder / "second").origin.batch_id
    last = after(job.start(folder / "c", 2, savepoint=folder / "second"), 1)
    shutil.rmtree(folder / "second")  # it has been restored
    last.stop()
    job.start(folder / "c", 2, to_end=True).result()
    assert alike(job.results, locally(0))


@pytest.mark.parametrize("select", [BY_LETTER, letter_of])
def test_job_continues_locally_on_columns_and_on_single_records(taken: Taken, select: Callable[[Letter], str]) -> None:
    assert alike([*taken.results, *locally(1, taken.savepoint.path, select)], locally(0))


def test_state_is_edited(spark: SparkSession, taken: Taken, tmp_path: Path) -> None:
    savepoint = taken.savepoint
    editor = savepoint.edit(types=[Seen]).map_state("follow", "seen", more).filter_keys("running", is_not_a)
    editor = editor.filter_keys("whole", is_not_a)
    edited = Savepoint.open(editor.write(tmp_path / "edited", spark=spark))
    assert not edited.diff(Savepoint.open(editor.write(tmp_path / "in one process")))
    last = {row["key"]: row["value"]["last"] for row in savepoint.state("follow", "seen").to_arrow().to_pylist()}
    rows = edited.state("follow", "seen").to_arrow().to_pylist()
    assert {row["key"]: row["value"]["last"] for row in rows} == {key: time + MORE for key, time in last.items()}
    assert "a" not in edited.state("running", "aggregates").to_arrow()["key"].to_pylist()
    job = Job(spark)
    job.start(tmp_path / "d", 2, savepoint=edited.path, layout=StateLayout.MAP, to_end=True).result()
    assert alike(job.results, locally(2, edited.path))
    of_a = [one.times for one in job.results if isinstance(one, Running) and one.letter == "a"]
    assert min(of_a) == 1
    assert all(one.last >= MORE for one in job.results if isinstance(one, Known))


def more(key: str, seen: Seen) -> Seen:
    return seen._replace(last=seen.last + MORE)


def is_not_a(key: str) -> bool:
    return key != "a"


def test_savepoints_that_cannot_be_taken(spark: SparkSession, taken: Taken) -> None:
    folder, before = taken.folder, persisted(spark)
    with pytest.raises(ConfigurationError, match="first is not empty"):
        create_savepoint(folder / "a", folder / "first", spark=spark, state_key=KEY)
    with pytest.raises(ConfigurationError, match="is not a checkpoint with a complete micro-batch"):
        create_savepoint(folder / "nothing", folder / "new", spark=spark)
    with pytest.raises(CorruptDataError, match="is signed, but the job has no key"):
        create_savepoint(folder / "a", folder / "new", spark=spark)
    with pytest.raises(ConfigurationError, match="not a savepoint: it has no"):
        Savepoint.open(folder / "new")
    assert persisted(spark) <= before


def test_starts_that_are_refused(spark: SparkSession, taken: Taken) -> None:
    folder, job = taken.folder, Job(spark)
    with pytest.raises(ConfigurationError, match="a began without a savepoint"):
        job.start(folder / "a", 0, savepoint=folder / "first")
    with pytest.raises(ConfigurationError, match="not a savepoint"):
        job.start(folder / "new", 0, savepoint=folder / "a")
    shutil.copytree(folder / "first", folder / "damaged")
    part = max((folder / "damaged" / "state").rglob("*.parquet"), key=lambda file: file.stat().st_size)
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    part.with_name(f".{part.name}.crc").unlink()
    with pytest.raises(CorruptDataError, match=re.escape(f"{part.name} was changed")):
        job.start(folder / "new", 0, savepoint=folder / "damaged")
    assert not (folder / "new" / "offsets").exists()
    assert job.results == []


class Tally(NamedTuple):
    times: int
    at: datetime
    of_day: time
    price: Decimal
    tags: dict[str, list[int]]


TALLY = StateDeclarations.value_state("tally", Tally)


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
