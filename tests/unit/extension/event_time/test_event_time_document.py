"""The job of docs/event_time.md is correct with a backlog and restarts, and records are late by its rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment, Trigger
from dsv2.errors import JobError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink
from dsv2.testing import Crash, ManualClock, Pause, Stop, TestSource
from tests.documents import running_program
from tests.durations import ms
from tests.profiles import examples, nightly
from tests.spans import Span, Spans

SILENCE = timedelta(seconds=10)
EVERY = {"a": 1, "b": 1, "c": 8, "d": 1}  # seconds between the beats of a device
PAUSES = {"b": [(10, 40)], "c": [(16, 56), (80, 104)], "d": [(0, 30), (70, 81), (90, 101)]}
SECONDS = 120


@pytest.fixture(scope="module")
def document() -> Iterator[Any]:
    with running_program("docs/event_time.md") as module:
        yield module


def times() -> dict[str, list[int]]:
    """Return the times at which each device sends, in seconds."""
    return {
        device: [s for s in range(0, SECONDS, every) if not any(a < s < b for a, b in PAUSES.get(device, []))]
        for device, every in EVERY.items()
    }


def expected() -> Counter[tuple[str, str, int]]:
    """A device is silent if its next beat is more than ten seconds after the last one."""
    reports = []
    for device, own in times().items():
        for last, following in pairwise(own):
            if following - last > 10:
                reports += [(device, "is silent", 1000 * last), (device, "is back", 1000 * following)]
    return Counter(reports)


class Job:
    """Runs the job of the document again and again, with one clock and one checkpoint, until all input was read."""

    def __init__(self, document: Any, checkpoint: Path, parallelism: int = 1, batch: int | None = None) -> None:
        self.document = document
        self.checkpoint = checkpoint
        self.parallelism = parallelism
        self.batch = batch
        self.clock = ManualClock(5_000_000)
        self.reports: list[Any] = []

    def run(self, items: list[Any]) -> None:
        reports = CollectSink[Any]()
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=self.clock, checks=False))
        env.set_parallelism(self.parallelism)
        source = TestSource[Any](items, records_per_batch=self.batch)
        self.document.build(env.from_source(source).with_uid("beats"), SILENCE, reports)
        try:
            every = Trigger.processing_time(timedelta(seconds=1))
            env.execute("heartbeats", checkpoint_location=self.checkpoint, trigger=every)
        finally:
            self.reports += reports.results

    def found(self) -> Counter[tuple[str, str, int]]:
        return Counter((report.who, report.what, report.since) for report in self.reports)


def beats(document: Any) -> list[Any]:
    sent = [document.Beat(device, 1000 * second) for device, own in times().items() for second in own]
    return sorted(sent, key=document.time_of_beat)


@pytest.mark.parametrize("batch", [None, 1, 50])
@pytest.mark.parametrize("parallelism", [2, *nightly(1, 3)])
def test_reports_do_not_depend_on_micro_batches(document: Any, tmp_path: Path, parallelism: int, batch: Any) -> None:
    job = Job(document, tmp_path, parallelism, batch)
    job.run(beats(document))
    assert job.found() == expected()


def test_silence_before_the_last_beat(document: Any, tmp_path: Path) -> None:
    """Event time passes it only when the input ends."""
    job = Job(document, tmp_path)
    job.run([document.Beat("b", 0), document.Beat("b", 10_050)])
    assert job.found() == Counter([("b", "is silent", 0), ("b", "is back", 10_050)])


@pytest.mark.parametrize("interruption", [Stop(), Crash()], ids=["stop", "crash"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_reports_do_not_depend_on_restarts(
    document: Any, tmp_path: Path, parallelism: int, interruption: Stop | Crash
) -> None:
    """Also within silences, and for longer than a silence."""
    items: list[Any] = beats(document)
    places = [len(items) * part // 7 for part in range(1, 7)]
    for place in reversed(places):
        items.insert(place, interruption)
    job = Job(document, tmp_path, parallelism, batch=40)
    for _ in places:
        if isinstance(interruption, Stop):
            job.run(items)
        else:
            with pytest.raises(JobError, match="intended crash"):
                job.run(items)
        job.clock.advance(timedelta(hours=1))
    job.run(items)
    assert job.found() == expected(), "and nobody is told that all are silent"


def test_only_a_silence_of_the_running_job_is_one(document: Any, tmp_path: Path) -> None:
    first, second, third, fourth, fifth = (document.Beat("a", 1_000 * second) for second in range(5))
    short, long = Pause(timedelta(seconds=7)), Pause(timedelta(seconds=12))
    job = Job(document, tmp_path)
    items = [first, Stop(), second, short, third, Stop(), fourth, long, fifth]
    for reports in ([], [], [("all", "are silent"), ("all", "are back")]):
        job.run(items)
        assert [(report.who, report.what) for report in job.reports] == reports
        job.clock.advance(timedelta(hours=1))


# --- Late records -----------------------------------------------------------------------------------------------------


STEP, GAP, BACK = 10, 25, 95


class Stamped(NamedTuple):
    span: str
    number: int
    at: int


def at(number: int) -> int:
    """Every seventh record is earlier than the previous ones of its split, but never by more than ``BACK``."""
    return number * STEP - (BACK if number % 7 == 6 else 0)


class Files(Spans):
    """Three splits of the same time, like three files of one day."""

    def __init__(self) -> None:
        super().__init__({"a": 24, "b": 24, "c": 24}, run=5)

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Any]]:
        for run in super().read(start, stop):
            yield RecordBatch([Stamped(*item, at(item.number)) for item in run.records])


class Counting(OneInputWindowStreamProcessFunction[Stamped, tuple[str, int]]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(("in windows", len(window.get_all_records())))

    def on_late_record(self, record: Stamped, output: Any, ctx: Any) -> None:
        output.collect(("late", 1))


def counts(*, slack: int, parallelism: int, batch: int | None, seed: int) -> Counter[str]:
    env = ExecutionEnvironment.get_instance(
        LocalRuntime(seed=seed, batches=() if batch is None else (batch,), checks=False)
    )
    env.set_parallelism(parallelism)
    builder: Any = EventTimeExtension.new_watermark_generator_builder(lambda record: record.at)
    builder.with_max_out_of_order_time(timedelta(milliseconds=slack)).per_event_watermark()
    stream = env.from_source(Files(), watermarks=builder.build_as_watermark_strategy())
    sink = CollectSink[tuple[str, int]]()
    stream.key_by(lambda record: record.span).window(WindowStrategy.session(ms(GAP))).process(Counting()).to_sink(sink)
    env.execute()
    found = Counter[str]()
    for where, count in sink.results:
        found[where] += count
    return found


@examples(13)
@given(parallelism=st.integers(1, 3), batch=st.none() | st.sampled_from([4, 9]), seed=st.integers(0, 1000))
def test_record_in_order_of_its_channel_is_never_late(parallelism: int, batch: int | None, seed: int) -> None:
    assert counts(slack=BACK, parallelism=parallelism, batch=batch, seed=seed) == {"in windows": 72}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_lateness_depends_on_the_other_channels(parallelism: int) -> None:
    settings = [(batch, seed) for batch in (None, 4) for seed in range(3)]
    found = [counts(slack=0, parallelism=parallelism, batch=batch, seed=seed) for batch, seed in settings]
    assert all(sum(each.values()) == 72 for each in found)  # no record is lost
    assert len({each["late"] for each in found}) > 1
