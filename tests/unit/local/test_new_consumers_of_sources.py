"""Operators that a start from a savepoint adds after a source receive what the source has sent before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobHandle, JobStatus, Trigger
from dsv2.checkpoint.record import SourcePosition
from dsv2.extension.event_time import (
    EventTimeExtension,
    OneInputEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
)
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK
from dsv2.runtime.sources.offsets import NOTHING_SENT
from dsv2.runtime.sources.sent_watermarks import sent_before
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource, SourceReader, SourceReaderContext
from dsv2.testing import ManualClock, Stop, TestSource
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN
from tests.spans import Item, Span, Spans


class Sees(OneInputEventTimeStreamProcessFunction[Any, Any]):
    """Emits event time and the end of its input, and no records."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        pass

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(timestamp)

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("end"))


class SeesTimes(TwoInputNonBroadcastEventTimeStreamProcessFunction[Any, Any, Any]):
    """Emits event time, and no records."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        pass

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None:
        pass

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(timestamp)


class SeesTwo(SeesTimes):
    """Also emits the end of its first input."""

    def end_first_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("end"))


class Job:
    """A job with the source ``source`` and one that stops it, with and without a consumer of both."""

    def __init__(self, source: Any, watermarks: Any = None) -> None:
        self._source = source
        self._watermarks = watermarks

    def run(
        self, start: Path | None = None, consume: Any = None, *, stop: bool, parallelism: int = 1
    ) -> tuple[JobHandle, list[Any]]:
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2], clock=ManualClock()))
        env.set_parallelism(parallelism)
        source: Any = env.from_source(self._source, watermarks=self._watermarks).with_uid("source")
        source.to_sink(CollectSink()).with_uid("records")
        items = [*range(8), Stop(), *range(8, 20)] + [Stop()] * stop
        others: Any = env.from_source(TestSource[Any](items)).with_uid("numbers")
        generator: Any = EventTimeExtension.new_watermark_generator_builder(lambda number: 1000 + number)
        others = others.process(generator.per_event_watermark().build_as_process_function()).with_uid("times")
        others.to_sink(CollectSink()).with_uid("others")
        sink = CollectSink[Any]()
        if consume is not None:
            consume(source, others).to_sink(sink).with_uid("seen")
        job = env.execute_async("job", savepoint=start, trigger=Trigger.available_now())
        job.await_termination()
        return job, sink.results


def alone(source: Any, others: Any) -> Any:
    return source.shuffle().process(Sees()).with_uid("new").with_parallelism(3)


def directly(source: Any, others: Any) -> Any:
    return source.process(Sees()).with_uid("new")


def after_map(source: Any, others: Any) -> Any:
    return source.map(lambda record: record).with_uid("map").shuffle().process(Sees()).with_uid("new")


def together(source: Any, others: Any) -> Any:
    return source.shuffle().connect_and_process(others.shuffle(), SeesTwo()).with_uid("new")


@pytest.mark.parametrize("source", [CollectionSource([1, 2, 3]), Spans({"a": 3})], ids=["indexed", "splits"])
@pytest.mark.parametrize("consume", [alone, directly, after_map], ids=["shuffled", "forward", "after a map"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_end_of_a_source(source: Any, consume: Any, parallelism: int, tmp_path: Path) -> None:
    job = Job(source)
    job.run(stop=True)[0].savepoint(tmp_path / "a")
    finished, seen = job.run(tmp_path / "a", consume, stop=False, parallelism=parallelism)
    assert finished.status is JobStatus.FINISHED
    ends = 3 if consume is alone else parallelism
    assert sorted(seen, key=str) == [LONG_MAX] * ends + ["end"] * ends


def test_ended_source_does_not_hold_event_time_back(tmp_path: Path) -> None:
    job = Job(Spans({"a": 3}))
    job.run(stop=True)[0].savepoint(tmp_path / "a")
    _, seen = job.run(tmp_path / "a", together, stop=True)
    assert (seen[0], seen[-1]) == ("end", 1018)


def test_operator_before_a_consumer_of_an_ended_source(tmp_path: Path) -> None:
    def times(source: Any, others: Any) -> Any:
        return source.shuffle().connect_and_process(others.shuffle(), SeesTimes()).with_uid("new")

    def with_map(source: Any, others: Any) -> Any:
        return times(source.map(lambda record: record).with_uid("map"), others)

    job = Job(Spans({"a": 3}))
    job.run(consume=times, stop=True)[0].savepoint(tmp_path / "a")
    _, seen = job.run(tmp_path / "a", with_map, stop=True)
    assert seen[-1] == 1018


class Waits(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    """Registers a timer for each record of its first input."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        ctx.processing_time_manager.register_timer(1000)

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None:
        pass

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect("timer")

    def end_second_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("end"))


def test_timers_that_were_due_fire_before_the_end_of_a_new_sender(tmp_path: Path) -> None:
    def run(now_ms: int, sender: str, start: Path | None = None) -> tuple[JobHandle, list[Any]]:
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2], clock=ManualClock(now_ms)))
        sources: dict[str, Any] = {
            "live": env.from_source(TestSource[Any]([1, 2, 3, 4, Stop(), 5])).with_uid("live"),
            "short": env.from_collection([1]).with_uid("short"),
        }
        for uid, source in sources.items():
            source.to_sink(CollectSink()).with_uid(f"records of {uid}")
        first, second = (sources[uid].key_by(lambda number: number % 2) for uid in ("live", sender))
        sink = CollectSink[Any]()
        first.connect_and_process(second, Waits()).with_uid("waits").to_sink(sink).with_uid("out")
        job = env.execute_async("timers", savepoint=start)
        job.await_termination()
        return job, sink.results

    stopped, seen = run(0, "live")
    assert seen == []
    stopped.savepoint(tmp_path / "a")
    assert run(2000, "short", tmp_path / "a")[1][:4] == ["timer", "timer", "end", "end"]


class ByName:
    """Assigns split "a" to reader 0 and split "b" to reader 1."""

    def assign(self, splits: Any, held: Any, /) -> list[int]:
        return ["ab".index(split.name) for split in splits]


def test_channel_that_has_ended_becomes_the_only_one(tmp_path: Path) -> None:
    def shuffled(source: Any, others: Any) -> Any:
        return source.shuffle().process(Sees()).with_uid("sees")

    def forward(source: Any, others: Any) -> Any:
        return source.process(Sees()).with_uid("sees")

    job = Job(Spans({"a": 2, "b": 40}, limit=2, assigner=ByName()))
    stopped, seen = job.run(consume=shuffled, stop=True, parallelism=2)
    assert seen == [], "subtasks wait for the end of reader 1"
    stopped.savepoint(tmp_path / "a")
    _, seen = job.run(tmp_path / "a", forward, stop=True, parallelism=2)
    assert seen == [LONG_MAX, "end"], "subtask 0 only has the channel of reader 0"


class Idling(Spans):
    """Its readers declare themselves idle."""

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[Item, Span]:
        return _Idling(self, ctx)


class _Idling(SourceReader[Item, Span]):
    def __init__(self, source: Spans, ctx: SourceReaderContext) -> None:
        self._source, self._ctx = source, ctx

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        self._ctx.mark_active()
        yield from self._source.read(start, stop)
        self._ctx.mark_idle()


def test_event_time_of_a_source(tmp_path: Path) -> None:
    times: Any = EventTimeExtension.new_watermark_generator_builder(lambda item: item.number).per_event_watermark()
    job = Job(Spans({"a": 4}, limit=2, bounded=False), times.build_as_watermark_strategy())
    job.run(stop=True)[0].savepoint(tmp_path / "a")
    assert job.run(tmp_path / "a", together, stop=True)[1] == [2]


def test_idle_source_does_not_hold_event_time_back(tmp_path: Path) -> None:
    times: Any = EventTimeExtension.new_watermark_generator_builder(lambda item: item.number).per_event_watermark()
    job = Job(Idling({"a": 4}, limit=2, bounded=False), times.build_as_watermark_strategy())
    job.run(stop=True)[0].savepoint(tmp_path / "a")
    assert job.run(tmp_path / "a", together, stop=True)[1][-1] == 1018


def test_source_without_watermarks_leaves_event_time_to_the_clock(tmp_path: Path) -> None:
    by_clock: Any = EventTimeExtension.new_watermark_generator_builder(lambda item: item.number).no_watermark()
    job = Job(Spans({"a": 4}, limit=2, bounded=False), by_clock.build_as_watermark_strategy())
    job.run(stop=True)[0].savepoint(tmp_path / "a")
    assert job.run(tmp_path / "a", together, stop=True)[1][-1] == 1018


def reader(time: int | None, *, idle: bool = False, ended: int | None = None, sender: Any = None) -> dict[str, Any]:
    state = [False, False, LONG_MIN if time is None else time, False] if sender is None else sender
    return {"sender": state, "idle": idle, "ended": ended}


END_CONTROL = (0, END, "", 0)
IDLE_CONTROL = (0, STATUS, "", True)


@pytest.mark.parametrize(
    ("parallelism", "readers", "sent"),
    [
        (2, [reader(5), reader(None, idle=True)], [[(0, WATERMARK, EVENT_TIME, 7)], [IDLE_CONTROL]]),
        (2, [reader(5, ended=3), reader(6, ended=4)], [[END_CONTROL], [END_CONTROL]]),
        (3, [reader(5, ended=3), reader(6, ended=4)], [[END_CONTROL]] * 3),
        # Readers that go on with other splits have sent nothing on their new channels.
        (1, [reader(5), reader(6, ended=4)], [[]]),
        (1, [reader(5, idle=True), reader(6, idle=True)], [[]]),
    ],
)
def test_readers_whose_number_may_change(parallelism: int, readers: list[Any], sent: list[Any]) -> None:
    env = ExecutionEnvironment.get_instance("local")
    source: Any = env.from_source(Spans({"a": 3})).with_uid("source").with_parallelism(parallelism)
    source.to_sink(CollectSink())
    reports = [
        {"batch": 8, "subtask": 0, "sender": [False, False, 7, False]},
        {"batch": 7, "subtask": 1, "sender": [False, False, 1, False]},  # of an earlier micro-batch
    ]
    position = SourcePosition({"batch": 8, "readers": readers}, reports)
    found = sent_before(env.build_plan(), {"source": position, "removed": position})
    assert [one.controls() for one in found.pop("source")] == sent
    assert found == {}


def test_source_that_has_not_started_has_sent_nothing() -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).with_uid("source").to_sink(CollectSink())
    (sent,) = sent_before(env.build_plan(), {"source": SourcePosition({"position": 0})})["source"]
    assert (sent.time, sent.controls()) == (NOTHING_SENT, [])
