"""Timestamps of records: their origin, how they are sent, and where they are visible."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.model.record_batch import RecordBatch, Timestamps
from dsv2.runtime.exchange.frames import ChannelWriter, Frame
from dsv2.sinks import CollectSink
from dsv2.spi import greatest_timestamp
from dsv2.testing import OneInputHarness, StampedRecord, TwoInputBroadcastHarness, TwoOutputHarness
from dsv2.watermark import WatermarkHandlingResult, new_builder
from tests.durations import ms
from tests.support import Driver, broadcast_side, driven, local_environment, one_input, pass_on, two_output

W = new_builder("w").type_long().build()
EVENT_TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
both = pytest.mark.parametrize("key", [None, str], ids=["plain", "keyed"])


def emit_stamped(record: Any, output: Any, ctx: Any) -> None:
    output.collect((record, ctx.timestamp))


@both
@pytest.mark.parametrize("timestamp", [None, 5])
def test_overwritten_timestamp_applies_to_one_record(key: Any, timestamp: int | None) -> None:
    """In Flink it stays in effect: "c" would have 9 as well."""

    def process(record: Any, output: Any, ctx: Any) -> None:
        output.collect("a")
        output.collect_and_overwrite_timestamp("b", 9)
        output.collect("c")

    harness = OneInputHarness[str, str](one_input(process_record=process), key=key)
    harness.input.push("x", timestamp=timestamp)
    harness.input.push("y")
    assert harness.output.timestamps == [timestamp, 9, timestamp, None, 9, None]


@both
def test_both_outputs_inherit_the_timestamp(key: Any) -> None:
    def process(record: Any, first: Any, second: Any, ctx: Any) -> None:
        first.collect(record)
        second.collect_and_overwrite_timestamp(record, 9)
        second.collect((record, ctx.timestamp))

    harness = TwoOutputHarness[str, Any, Any](two_output(process_record=process), key=key)
    harness.input.push_all([StampedRecord("a", 5), StampedRecord("b")])
    assert harness.first_output.elements == [StampedRecord("a", 5), StampedRecord("b")]
    assert harness.second_output.timestamps == [9, 5, 9, None]


@pytest.mark.parametrize("key", [None, str])
def test_output_for_a_broadcast_record_has_its_timestamp(key: Any) -> None:
    """In Flink it has the timestamp of the previous record of any input."""
    function = broadcast_side(
        process_record_from_non_broadcast_input=emit_stamped,
        process_record_from_broadcast_input=lambda record, ctx: ctx.apply_to_all_partitions(
            lambda output, partition: emit_stamped(record, output, partition)
        ),
    )
    harness = TwoInputBroadcastHarness[str, str, Any](function, key=key)
    harness.non_broadcast_input.push("a", timestamp=5)
    harness.broadcast_input.push("rule", timestamp=7)
    harness.broadcast_input.push("rule")
    assert harness.output.elements == [
        StampedRecord(("a", 5), 5),
        StampedRecord(("rule", 7), 7),
        StampedRecord(("rule", None)),
    ]


class Everywhere(OneInputEventTimeStreamProcessFunction[Any, Any]):
    """Emits from every callback. Each record registers both kinds of timers, for time 10."""

    def init_event_time_process_function(self, manager: Any) -> None:
        self.event_time = manager

    def declare_watermarks(self) -> Any:
        return [W, EVENT_TIME]

    def open(self, ctx: Any) -> None:
        self.emit("open", ctx)

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.event_time.register_timer(10)
        ctx.processing_time_manager.register_timer(10)
        output.collect(f"record {ctx.timestamp}")

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect("watermark")
        self.emit("watermark", ctx)
        return WatermarkHandlingResult.POLL

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(f"event timer {ctx.timestamp}")

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(f"processing timer {ctx.timestamp}")

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect("event time")

    def end_input(self, ctx: Any) -> None:
        self.emit("end", ctx)

    def emit(self, what: str, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(f"{what} {partition.timestamp}"))


def test_only_records_and_event_timers_have_a_timestamp() -> None:
    harness = OneInputHarness[Any, Any](Everywhere(), key=str)
    harness.input.push("a", timestamp=5)
    harness.input.push_watermark(W.new_watermark(1))
    harness.input.push_event_time(20)
    harness.input.push("a")
    harness.advance_clock(ms(10))
    harness.end()
    emitted = [(stamped.record, stamped.timestamp) for stamped in harness.output.stamped_records]
    assert emitted == [
        ("record 5", 5),
        ("watermark", None),
        ("watermark None", None),
        ("event timer 10", 10),
        ("event time", None),
        ("record None", None),
        ("processing timer None", None),
        ("event timer 10", 10),
        ("event time", None),
        ("end None", None),
    ]


@pytest.mark.parametrize("aligned", [False, True])
def test_signals_do_not_change_timestamps(aligned: bool) -> None:
    """An aligned watermark holds back later elements until the other channel has sent it too."""
    w = new_builder("w").type_long().combine_wait_for_all_channels(True).aligned(aligned).build()
    harness = OneInputHarness[Any, Any](one_input(process_record=emit_stamped), channels=2, declarations=[w])
    stamped = [StampedRecord("a", 1), StampedRecord("b"), StampedRecord("c", 3), StampedRecord("d", 4)]
    harness.input.push_all([*stamped[:1], w.new_watermark(1), *stamped[1:3], w.new_watermark(2), *stamped[3:]])
    assert len(harness.output.records) == (1 if aligned else 4)
    for value in (1, 2):
        harness.input.push_watermark(w.new_watermark(value), channel=1)
    assert harness.output.timestamps == [1, None, 3, 4]
    assert harness.output.records == [(element.record, element.timestamp) for element in stamped]


def keyed_behind_a_run() -> Driver:
    """A function that takes batches, upstream of two keyed subtasks."""
    env = local_environment()
    mapped = env.from_collection(list[int]()).with_parallelism(2).map(abs).with_uid("map").with_parallelism(1)
    mapped.key_by(int).process(one_input()).with_uid("keyed").with_parallelism(2).to_sink(CollectSink())
    return Driver(env.build_plan(), "map").open()


def test_frames_with_and_without_timestamps_are_joined() -> None:
    """On Spark the output of one micro-batch becomes one frame."""
    driver = keyed_behind_a_run()
    given_timestamps: list[Timestamps] = [None, [10, 20, None, 40], None, [50, 60, 70, 80]]
    for timestamps in given_timestamps:
        driver.subtask.receive(0, RecordBatch([1, 2, 3, 4], timestamps), [])
    driver.subtask.flush()
    frames = [frame for frame in driver.frames if frame.batch.records]
    stamps = {1: (None, 10, None, 50), 2: (None, 20, None, 60), 3: (None, None, None, 70), 4: (None, 40, None, 80)}
    for number in range(1, 5):
        assert [timestamp for record, timestamp in in_order(frames) if record == number] == list(stamps[number])
    assert len(in_order(frames)) == 16


def in_order(frames: list[Frame]) -> list[tuple[Any, int | None]]:
    return [pair for frame in frames for pair in pairs(frame)]


def test_no_timestamps_are_sent_if_there_are_none() -> None:
    driver = keyed_behind_a_run()
    driver.subtask.receive(0, RecordBatch([1, 2, 3, 4]), [])
    plain = driven(lambda numbers: numbers.process(one_input(process_record=pass_on)).with_uid("f"))
    plain.subtask.receive(0, RecordBatch([1], [5]), [])
    plain.subtask.flush()
    plain.subtask.receive(0, RecordBatch([1]), [])
    for subtask in (driver.subtask, plain.subtask):
        subtask.flush()
    assert [frame.batch.timestamps for frame in driver.frames if frame.batch.records] == [None, None]
    assert [frame.batch.timestamps for frame in plain.frames if frame.batch.records] == [[5], None]


RECORDS = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 99), st.sampled_from(["one", "run"])))


@given(RECORDS, st.data())
def test_channel_keeps_each_record_with_its_timestamp(
    records: list[tuple[int, int | None, str]], data: st.DataObject
) -> None:
    """No matter whether records are added one by one or in batches, and where the frame is split."""
    writer = ChannelWriter(0, 0, 0)
    for record, timestamp, how in records:
        if how == "run":
            writer.extend(RecordBatch([record, record], None if timestamp is None else [timestamp, timestamp]))
        elif timestamp is None:
            writer.append(record)
        else:
            writer.append_stamped(record, timestamp)
    frames: list[Frame] = []
    writer.flush(frames.append)
    given_records = [pair for *pair, how in records for _ in range(2 if how == "run" else 1)]
    if not given_records:
        assert frames == []
        return
    (frame,) = frames
    at = data.draw(st.integers(0, len(frame.batch.records)))
    parts = frame.split(at)
    for some in ([frame], parts):
        assert [list(pair) for part in some for pair in pairs(part)] == given_records
    if all(timestamp is None for _, timestamp in given_records):
        assert frame.batch.timestamps is None, "which costs nothing"


def pairs(frame: Frame) -> list[tuple[Any, int | None]]:
    return list(frame.batch.pairs())


def test_integers_that_add_up_to_something_else() -> None:
    class Odd(int):
        def __radd__(self, other: object) -> Any:
            return "a sum"

    assert greatest_timestamp(["a", "b"], [Odd(5), Odd(7)]) == 7
