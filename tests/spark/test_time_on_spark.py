"""Time on Spark: timers and expiry without data, across restarts, and the test source with interruptions."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, JobError, JobHandle, JobStatus, Trigger
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.testing import Crash, Interruption, Pause, Stop, TestSource
from dsv2.watermark import KeyedWatermark, Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from runtime_spark import SparkRuntime, StateLayout
from runtime_spark.job.query import StreamingJob
from tests.durations import LONG, ms

QUIET = Pause(ms(600_000))  # longer than any test: no data, and no end
SOON_MS = 1500
INTERVAL_MS = 300


class Await:
    """A sink function that keeps its records, and lets the test wait for them."""

    def __init__(self, wanted: Callable[[list[Any]], bool]) -> None:
        self.records: list[Any] = []
        self._wanted = wanted
        self._there = threading.Event()

    def __call__(self, records: list[Any], batch_id: int) -> None:
        self.records += records
        if self._wanted(self.records):
            self._there.set()

    def wait(self) -> list[Any]:
        assert self._there.wait(LONG), self.records
        return self.records


def start(
    spark: SparkSession,
    checkpoint: str,
    items: list[Any],
    build: Callable[[Any], Any],
    sink: Any,
    layout: StateLayout = StateLayout.BLOB,
    **options: Any,
) -> JobHandle:
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout))
    env.set_parallelism(2)
    build(env.from_source(TestSource[Any](items))).to_sink(sink)
    return env.execute_async("timed", checkpoint_location=checkpoint, **options)


class Alarm(OneInputStreamProcessFunction[str, Any]):
    """Emits each record, and again some time later. At the end it emits the number of keys."""

    def process_record(self, record: str, output: Any, ctx: Any) -> None:
        now = ctx.processing_time_manager.current_time()
        output.collect(("record", record))
        ctx.processing_time_manager.register_timer(now + SOON_MS)
        ctx.processing_time_manager.register_timer(now + SOON_MS)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("timer", ctx.state_manager.current_key, timestamp, ctx.processing_time_manager.current_time()))


def alarmed(stream: Any) -> Any:
    """Two levels: the second one receives the output of the first one's timers."""
    return stream.key_by(str).process(Alarm()).shuffle().map(tuple)


class EventAlarm(OneInputEventTimeStreamProcessFunction[str, Any]):
    """The same with event timers."""

    def init_event_time_process_function(self, manager: Any) -> None:
        self.event_time = manager

    def process_record(self, record: str, output: Any, ctx: Any) -> None:
        output.collect(("record", record))
        self.event_time.register_timer(ctx.processing_time_manager.current_time() + SOON_MS)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("timer", ctx.state_manager.current_key, timestamp, self.event_time.current_time()))


def alarmed_in_event_time(stream: Any) -> Any:
    """Event time is not declared, so it is the wall clock."""
    builder = EventTimeExtension.new_watermark_generator_builder(len).no_watermark()
    return stream.process(builder.build_as_process_function()).key_by(str).process(EventAlarm()).shuffle().map(tuple)


def alarms(records: list[Any]) -> list[Any]:
    return [record for record in records if record[0] == "timer"]


def batch_times(job: JobHandle) -> list[int]:
    """The processing time of each completed micro-batch, in ms."""
    assert isinstance(job, StreamingJob)
    times = [progress["timestamp"] for progress in job.query.recentProgress]
    return [round(datetime.fromisoformat(time).timestamp() * 1000) for time in times]


@pytest.mark.parametrize(
    ("alarmed", "layout"),
    [(alarmed, StateLayout.MAP), (alarmed_in_event_time, StateLayout.BLOB)],
    ids=["processing time", "event time by clock"],
)
def test_job_without_data_fires_its_timers_on_time(
    spark: SparkSession, checkpoint: str, alarmed: Callable[[Any], Any], layout: StateLayout
) -> None:
    sink = Await(lambda records: len(alarms(records)) == 4)
    trigger = Trigger.processing_time(ms(INTERVAL_MS))
    # The first micro-batch takes seconds because workers start, so it does not show how long others wait.
    items = ["first", Pause(ms(1)), "a", "b", "c", QUIET]
    job = start(spark, checkpoint, items, alarmed, ForeachBatchSink(sink), layout, trigger=trigger)
    try:
        fired = {key: (timestamp, now) for _, key, timestamp, now in alarms(sink.wait())}
    finally:
        job.stop()
    assert set(fired) == {"first", "a", "b", "c"}
    times = batch_times(job)
    for key in "abc":
        timestamp, now = fired[key]
        assert now >= timestamp
        # A micro-batch reports its start, which is slightly before its processing time.
        assert len([time for time in times if timestamp <= time < now]) <= 1, "it fires in the first one that may"


LOAD = new_builder("load").type_long().combine_function_max().expire_after(ms(SOON_MS)).build()
OF_USER = new_builder("of user").type_long().combine_function_max().expire_after(ms(SOON_MS)).per_key(int).build()


class Emit(OneInputStreamProcessFunction[int, int]):
    """Emits each record as a watermark: of all, and of user 7."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [LOAD, OF_USER]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        manager = ctx.non_partitioned_context.watermark_manager
        manager.emit_watermark(LOAD.new_watermark(record))
        manager.emit_watermark(OF_USER.new_watermark(record, key=7))


class Watch(OneInputStreamProcessFunction[int, Any]):
    """Emits the watermarks that it receives."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(("all", watermark.value))
        return WatermarkHandlingResult.PEEK

    def on_key_watermark(self, watermark: KeyedWatermark, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, watermark.value))


def test_watermarks_expire_without_data(spark: SparkSession, checkpoint: str) -> None:
    """The first subtask sends 20, the second one 10 half a second later. Then nothing arrives."""
    sink = Await(lambda records: len(records) == 4)

    def watched(stream: Any) -> Any:
        return stream.process(Emit()).key_by(int).process(Watch()).with_parallelism(1)

    trigger, items = Trigger.processing_time(ms(INTERVAL_MS)), [20, Pause(ms(500)), 10, QUIET]
    job = start(spark, checkpoint, items, watched, ForeachBatchSink(sink), StateLayout.MAP, trigger=trigger)
    try:
        assert sorted(sink.wait(), key=str) == [("all", 10), ("all", 20), (7, 10), (7, 20)]
    finally:
        job.stop()
    assert [value for of, value in sink.records if of == 7] == [20, 10]


class Both(OneInputEventTimeStreamProcessFunction[int, Any]):
    """Registers timers of both kinds, which are due at the end."""

    def init_event_time_process_function(self, manager: Any) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.event_time.register_timer(record + 10)
        ctx.processing_time_manager.register_timer((record + 1) << 42)
        output.collect((record, ctx.timestamp, self.event_time.current_time()))

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, "event", timestamp, ctx.timestamp))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, "processing", timestamp >> 42))


def per_event(stream: Any) -> Any:
    generator = EventTimeExtension.new_watermark_generator_builder(int).per_event_watermark()
    stamped = stream.with_parallelism(1).process(generator.build_as_process_function()).with_parallelism(1)
    return stamped.key_by(lambda number: number % 2).process(Both())


INPUT: list[int | Interruption] = [1, 2, Stop(), 3, Crash("no power"), 14, 15]
WHOLE = [
    (1, 1, -(2**63)),
    (3, 3, 1),
    (1, "event", 11, 11),
    (1, "event", 13, 13),
    (15, 15, 13),
    (1, "event", 25, 25),
    *((1, "processing", number) for number in (2, 4, 16)),
]


def test_timers_and_event_time_survive_a_stop_and_a_crash(spark: SparkSession, checkpoint: str) -> None:
    """Bounded jobs end by themselves: at the stop, and when all remaining timers have fired at the end."""
    sinks = [CollectSink[Any]() for _ in range(3)]
    stopped = start(spark, checkpoint, INPUT, per_event, sinks[0])
    assert stopped.await_termination(timedelta(seconds=LONG))
    assert sorted(sinks[0].results) == [(1, 1, -(2**63)), (2, 2, 0)]
    crashed = start(spark, checkpoint, INPUT, per_event, sinks[1])
    with pytest.raises(JobError, match=f"The source Source .*, defined at {re.escape(__file__)}:.*, crashed: no power"):
        crashed.await_termination(timedelta(seconds=LONG))
    assert crashed.status is JobStatus.FAILED
    finished = start(spark, checkpoint, INPUT, per_event, sinks[2])
    assert finished.await_termination(timedelta(seconds=LONG))
    assert finished.status is JobStatus.FINISHED
    results = [record for sink in sinks for record in sink.results]
    assert [record for record in results if record[0] % 2] == WHOLE
    assert len(results) == len(WHOLE) + 6
