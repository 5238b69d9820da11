"""One input gate: combines what its channels send and passes it to the operator."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from dsv2.errors import InternalError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.gate import InputGate
from dsv2.watermark import LongWatermarkBuilder, WatermarkDeclaration, new_builder
from dsv2.watermark.event_time import EVENT_TIME
from tests.support import ACTIVE, ENDED, IDLE, STARTED, Signal, packed, watermark


def long(identifier: str) -> LongWatermarkBuilder:
    return new_builder(identifier).type_long()


DECLARATIONS: dict[str, WatermarkDeclaration] = {
    "w": long("w").combine_function_min().build(),
    "all": long("all").combine_function_max().combine_wait_for_all_channels(True).build(),
    "aligned": long("aligned").combine_function_max().combine_wait_for_all_channels(True).aligned().build(),
    "and": new_builder("and").type_bool().combine_wait_for_all_channels(True).aligned().build(),
    EVENT_TIME: EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
}


class Gate:
    """A gate and its output as its listener receives it: records, watermarks as pairs, "idle", "active" and "end"."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.received: list[Any] = []
        self.gate = InputGate(5, channels, DECLARATIONS, self)

    def send(self, channel: int, *sequence: Any) -> None:
        self.gate.receive(channel, *packed(sequence))

    def new_output(self) -> list[Any]:
        """Return the output since the last call."""
        received, self.received = self.received, []
        return received

    def restart(self) -> None:
        state = copy.deepcopy(self.gate.snapshot())
        self.gate = InputGate(5, self.channels, DECLARATIONS, self)
        self.gate.restore(state)

    def rescale(self, channels: int) -> None:
        """Restart with another number of channels."""
        self.channels = channels
        self.restart()

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        assert input_index == 5
        assert batch
        self.received += [r if t is None else (r, t) for r, t in batch.pairs()]

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        assert input_index == 5
        self.received.append((identifier, value))

    def on_status(self, input_index: int, idle: bool) -> None:
        assert input_index == 5
        self.received.append("idle" if idle else "active")

    def on_end(self, input_index: int) -> None:
        assert input_index == 5
        self.received.append("end")

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        assert input_index == 5
        raise CrossingError(waiting)


class CrossingError(Exception):
    """Raised by the operator behind the gate."""


def aligned(value: int) -> Signal:
    return watermark(value, "aligned")


def test_records_without_controls_are_not_copied() -> None:
    """All records take this path."""
    gate, batch = Gate(2), RecordBatch(["a", "b"])
    received: list[Any] = []
    gate.on_records = lambda input_index, batch: received.append(batch)  # type: ignore[method-assign]
    gate.gate.receive(1, batch, [])
    assert received[0] is batch


def test_start_signal_is_not_forwarded() -> None:
    gate = Gate(1)
    gate.send(0, STARTED, "a")
    assert gate.new_output() == ["a"]


@pytest.mark.parametrize("signal", [Signal(17), Signal(-1, "w", 3)])
def test_unknown_control_element_is_an_internal_error(signal: Signal) -> None:
    with pytest.raises(InternalError, match="Unknown control element"):
        Gate(1).send(0, signal)


class TestCrossing:
    """In Flink the job hangs and holds the records forever."""

    @pytest.mark.parametrize("restart", [False, True])
    def test_crossing_watermarks_are_reported_with_their_channels(self, restart: bool) -> None:
        gate = Gate(3)
        gate.send(0, aligned(1), "a", watermark(True, "and"), "b")
        gate.send(1, "c")
        if restart:
            gate.restart()
        with pytest.raises(CrossingError) as caught:
            gate.send(2, watermark(True, "and"), "d", aligned(2), "e")
        assert caught.value.args == ({0: "aligned", 2: "and"},)


class TestEnd:
    def test_second_end_is_an_internal_error(self) -> None:
        gate = Gate(2)
        gate.send(0, ENDED)
        with pytest.raises(InternalError, match="Channel 0 of input 5 ended twice"):
            gate.send(0, ENDED)
        gate.send(0)
        with pytest.raises(InternalError, match="Channel 0 of input 5 sent records after its end"):
            gate.send(0, "a")
        gate.send(0)
        with pytest.raises(InternalError, match="Channel 0 of input 5 sent records after its end"):
            gate.send(0, "a")


# --- Another number of channels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 5])
def test_event_time_does_not_go_back_with_new_channels(channels: int) -> None:
    gate = Gate(3)
    for channel in range(3):
        gate.send(channel, watermark(10 + channel, EVENT_TIME), watermark(7, "w"))
    gate.send(2, IDLE)
    assert gate.new_output() == [("w", 7), (EVENT_TIME, 10)]
    gate.rescale(channels)
    for channel in range(channels):
        assert gate.new_output() == []
        gate.send(channel, watermark(9, EVENT_TIME))
    assert gate.new_output() == []
    for channel in range(channels):
        gate.send(channel, watermark(11, EVENT_TIME), watermark(7, "w"))
    assert gate.new_output() == [(EVENT_TIME, 11)]  # the same value of "w" is not sent again
    gate.send(0, ENDED)
    assert gate.new_output() == (["end"] if channels == 1 else [])


def test_idle_input_stays_idle_until_a_new_channel_is_active() -> None:
    gate = Gate(2)
    gate.send(0, IDLE)
    gate.send(1, IDLE)
    assert gate.new_output() == ["idle"]
    gate.rescale(3)
    gate.send(0, IDLE)
    assert gate.new_output() == []
    gate.send(1, ACTIVE, watermark(5, EVENT_TIME))
    assert gate.new_output() == ["active", (EVENT_TIME, 5)]


def test_partly_ended_input_ends_again_after_rescaling() -> None:
    gate = Gate(2)
    gate.send(0, ENDED)
    gate.rescale(3)
    for channel in range(3):
        assert not gate.gate.ended
        gate.send(channel, ENDED)
    assert gate.new_output() == ["end"]
    gate.rescale(2)
    assert gate.gate.ended


@pytest.mark.parametrize("channels", [1, 3])
def test_held_records_wait_for_the_new_channels(channels: int) -> None:
    gate = Gate(2)
    gate.send(0, aligned(1), "a", watermark(5, EVENT_TIME), aligned(2), "b")
    gate.send(1, watermark(9, EVENT_TIME))
    gate.rescale(channels)
    for channel in range(channels):
        gate.send(channel, f"c{channel}", watermark(9, EVENT_TIME))
        gate.restart()
    assert gate.new_output() == [f"c{channel}" for channel in range(channels)]
    for channel in range(channels):
        assert gate.new_output() == []
        gate.send(channel, aligned(3), f"d{channel}")
    # The former channel sends the next watermark first, and holds event time back until it has ended.
    assert gate.new_output() == [("aligned", 3), *(f"d{channel}" for channel in range(channels)), "a", (EVENT_TIME, 5)]
    for channel in range(channels):
        gate.restart()
        gate.send(channel, aligned(4))
    assert gate.new_output() == [("aligned", 4), "b", (EVENT_TIME, 9)]
    for channel in range(channels):
        gate.send(channel, ENDED)
    assert gate.new_output() == ["end"]


def test_values_of_old_channels_count_with_the_new_ones() -> None:
    gate = Gate(2)
    gate.send(0, watermark(7, "all"))
    gate.rescale(3)
    for channel in range(3):
        assert gate.new_output() == []
        gate.send(channel, watermark(channel, "all"))
    assert gate.new_output() == [("all", 7)]
