"""A subtask that is restarted between any two frames continues unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.sinks import CollectSink
from dsv2.watermark import WatermarkHandlingResult, new_builder
from tests.support import ACTIVE, ENDED, IDLE, Driver, KeptEntries, local_environment, two_inputs, watermark

Frames: TypeAlias = list[tuple[int, list[Any]]]

LONG = new_builder("w").type_long().combine_function_min().combine_wait_for_all_channels(True).build()
ACROSS = new_builder("across").type_long().combine_across_inputs(True).build()
ALIGNED = new_builder("aligned").type_bool().combine_wait_for_all_channels(True).aligned().build()
SIGNALS = [*map(watermark, range(3)), watermark(1, "across"), watermark(True, "aligned"), IDLE, ACTIVE]


class Remembering(OneInputStreamProcessFunction[int, Any]):
    """Has state of every kind: fields, keys, a counter. Emits all of it at every watermark."""

    def __init__(self) -> None:
        self.per_key: dict[int, list[int]] = {}
        self.latest: list[int] = []

    def open(self, ctx: Any) -> None:
        self.records = ctx.metric_group.counter("records")
        self.opened = True

    def declare_watermarks(self) -> Any:
        return [LONG, ACROSS, ALIGNED]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.records.inc()
        self.latest = self.per_key.setdefault(ctx.state_manager.current_key, [])
        self.latest.append(record)
        output.collect((record, len(self.latest)))

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        self.latest.append(-watermark.value)
        ctx.apply_to_all_partitions(self.emit_state)
        return WatermarkHandlingResult.PEEK

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(self.emit_state)

    def emit_state(self, output: Any, ctx: Any) -> None:
        key = ctx.state_manager.current_key
        output.collect((key, tuple(self.per_key[key]), self.opened))


def chain(entries: KeptEntries | None = None) -> Driver:
    """A keyed function with two channels, a second one chained to it, and round-robin over three subtasks."""
    env = local_environment()
    numbers = env.from_collection(list[int]()).with_parallelism(2)
    stream = numbers.key_by(lambda number: number % 3).process(Remembering()).with_uid("f")
    stream = stream.process(lambda record, output, ctx: output.collect(record))
    stream.to_sink(CollectSink()).with_uid("out").with_parallelism(3)
    return Driver(env.build_plan(), "f", entries=entries).open()


def pair() -> Driver:
    """Two inputs of two channels each, whose watermarks are combined."""
    env = local_environment()
    numbers = env.from_collection(list[int]()).with_parallelism(2)
    function = two_inputs(
        declare_watermarks=lambda: [LONG, ACROSS, ALIGNED],
        process_record_from_first_input=lambda record, output, ctx: output.collect(("first", record)),
        process_record_from_second_input=lambda record, output, ctx: output.collect(("second", record)),
    )
    stream = numbers.connect_and_process(numbers, function).with_uid("f")
    stream.to_sink(CollectSink()).with_uid("out").with_parallelism(3)
    return Driver(env.build_plan(), "f").open()


@st.composite
def histories(draw: st.DrawFn, channels: int) -> Frames:
    """Random frames, followed by the end of every channel."""
    element = st.integers(0, 9) | st.sampled_from(SIGNALS)
    frames = draw(st.lists(st.tuples(st.integers(0, channels - 1), st.lists(element, max_size=5)), max_size=10))
    return frames + [(channel, [ENDED]) for channel in draw(st.permutations(range(channels)))]


def counted(driver: Driver) -> list[SubtaskReport]:
    """The progress without times."""
    return [replace(report, user_ns=0) for report in driver.subtask.progress()]


def assert_restarts_change_nothing(build: Callable[[], Driver], frames: Frames, restarts: list[bool]) -> None:
    steady, restarted = build(), build()
    for number, (channel, sequence) in enumerate(frames):
        for driver in (steady, restarted):
            driver.send(*sequence, channel=channel)
        if restarts[number % len(restarts)]:
            restarted.restart()
    for subtask in range(3):
        assert restarted.sent_to("out", subtask) == steady.sent_to("out", subtask)
    assert counted(restarted) == counted(steady)
    assert steady.subtask.ended


RESTARTS = st.lists(st.booleans(), min_size=1, max_size=5)


@given(histories(channels=2), RESTARTS)
def test_chain_with_state(frames: Frames, restarts: list[bool]) -> None:
    assert_restarts_change_nothing(chain, frames, restarts)


@given(histories(channels=2), RESTARTS)
def test_chain_with_state_in_map_entries(frames: Frames, restarts: list[bool]) -> None:
    assert_restarts_change_nothing(lambda: chain(KeptEntries()), frames, restarts)


@given(histories(channels=4), RESTARTS)
def test_two_inputs(frames: Frames, restarts: list[bool]) -> None:
    assert_restarts_change_nothing(pair, frames, restarts)


@given(histories(channels=2))
def test_equal_frames_give_equal_frames_and_bytes(frames: Frames) -> None:
    """A retried task repeats itself."""
    first, second = chain(), chain()
    for driver in (first, second):
        for channel, sequence in frames:
            driver.send(*sequence, channel=channel)
    assert first.subtask.snapshot() == second.subtask.snapshot()
    assert [vars_of(frame) for frame in first.frames] == [vars_of(frame) for frame in second.frames]


def vars_of(frame: Any) -> list[Any]:
    return [getattr(frame, name) for name in frame.__slots__]
