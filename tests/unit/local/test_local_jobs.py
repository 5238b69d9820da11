"""Local jobs in the background: handles, unbounded sources, triggers with available_now, and programs that end."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobHandle, JobStatus, NonPartitionedContext, Trigger
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.runtime.report import base_job, job_waiting
from dsv2.runtime.sources.split_reading import SplitReading
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource, HybridSource, Portion, Source, SourceReader, SourceReaderContext
from dsv2.testing import ManualClock
from tests.durations import LONG, ms
from tests.spans import Item, Span, Spans, everything, number_of

LIMIT = timedelta(seconds=LONG)


class Seen(ForeachBatchSink[Any]):
    """Collects records, and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.batches: list[int] = []
        self._changed = threading.Condition()
        super().__init__(self._add)

    def _add(self, records: list[Any], batch_id: int) -> None:
        with self._changed:
            self.records += records
            self.batches.append(len(records))
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.records) >= count, LONG)


class Gate:
    """A gate before which functions wait. They cannot hold locks, so it is global."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()


GATE = Gate()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setattr(sys.modules[__name__], "GATE", Gate())
    return GATE


def block(number: int) -> int:
    GATE.entered.set()
    GATE.opened.wait(LONG)
    return number


def block_and_fail(number: int) -> int:
    return 1 // (block(number) - number)


def be_slow(number: int) -> int:
    GATE.entered.set()
    threading.Event().wait(0.0002)
    return number


def status_of(job: JobHandle) -> JobStatus:
    """Through a call, because a type checker assumes that the status does not change."""
    return job.status


def start(source: Any, sink: Any, function: Any = abs, *, runtime: Any = None, **options: Any) -> Any:
    env = ExecutionEnvironment.get_instance(runtime or LocalRuntime())
    env.from_source(source, "in").with_uid("in").map(function).with_uid("map").to_sink(sink).with_uid("out")
    return env.execute_async("numbers", **options)


def test_unbounded_job_runs_until_it_is_stopped() -> None:
    seen = Seen()
    job = start(DataGeneratorSource(abs, records_per_batch=5), seen)
    seen.wait_for(20)
    assert status_of(job) is JobStatus.RUNNING
    assert job.exception() is None
    assert job.await_termination(ms(1)) is False
    assert job.progress.operators["map"].records_in > 0
    job.stop()
    assert status_of(job) is JobStatus.STOPPED
    assert job.await_termination() is True
    assert seen.records == list(range(len(seen.records)))
    assert job.result().progress.operators["map"].records_in == len(seen.records)
    job.stop()
    assert repr(job) == "<job 'numbers': STOPPED>"


def test_source_with_splits_is_read_as_it_grows() -> None:
    spans, seen = Spans({"a": 3}, bounded=False), Seen()
    job = start(spans, seen, lambda item: item.number)
    seen.wait_for(3)
    spans.ends["a"] = 6
    seen.wait_for(6)
    job.stop()
    assert seen.records == [*range(6)]
    assert 0 not in seen.batches[1:]  # there are no micro-batches without data


def test_savepoint_of_a_running_job(tmp_path: Path) -> None:
    seen, after = Seen(), Seen()
    source = DataGeneratorSource(abs, records_per_batch=4)
    job = start(source, seen)
    path = job.savepoint(tmp_path / "a")
    assert status_of(job) is JobStatus.RUNNING
    last = job.stop_with_savepoint(tmp_path / "b")
    assert status_of(job) is JobStatus.STOPPED
    count = len(seen.records)
    for savepoint, first in ((path, None), (last, count)):
        after = Seen()
        again = start(source, after, savepoint=savepoint)
        after.wait_for(1)
        again.stop()
        assert after.records[0] == first if first is not None else 0 < after.records[0] <= count


def test_savepoint_of_a_job_that_fails(tmp_path: Path, gate: Gate) -> None:
    job = start(DataGeneratorSource(abs), Seen(), block_and_fail)
    gate.entered.wait()
    errors: list[BaseException] = []

    def take() -> None:
        try:
            job.savepoint(tmp_path / "a")
        except UserFunctionError as error:
            errors.append(error)

    taking = threading.Thread(target=take)
    taking.start()
    gate.opened.set()
    taking.join(LONG)
    assert len(errors) == 1
    with pytest.raises(UserFunctionError):
        job.await_termination(LIMIT)
    assert status_of(job) is JobStatus.FAILED


def test_failure_in_the_background_is_kept() -> None:
    job = start(DataGeneratorSource(abs, count=3), Seen(), lambda number: 1 // number)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        job.await_termination(LIMIT)
    assert status_of(job) is JobStatus.FAILED
    assert isinstance(job.exception(), UserFunctionError)
    job.stop()
    assert status_of(job) is JobStatus.FAILED


def test_interrupted_sink_fails_the_job() -> None:
    """No signal reaches the thread of a job, so a ``KeyboardInterrupt`` comes from the sink."""

    def interrupt(records: list[int], batch_id: int) -> None:
        raise KeyboardInterrupt

    job = start(DataGeneratorSource(abs, count=3), ForeachBatchSink(interrupt))
    with pytest.raises(JobError, match="Job 'numbers' failed: KeyboardInterrupt"):
        job.result()


def test_stop_cancels_a_long_micro_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """A micro-batch that is cancelled leaves nothing behind."""
    monkeypatch.setattr(base_job, "_CANCEL_SECONDS", LONG)
    seen = Seen()
    job = start(DataGeneratorSource(abs, count=10**6), seen, be_slow, checkpoint_location=tmp_path)
    assert gate.entered.wait(LONG)
    job.stop(ms(20))
    assert status_of(job) is JobStatus.STOPPED
    assert seen.records == []
    assert not list(tmp_path.glob("local/*.log"))


def test_function_that_blocks_cannot_be_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gate: Gate
) -> None:
    monkeypatch.setattr(base_job, "_CANCEL_SECONDS", 0.05)
    monkeypatch.setattr(job_waiting, "_SLICE_SECONDS", 0.01)
    monkeypatch.setattr(job_waiting, "_FIRST_LOG_SECONDS", 0.01)
    job = start(DataGeneratorSource(abs), Seen(), block)
    gate.entered.wait()
    with pytest.raises(JobError, match="was cancelled but has not ended: a function, source or sink has not returned"):
        job.stop(ms(50))
    assert "stop() has waited" in caplog.text
    gate.opened.set()
    assert job.await_termination(LIMIT)


def test_sink_may_stop_its_job(tmp_path: Path) -> None:
    jobs: list[Any] = []
    refused: list[ConfigurationError] = []
    started = threading.Event()

    def stop(records: list[int], batch_id: int) -> None:
        started.wait()
        try:
            jobs[0].savepoint(tmp_path / "a")
        except ConfigurationError as error:
            refused.append(error)
        jobs[0].stop()

    jobs.append(start(DataGeneratorSource(abs), ForeachBatchSink(stop)))
    started.set()
    assert jobs[0].await_termination(LIMIT)
    assert status_of(jobs[0]) is JobStatus.STOPPED
    assert "a sink or a listener cannot take one" in str(refused[0])


# --- Triggers --------------------------------------------------------------------------------------------------------


class Times(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Emits records with the time, and sets a timer 300 ms later for the first one."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        timers = ctx.processing_time_manager
        output.collect((record, timers.current_time()))
        if record == 0:
            timers.register_timer(timers.current_time() + 300)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((timestamp, ctx.processing_time_manager.current_time()))


def times(source: Any, trigger: Trigger | None, clock: Any, *, until: int) -> list[Any]:
    seen = Seen()
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=clock))
    env.from_source(source).key_by(lambda number: 0).process(Times()).to_sink(seen)
    job = env.execute_async(trigger=trigger)
    seen.wait_for(until)
    job.stop()
    return seen.records[:until]


def test_micro_batches_begin_at_multiples_of_the_interval() -> None:
    source = DataGeneratorSource(abs, records_per_batch=2)
    found = times(source, Trigger.processing_time(ms(100)), ManualClock(1030), until=8)
    assert [at for number, at in found if number < 300] == [1030, 1030, 1100, 1100, 1200, 1200, 1300, 1300]


def test_timers_fire_without_records() -> None:
    found = times(Spans({"a": 0}, bounded=False), None, ManualClock(), until=0)
    assert found == []
    source = DataGeneratorSource(abs, records_per_second=1)
    found = times(source, Trigger.processing_time(), ManualClock(), until=2)
    assert found == [(0, 1000), (1300, 1300)]


def test_rate_of_a_bounded_source_is_kept() -> None:
    clock = ManualClock()
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime(clock=clock)), CollectSink[Any]()
    source = DataGeneratorSource(abs, count=5, records_per_second=10)
    env.from_source(source).key_by(lambda number: 0).process(Times()).to_sink(sink)
    env.execute()
    assert [at for number, at in sink.results if number < 5] == [100, 200, 300, 400, 500]


@pytest.mark.parametrize(("options", "count"), [({"records_per_batch": 7}, 7), ({"records_per_second": 5}, 0)])
def test_generator_without_an_end_is_read_once_by_available_now(options: dict[str, Any], count: int) -> None:
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock())), CollectSink[int]()
    env.from_source(DataGeneratorSource(abs, **options)).to_sink(sink)
    env.execute(trigger=Trigger.available_now())
    assert sink.results == [*range(count)]


def test_records_per_batch_is_kept() -> None:
    env, seen = ExecutionEnvironment.get_instance(runtime="local"), Seen()
    env.from_collection(range(10), records_per_batch=4).to_sink(seen)
    env.execute()
    assert seen.batches == [4, 4, 2]


@pytest.mark.parametrize("source", [DataGeneratorSource(abs, count=5000), Spans({"a": 5000})])
def test_target_duration_divides_a_backlog(source: Any) -> None:
    seen = Seen()
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(step=ms(40))))
    env.from_source(source).to_sink(seen)
    env.execute(trigger=Trigger.available_now(target_batch_duration=ms(200)))
    assert len(seen.records) == 5000
    assert len(seen.batches) > 3


def test_batch_jobs_have_neither_checkpoint_nor_trigger(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_execution_mode("batch")
    choices: list[dict[str, Any]] = [{"checkpoint_location": tmp_path}, {"trigger": Trigger.available_now()}]
    for options in choices:
        env.from_collection([1]).to_sink(CollectSink())
        with pytest.raises(ConfigurationError, match="A BATCH job has neither a checkpoint nor a trigger"):
            env.execute(**options)


# --- Programs that end -----------------------------------------------------------------------------------------------

PROGRAM = """
import os, signal, sys, tempfile, threading
from datetime import timedelta
from dsv2 import ExecutionEnvironment
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource

def fails(number):
    return 1 // number

def start(name, map=abs, count=None, rate=None, print_text=sys.stdout.write):
    env = ExecutionEnvironment.get_instance(runtime="local")
    source = DataGeneratorSource(abs, count=count, records_per_batch=1, records_per_second=rate)
    write = ForeachBatchSink(lambda records, _: print_text(f"{name} {records}\\n"))
    env.from_source(source).map(map).to_sink(write)
    return env.execute_async(name)
"""
JOBS = """
job = start("forgotten")
job = start("without handle")
start("waited for").await_termination(timedelta(milliseconds=1))
assert start("looked at").exception() is None
start("saved").savepoint(tempfile.mkdtemp())
start("stopped").stop()
start("short", count=3, rate=40, print_text=lambda text: os.write(1, text.encode()))
start("failing", fails, count=3)._ends_within(None)
seen = start("seen", fails, count=3)
seen._ends_within(None)
assert seen.exception() is not None
"""
STILL_RAN = {"forgotten", "without handle", "waited for", "looked at", "saved"}


def run(program: Path, code: str) -> subprocess.CompletedProcess[str]:
    program.write_text(PROGRAM + code)
    command = [sys.executable, str(program)]
    # Some Pythons lose and garble what several threads print at a time (CPython issue 119506).
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LONG, check=False)


def test_program_that_ends_is_told_about_its_jobs(tmp_path: Path) -> None:
    done = run(tmp_path / "program.py", JOBS)
    assert done.returncode == 0, done.stderr
    told = re.findall(r"program.py:\d+: UnfinishedJobWarning: Job '(.*)' (was still running|failed)", done.stderr)
    assert Counter(told) == Counter([*((name, "was still running") for name in STILL_RAN), ("failing", "failed")])
    assert "Wait for it with job.result(), or end it with job.stop()." in done.stderr
    assert "Fatal" not in done.stderr  # no thread was stopped while it printed
    assert re.findall(r"short \[(\d)\]", done.stdout) == ["0", "1", "2"]


INTERRUPT = """
def interrupt(main):
    frame = None
    while frame is None:  # until the program waits
        frame = sys._current_frames()[main]
        while frame is not None and frame.f_code.co_name != "_ends_within":
            frame = frame.f_back
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, args=(threading.main_thread().ident,), daemon=True).start()
"""


def test_interrupted_wait_ends_the_program(tmp_path: Path) -> None:
    done = run(tmp_path / "program.py", f"{INTERRUPT}\nstart('long', count=10**9, rate=40).result()")
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr
    assert "UnfinishedJobWarning" not in done.stderr


# --- Triggers that read what is available -----------------------------------------------------------------------------


ENDS = {"a": 9, "b": 4, "c": 0}


class Ending(OneInputStreamProcessFunction[Any, Any]):
    """Forwards records and emits a record at the end of input."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def end_input(self, ctx: NonPartitionedContext[Any]) -> None:
        ctx.apply_to_all_partitions(lambda output, ctx: output.collect("end"))


def run_available(
    *sources: Source[Any, Any, Any], parallelism: int = 2, watermarks: Any = None, **options: Any
) -> list[Any]:
    """Return the output of the sources, each followed by a function that emits a record at the end of input."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(**options))
    env.set_parallelism(parallelism)
    sinks = [CollectSink[Any]() for _ in sources]
    for source, sink in zip(sources, sinks, strict=True):
        env.from_source(source, watermarks=watermarks).process(Ending()).with_parallelism(1).to_sink(sink)
    job = env.execute_async(trigger=Trigger.available_now())
    job.await_termination()
    assert job.status is JobStatus.FINISHED
    return [record for sink in sinks for record in sink.results]


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize(("batches", "limit"), [((), None), ((1,), None), ((3, 1), 2)])
def test_available_data_is_read_and_input_does_not_end(
    batches: tuple[int, ...], limit: int | None, checks: bool
) -> None:
    found = run_available(Spans(ENDS, bounded=False, limit=limit), batches=batches, checks=checks)
    assert sorted(found) == everything(ENDS)


def test_bounded_source_is_read_to_its_end() -> None:
    class Slow(Spans):
        """Has nothing to read at first."""

        looks = 0

        def refresh(self) -> None:
            self.looks += 1

        def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
            return super().advance(split, limit) if self.looks > 9 else None

    found = run_available(Spans({"a": 3}, bounded=False), Slow({"b": 2}), batches=(2,))
    assert found == [*everything({"a": 3, "b": 2}), "end"]


def test_collection_is_read_to_its_end() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(1,)))
    sink = CollectSink[Any]()
    env.from_source(Spans({"a": 1}, bounded=False)).to_sink(CollectSink())
    env.from_collection(range(5)).process(Ending()).to_sink(sink)
    env.execute(trigger=Trigger.available_now())
    assert sink.results == [0, 1, 2, 3, 4, "end"]


class Looking(Spans):
    """Discovers its ends in ``refresh``. By the time it is read, there is more."""

    def refresh(self) -> None:
        self.seen = dict(self.ends)

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        self.ends[split.name] += 1
        stop = min(split.position + 1, self.seen[split.name])
        return Portion(Span(split.name, stop, split.end)) if stop > split.position else None


def test_later_data_is_not_read() -> None:
    assert run_available(Looking({"a": 3}, bounded=False), parallelism=1) == everything({"a": 3})


def test_splits_that_wait_are_available(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_text(f"{number}\n")
    found = run_available(FilesSource(tmp_path, text_lines(int), files_per_batch=1, discovery_interval=ms(10**9)))
    assert found == [0, 1, 2, 3, 4]


def test_next_source_of_a_hybrid_is_available() -> None:
    found = run_available(HybridSource([Spans({"a": 5}), Spans({"b": 3}, bounded=False)]), batches=(1,), parallelism=1)
    assert found == [Item("a", number) for number in range(5)] + [Item("b", number) for number in range(3)]


@pytest.mark.parametrize("checks", [True, False])
def test_paused_splits_are_read_without_endless_waiting(checks: bool) -> None:
    strategy = EventTimeExtension.new_watermark_generator_builder(number_of)
    aligned = strategy.build_as_watermark_strategy().with_watermark_alignment("g", timedelta(milliseconds=2))
    clock = ManualClock(step=ms(300))
    options: dict[str, Any] = {"batches": (1,), "checks": checks, "clock": clock, "watermarks": aligned}
    both = {"a": 30, "b": 29}
    assert sorted(run_available(Spans(both, bounded=False), **options)) == everything(both)
    # The long source gets ahead, and the short one has no data that would let it continue.
    for bounded in (False, True):
        found = run_available(Spans({"long": 30}, bounded=bounded), Spans({"short": 3}, bounded=False), **options)
        assert [item for item in found if item.span == "short"] == everything({"short": 3})
        assert len(found) < 15


class Counted(Spans):
    """Counts the readers that are open."""

    open = 0

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[Item, Span]:
        Counted.open += 1
        return CountedReader(super().create_reader(ctx))


class CountedReader(SourceReader[Item, Span]):
    def __init__(self, reader: SourceReader[Item, Span]) -> None:
        self.reader = reader

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        for batch in self.reader.read(start, stop):
            yield from (RecordBatch([item]) for item in batch.rows())

    def close(self) -> None:
        Counted.open -= 1


def test_readers_are_closed_when_the_job_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    run, held = SplitReading.run, list[Any]()

    def kept(reading: SplitReading) -> Any:
        held.append(run(reading))  # otherwise the garbage collector would close it some time later
        return held[-1]

    monkeypatch.setattr(SplitReading, "run", kept)
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.from_source(Counted({"a": 3, "b": 3})).shuffle().map(lambda item: 1 // 0).to_sink(CollectSink())
    with pytest.raises(UserFunctionError):
        env.execute()
    assert Counted.open == 0
