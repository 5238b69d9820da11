"""Sources with splits on Spark: offsets in its log, readers in its tasks, restarts."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import (
    Collector,
    ExecutionEnvironment,
    JobError,
    JobHandle,
    NonPartitionedContext,
    PartitionedContext,
    Trigger,
)
from dsv2.cli import main
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.jobs.progress_log import read_progress
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.sources import Portion, RoundRobinSplitAssigner
from tests.durations import ms
from tests.numbering import Numbering
from tests.spans import Item, Span, Spans, SpansInFile, everything, number_of, write_ends
from tests.spark.programs import environment
from tests.support import wait_until


def same(item: Item) -> Item:
    return item


def build(spark: SparkSession, source: Spans, parallelism: int = 3) -> tuple[ExecutionEnvironment, CollectSink[Item]]:
    env = environment(spark, parallelism)
    sink = CollectSink[Item]()
    env.from_source(source).with_uid("spans").map(same).with_uid("same").to_sink(sink)
    return env, sink


def span_of(item: Item) -> str:
    return item.span


def logged_offsets(checkpoint: str) -> list[dict[str, Any]]:
    """The offsets of the first source in Spark's log."""
    files = sorted(Path(checkpoint, "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[2]) for file in files]


def grow(file: Path, ends: dict[str, int]) -> dict[str, int]:
    write_ends(file, ends)
    return ends


def arrived(job: JobHandle, sink: CollectSink[Item], expected: list[Item]) -> bool:
    assert job.exception() is None
    return sorted(sink.results) == expected


def test_running_job_finds_new_data_and_new_splits(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "ends"
    grow(file, {"a": 5})
    env, sink = build(spark, SpansInFile(str(file), discovery_interval=ms(1)))
    job = env.execute_async(checkpoint_location=checkpoint)
    for ends in ({"a": 5}, {"a": 6}, {"a": 6, "b": 3}):
        grow(file, ends)
        expected = everything(ends)
        wait_until(partial(arrived, job, sink, expected))
    job.stop()
    assert sorted(sink.results) == everything({"a": 6, "b": 3})


class Lost(Spans):
    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        raise OSError("no route to host")


def test_failing_enumerator_is_named(spark: SparkSession, checkpoint: str) -> None:
    env, _ = build(spark, Lost({"a": 1}), 1)
    with pytest.raises(JobError, match=r"Source \(uid 'spans'\), .*, in advance: OSError: no route to host"):
        env.execute(checkpoint_location=checkpoint)


def counted(span: str, item: Item, nth: int) -> tuple[str, int]:
    return span, nth


def test_parallelism_and_splits_change_between_runs(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    file, results, assigner = tmp_path / "ends", list[tuple[str, int]](), RoundRobinSplitAssigner()
    # In the fourth run only one split has new data, and in the last one none.
    for parallelism, count, end, first in ((3, 6, 5, 5), (6, 12, 7, 7), (2, 12, 9, 9), (2, 12, 9, 10), (2, 12, 9, 10)):
        ends = grow(file, {f"s{number}": end for number in range(count)} | {"s0": first})
        env = environment(spark)
        sink = CollectSink[tuple[str, int]]()
        items = env.from_source(SpansInFile(str(file), assigner=assigner)).with_uid("spans")
        counts = items.with_parallelism(parallelism).map(same).with_uid("same").with_parallelism(parallelism)
        numbered = counts.key_by(span_of).process(Numbering(counted)).with_uid("count").with_parallelism(2)
        numbered.to_sink(sink)
        job = env.execute(checkpoint_location=checkpoint, trigger=Trigger.available_now())
        results += sink.results
        held = [len(reader["splits"]) for reader in logged_offsets(checkpoint)[-1]["readers"]]
        assert held == [count // parallelism] * parallelism
        assert sorted(results) == sorted((name, nth) for name, end in ends.items() for nth in range(1, end + 1))
        operator = job.progress.operators["count"]
        if sink.results:  # otherwise there was no micro-batch to report
            assert operator.records_in == operator.records_out == len(results), "also of subtasks without new data"


# --- Event time of splits ---------------------------------------------------------------------------------------------


class Recorder(OneInputEventTimeStreamProcessFunction[Item, Any]):
    """Forwards records and emits event time."""

    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect((record.span, ctx.timestamp))

    def on_event_time_watermark(self, timestamp: int, output: Collector[Any], ctx: NonPartitionedContext[Any]) -> None:
        output.collect(timestamp)


def timed(spark: SparkSession, source: Spans, idleness: timedelta) -> tuple[ExecutionEnvironment, CollectSink[Any]]:
    env = environment(spark)
    strategy = EventTimeExtension.new_watermark_generator_builder(number_of).with_idleness(idleness)
    sink = CollectSink[Any]()
    items = env.from_source(source, watermarks=strategy.build_as_watermark_strategy()).with_uid("spans")
    items.with_parallelism(2).process(Recorder()).with_uid("heard").with_parallelism(1).to_sink(sink)
    return env, sink


def times_of(sink: CollectSink[Any]) -> list[int]:
    return [entry for entry in sink.results if isinstance(entry, int)]


def test_event_time_is_the_minimum_of_splits_after_a_restart(
    spark: SparkSession, checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, heard, held = tmp_path / "ends", list[list[int]](), list[Any]()
    # One reader has two splits, the other has one. In the second run "a" has nothing to read, and its watermark of the
    # first run counts.
    for ends in ({"a": 5, "b": 7, "c": 3}, {"a": 5, "b": 9, "c": 4}, {"a": 6, "b": 9, "c": 9}):
        grow(file, ends)
        source = SpansInFile(str(file), assigner=RoundRobinSplitAssigner())
        env, sink = timed(spark, source, timedelta(0))
        job = env.execute_async(checkpoint_location=checkpoint, trigger=Trigger.available_now())
        job.await_termination()
        heard.append(times_of(sink))
        found = job.watermarks()["heard"]
        held.append((found.value, found.path[-1].subtask, found.split))
        assert [channel.holds_back for channel in found.inputs[0].channels] == [True, False]
    assert heard == [[1], [2], [4]]
    assert held == [(1, 0, "c"), (2, 0, "c"), (4, 0, "a")]
    for progress in (job.progress, read_progress(checkpoint)[-1]):
        splits = progress.operators["spans"].splits
        assert [(split.split, split.subtask, split.position) for split in splits] == [
            *(("a", 0, "6"), ("c", 0, "9"), ("b", 1, "9"))
        ]
    assert main(["watermarks", checkpoint, "--operator", "heard"]) == 0
    assert "The way to the cause: heard[0] <- spans[0] <- split a" in capsys.readouterr().out
    archives = sorted(file.name for file in Path(checkpoint, "dsv2/reports").glob("[!.]*"))
    assert archives == ["1.json", "2.json"]


class Refusal:
    """Raises on micro-batch ``fails_on``, and keeps the others."""

    def __init__(self, fails_on: int | None = None) -> None:
        self.fails_on = fails_on
        self.batches: dict[int, list[Item]] = {}

    def __call__(self, items: list[Item], batch_id: int) -> None:
        if batch_id == self.fails_on:
            raise ValueError("enough")
        self.batches[batch_id] = items


def test_micro_batches_grow_and_a_restart_repeats_one(spark: SparkSession, checkpoint: str) -> None:
    ends = {"a": 1_300, "b": 500, "c": 70}
    kept: dict[int, list[Item]] = {}
    logged: list[list[dict[str, Any]]] = []
    for fails_on in (3, None):
        sink = Refusal(fails_on)
        env = environment(spark, 2)
        env.from_source(Spans(ends, run=100)).with_uid("spans").map(same).to_sink(ForeachBatchSink(sink))
        # Long enough for a slow machine: the limit doubles as long as half of it is not reached.
        trigger = Trigger.available_now(target_batch_duration=ms(600_000))
        job = env.execute_async(checkpoint_location=checkpoint, trigger=trigger)
        if fails_on is None:
            job.await_termination()
        else:
            with pytest.raises(JobError, match="enough"):
                job.await_termination()
        logged.append(logged_offsets(checkpoint))
        kept |= sink.batches
    before, after = logged
    assert after[: len(before)] == before
    assert sorted(item for items in kept.values() for item in items) == everything(ends)
    # After the restart, a small micro-batch, and then the limit from before. The repeated one was planned before.
    assert [len(kept[batch_id]) for batch_id in sorted(kept)] == [100, 200, 400, 800, 100, 270]
