"""Savepoints of keyed state in columns on Spark: they are read, edited, and continued with other layouts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, JobHandle, JobStatus, Trigger
from dsv2.aggregates import Count, First, Key, Last, Max, Mean, Sum, WindowStart
from dsv2.arrow import ArrowCollector, ArrowContext, ArrowEventTimeProcessFunction
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl
from runtime_spark import SparkRuntime, StateKey, StateLayout
from tests.durations import ms
from tests.support import wait_until

KEY = StateKey(b"k" * 32)


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
SEEN = StateDeclarations.value_state("seen", Seen, default=Seen(0, -1, None))
LATELY = StateDeclarations.value_state("lately", Lately, default=Lately(0), ttl=StateTtl(timedelta(days=1)))
MORE = 1_000_000
WINDOWS = WindowStrategy.sliding(ms(3000), ms(1000))
BY_LETTER = attrgetter("letter")


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


class Layout(NamedTuple):
    """The parallelism of the operators."""

    follow: int
    running: int
    windows: int
    whole: int


def letter_of(letter: Letter) -> str:
    return letter.letter


def build(
    env: ExecutionEnvironment, layout: Layout, per_batch: int | None = None, select: Callable[[Letter], str] = BY_LETTER
) -> dict[str, Any]:
    """``select``: The key selector of the aggregates, which decides whether they are on columns."""
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).per_event_watermark()
    letters = env.from_collection(LETTERS, "letters", records_per_batch=per_batch).with_uid("letters")
    timed = letters.process(generator.build_as_process_function()).with_uid("timed").with_parallelism(1)
    keyed = timed.key_by(select, version=1)
    return {
        "follow": timed.key_by(BY_LETTER, version=1).process(Follow()).with_parallelism(layout.follow),
        "running": keyed.aggregate(
            *(Running, Letter),
            letter=Key(),
            times=Count(),
            mean=Mean("time"),
            size=Sum("size"),
            first=First("size"),
            last=Last("time"),
        ).with_parallelism(layout.running),
        "windows": keyed.window(WINDOWS)
        .aggregate(
            *(Window, Letter), letter=Key(), start=WindowStart(), times=Count(), mean=Mean("time"), size=Max("size")
        )
        .with_parallelism(layout.windows),
        "whole": keyed.window(WINDOWS)
        .aggregate(
            *(Whole, Letter), letter=Key(), start=WindowStart(), times=Count(), total=Sum("time"), mean=Mean("time")
        )
        .with_parallelism(layout.whole),
    }


def start(
    spark: SparkSession,
    results: list[Any],
    checkpoint: Path,
    layout: Layout,
    *,
    states: StateLayout = StateLayout.BLOB,
    partitions: int | None = None,
    savepoint: str | Path | None = None,
    to_end: bool = False,
) -> JobHandle:
    """Start the job on Spark. ``results`` gets its output."""
    env = ExecutionEnvironment.get_instance(
        SparkRuntime(spark, state_layout=states, partitions=partitions, state_key=KEY)
    )
    for uid, stream in build(env, layout, None if to_end else 30).items():
        sink = ForeachBatchSink[Any](lambda records, batch_id: results.extend(records))
        stream.with_uid(uid).to_sink(sink).with_uid(f"{uid} out")
    # With pauses in which the job can be stopped.
    trigger = Trigger.available_now() if to_end else Trigger.processing_time(timedelta(seconds=2))
    return env.execute_async("moved", checkpoint_location=checkpoint, trigger=trigger, savepoint=savepoint)


def locally(
    layout: Layout, savepoint: str | Path | None = None, select: Callable[[Letter], str] = BY_LETTER
) -> list[Any]:
    """The results of a local run to the end."""
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime()), CollectSink[Any]()
    for uid, stream in build(env, layout, select=select).items():
        stream.with_uid(uid).to_sink(sink).with_uid(f"{uid} out")
    env.execute("local", savepoint=savepoint)
    return sink.results


def alike(found: Iterable[Any], expected: Iterable[Any]) -> bool:
    return sorted(map(repr, found)) == sorted(map(repr, expected))


def after_batches(job: JobHandle, batches: int) -> JobHandle:
    wait_until(lambda: job.progress.batch_id >= batches - 1 or job.status is not JobStatus.RUNNING)
    assert job.status is JobStatus.RUNNING
    return job


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Savepoint]:
    """The results of a job that was stopped with a savepoint, and that."""
    folder, results = tmp_path_factory.mktemp("columns"), list[Any]()
    job = after_batches(start(spark, results, folder / "checkpoint", Layout(2, 2, 3, 1)), 3)
    return results, Savepoint.open(job.stop_with_savepoint(folder / "savepoint"))


def read_of(savepoint: Savepoint) -> list[Letter]:
    """The letters that were read before the savepoint."""
    return LETTERS[: savepoint.positions["letters"]["position"]]


def test_state_is_a_table(spark: SparkSession, taken: tuple[list[Any], Savepoint]) -> None:
    _, savepoint = taken
    savepoint.verify()
    read = read_of(savepoint)
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
    assert {row["key"]: (row["value"]["mean_sum"], row["value"]["mean_count"]) for row in running} == {
        key: (sum(letter.time for letter in letters), len(letters)) for key, letters in own.items()
    }
    for uid in ("windows", "whole"):
        rows = savepoint.contents(uid).to_arrow().to_pylist()
        assert rows
        for row in rows:
            inside = [one for one in own[row["key"]] if row["window"] <= one.time < row["window"] + 3000]
            assert (row["value"]["times"], row["value"]["mean_sum"]) == (len(inside), sum(one.time for one in inside))


def test_job_continues_with_other_parallelisms_partitions_and_layouts(
    spark: SparkSession, taken: tuple[list[Any], Savepoint], tmp_path: Path
) -> None:
    before, first = taken
    results, smaller = list(before), Layout(1, 3, 2, 2)
    options: dict[str, Any] = {"states": StateLayout.MAP, "partitions": 2}
    job = after_batches(start(spark, results, tmp_path / "b", smaller, savepoint=first.path, **options), 2)
    second = job.stop_with_savepoint(tmp_path / "second")
    start(spark, results, tmp_path / "c", Layout(3, 1, 1, 3), savepoint=second, to_end=True).result()
    assert alike(results, locally(Layout(1, 1, 1, 1)))


@pytest.mark.parametrize("select", [BY_LETTER, letter_of])
def test_job_continues_locally_on_columns_and_on_single_records(
    taken: tuple[list[Any], Savepoint], select: Callable[[Letter], str]
) -> None:
    before, savepoint = taken
    after = locally(Layout(3, 1, 2, 2), savepoint.path, select)
    assert alike([*before, *after], locally(Layout(1, 1, 1, 1)))


def test_state_is_edited(spark: SparkSession, taken: tuple[list[Any], Savepoint], tmp_path: Path) -> None:
    _, savepoint = taken
    editor = savepoint.edit(types=[Seen]).map_state("follow", "seen", more).filter_keys("running", is_not_a)
    editor = editor.filter_keys("whole", is_not_a)
    edited = Savepoint.open(editor.write(tmp_path / "edited", spark=spark))
    assert not edited.diff(Savepoint.open(editor.write(tmp_path / "in one process")))
    last = {row["key"]: row["value"]["last"] for row in savepoint.state("follow", "seen").to_arrow().to_pylist()}
    rows = edited.state("follow", "seen").to_arrow().to_pylist()
    assert {row["key"]: row["value"]["last"] for row in rows} == {key: time + MORE for key, time in last.items()}
    assert "a" not in edited.state("running", "aggregates").to_arrow()["key"].to_pylist()
    results: list[Any] = []
    layout = Layout(3, 2, 1, 2)
    start(spark, results, tmp_path / "d", layout, savepoint=edited.path, states=StateLayout.MAP, to_end=True).result()
    assert alike(results, locally(layout, edited.path))
    first = min((one for one in results if isinstance(one, Running) and one.letter == "a"), key=attrgetter("times"))
    assert first.times == 1
    assert all(one.last >= MORE for one in results if isinstance(one, Known))


def more(key: str, seen: Seen) -> Seen:
    return seen._replace(last=seen.last + MORE)


def is_not_a(key: str) -> bool:
    return key != "a"
