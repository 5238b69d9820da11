"""Test sources, whose input has pauses, stops and crashes: on the local runtime, and with Spark's reader."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobStatus, RuntimeExecutionMode
from dsv2.errors import ConfigurationError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.local import LocalRuntime
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink
from dsv2.testing import Crash, Interruption, ManualClock, Pause, Stop, TestSource
from runtime_spark.frames.failures import job_failure
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.worker import pack_job
from runtime_spark.source.feeds import IndexedFeed
from runtime_spark.source.frame_source import FrameStreamReader
from tests.durations import ms


class Timely(OneInputStreamProcessFunction[int, tuple[Any, ...]]):
    """Emits each record with the time, and again 100 ms later."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        now = ctx.processing_time_manager.current_time()
        output.collect((record, now))
        ctx.processing_time_manager.register_timer(now + 100)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("timer", timestamp, ctx.processing_time_manager.current_time()))

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(("end",)))


class Job:
    """Numbers with interruptions, processed by ``Timely``."""

    def __init__(self, *items: int | Interruption, parallelism: int = 1, **options: Any) -> None:
        self.sink = CollectSink[Any]()
        mode = options.pop("mode", RuntimeExecutionMode.STREAMING)
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(), **options))
        env.set_parallelism(parallelism)
        env.set_execution_mode(mode)
        numbers = env.from_source(TestSource[int](items)).with_name("numbers")
        numbers.key_by(lambda number: 0).process(Timely()).to_sink(self.sink)
        self.handle = env.execute_async("interrupted")
        with suppress(JobError):
            self.handle.await_termination()

    @property
    def results(self) -> list[Any]:
        return self.sink.results


@pytest.mark.parametrize("options", [{}, {"batches": [1]}, {"batches": [1], "checks": False}])
def test_pause_advances_the_clock_and_fires_timers(options: Any) -> None:
    job = Job(1, Pause(ms(150)), 2, Pause(ms(30)), 3, **options)
    assert job.handle.status is JobStatus.FINISHED
    assert job.results == [
        (1, 0),
        ("timer", 100, 150),
        (2, 150),
        (3, 180),
        ("timer", 250, 180),
        ("timer", 280, 180),
        ("end",),
    ]


def test_pauses_at_either_end() -> None:
    assert Job(Pause(ms(50)), 1, Pause(ms(100))).results == [(1, 50), ("timer", 150, 150), ("end",)]
    assert Job(Pause(ms(50))).results == []


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_earlier_records_are_processed_before_an_interruption(parallelism: int) -> None:
    job = Job(*range(5), Pause(ms(10)), *range(5, 9), Pause(ms(10)), 9, parallelism=parallelism)
    records = [record for record in job.results if isinstance(record[0], int)]
    assert sorted(records) == [(n, 0) for n in range(5)] + [(n, 10) for n in range(5, 9)] + [(9, 20)]
    assert [now for _, now in records] == sorted(now for _, now in records)


def test_stop_ends_the_run_but_not_the_input() -> None:
    job = Job(1, 2, Stop(), 3)
    assert job.results == [(1, 0), (2, 0)]
    assert job.handle.status is JobStatus.STOPPED
    assert job.handle.exception() is None
    assert job.handle.result().progress.batch_id == 0


def test_crash_fails_the_job() -> None:
    job = Job(1, 2, Crash("no power"), 3)
    assert job.results == [(1, 0), (2, 0)]
    assert job.handle.status is JobStatus.FAILED
    with pytest.raises(
        JobError, match=f"The source numbers .*, defined at {re.escape(__file__)}:.*, crashed: no power"
    ):
        job.handle.result()


def test_batch_job_ignores_interruptions() -> None:
    job = Job(1, Pause(ms(1000)), 2, Stop(), 3, Crash(), mode=RuntimeExecutionMode.BATCH)
    assert job.results == [(1, 0), (2, 0), (3, 0), ("timer", 100, 0), ("end",)]


def test_pauses_of_several_sources_add_up() -> None:
    """Each pause comes after all earlier records of its own source."""
    env, sinks = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock())), []
    inputs: list[list[int | Interruption]] = [[1, Pause(ms(10)), 2], [3, 4, Pause(ms(5)), 5]]
    for items in inputs:
        sinks.append(CollectSink[Any]())
        numbers = env.from_source(TestSource[int](items)).key_by(lambda number: 0).process(Timely())
        numbers.filter(lambda record: len(record) == 2).to_sink(sinks[-1])
    env.execute()
    assert [sink.results for sink in sinks] == [[(1, 0), (2, 15)], [(3, 0), (4, 0), (5, 15)]]


def test_mistakes() -> None:
    with pytest.raises(ConfigurationError, match="two interruptions before record 1"):
        TestSource[int]([1, Pause(ms(1)), Stop(), 2])
    with pytest.raises(ConfigurationError, match="at least 1 ms"):
        Pause(ms(0))


class OffsetRequests:
    """Requests offsets from a reader, as Spark does."""

    def __init__(self, *items: int | Interruption, start: int = -1, clock: ManualClock | None = None) -> None:
        source = TestSource[int](items, records_per_batch=2)
        plan = _plan(source)
        packed = pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))
        self.clock = clock or ManualClock()
        self.feed = IndexedFeed(source)
        self.reader = FrameStreamReader(self.feed, self.clock, b"", packed, 0, None)
        self.position = start

    def __call__(self) -> int:
        offset = {"position": self.position}
        self.position = self.reader.latestOffset(offset)["position"]
        return self.position


def _plan(source: TestSource[int]) -> Plan:
    env = ExecutionEnvironment.get_instance("local")
    env.from_source(source).with_name("numbers").to_sink(CollectSink())
    return env.build_plan()


def test_spark_micro_batch_ends_at_an_interruption() -> None:
    ask = OffsetRequests(1, 2, 3, Pause(ms(10)), 4, 5, 6)
    assert [ask(), ask(), ask()] == [2, 3, 3]
    ask.clock.advance(ms(9))
    assert ask() == 3
    ask.clock.advance(ms(1))
    assert [ask(), ask(), ask()] == [5, 6, 6]


def test_spark_end_comes_after_a_last_pause() -> None:
    ask = OffsetRequests(1, Pause(ms(10)))
    assert [ask(), ask()] == [1, 1]
    ask.clock.advance(ms(10))
    assert ask() == 2
    assert ask.feed.count == 2
    start = {"position": -1}
    stops = [{"position": 1}, {"position": 2, "ended": True}]
    assert [ask.reader._planner.portions(start, stop)[0].last for stop in stops] == [False, True]


def test_spark_available_now_waits_for_pauses() -> None:
    ask = OffsetRequests(Pause(ms(10)), 1, Pause(ms(10)), 2, clock=ManualClock(step=ms(1)))
    ask.reader.prepareForTriggerAvailableNow()
    assert [ask(), ask(), ask()] == [1, 2, 2]
    assert ask.clock.now_ms() >= 20


@pytest.mark.parametrize("only_available", [False, True])
def test_spark_stop_lasts_for_the_rest_of_the_run(only_available: bool) -> None:
    ask = OffsetRequests(1, Stop(), 2, 3, Stop(), 4)
    again = OffsetRequests(1, Stop(), 2, 3, Stop(), 4, start=1)
    for one in (ask, again):
        if only_available:
            one.reader.prepareForTriggerAvailableNow()
    assert [ask(), ask(), ask()] == [1, 1, 1]
    assert [again(), again(), again()] == [3, 3, 3]


def test_spark_stop_ends_a_run_that_repeats_a_micro_batch() -> None:
    ask = OffsetRequests(1, Stop(), 2, 3, Stop(), 4)
    offsets = [{"position": position} for position in (1, 3)]
    ask.reader.partitions(offsets[1], offsets[1])  # Spark 4.1 says where the last run has ended
    ask.reader.partitions(*offsets)
    ask.position = 3
    assert [ask(), ask()] == [3, 3]


def test_spark_crash_happens_once() -> None:
    ask = OffsetRequests(1, Crash("no power"), 2)
    assert ask() == 1
    with pytest.raises(Exception, match="no power") as caught:
        ask()
    failure = job_failure(caught.value, "job")
    assert type(failure) is JobError
    assert str(failure).startswith("The source numbers")
    again = OffsetRequests(1, Crash("no power"), 2, start=1)
    assert again() == 2


def test_spark_run_begins_with_the_batch_it_repeats() -> None:
    """So that a later offset is not taken for the end of the previous run."""
    again = OffsetRequests(1, 2, Crash("no power"), 3, start=2)
    again.reader.partitions({"position": 0}, {"position": 2})
    with pytest.raises(Exception, match="no power"):
        again()


def test_interruption_before_the_first_record_opens_the_job() -> None:
    ask = OffsetRequests(Stop(), 1)
    assert [ask(), ask()] == [0, 0]
    (portion,) = ask.reader._planner.portions({"position": -1}, {"position": 0})
    assert portion.first
