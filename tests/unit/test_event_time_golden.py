"""Event time and idleness against recordings of Flink 2.3.0's own: over channels, and over the inputs of an operator.

A step is ``[channel or input, "t" | "i", value, [[kind, value], ...]]``: event time or idleness comes in, and what goes
out. Steps over inputs also tell the operator's new event time, or null.

Differences, on purpose:

* ``LEAPS``: when an input goes idle, event time is computed again at once. Flink waits for the next watermark.
* The end of an input has no recording, because Flink's classes do not hear of it: an ended input is left out for ever.
"""

from __future__ import annotations

import json
from itertools import compress
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import pytest

from dsv2.extension.event_time import EventTimeExtension
from dsv2.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import STATUS, WATERMARK
from dsv2.runtime.exchange.gate import InputGate
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN, EventTimeOfInputs
from tests.support import Signal, driven, one_input, two_inputs, watermark

Case: TypeAlias = dict[str, Any]
Signals: TypeAlias = list[list[Any]]
Steps: TypeAlias = list[list[Any]]

CASES: list[Case] = json.loads((Path(__file__).parent.parent / "golden" / "combiners.json").read_text())
DECLARATION = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
DECLARED = (DECLARATION, EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION)


def handlers(inputs: int) -> list[Steps]:
    return [case["steps"] for case in CASES if case["combiner"] == "event_time_handler" and case["inputs"] == inputs]


CHANNELS = [
    pytest.param(case["channels"], case["steps"], id=f"{case['channels']}ch-{number}")
    for number, case in enumerate(CASES)
    if case["combiner"] == "event_time"
]


class Heard:
    """Stands behind a gate and tells what it hears as the recordings tell it."""

    def __init__(self) -> None:
        self.signals: Signals = []

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None: ...

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        self.signals.append(["t", value])

    def on_status(self, input_index: int, idle: bool) -> None:
        self.signals.append(["i", idle])

    def on_end(self, input_index: int) -> None:
        self.signals.append(["end", True])

    def on_crossing(self, *args: Any) -> NoReturn:
        raise AssertionError

    def take(self) -> Signals:
        signals, self.signals = self.signals, []
        return signals


def send(gate: InputGate, channel: int, kind: str, value: int | bool) -> None:
    if kind == "t":
        gate.control(channel, WATERMARK, EVENT_TIME, value)
    else:
        gate.control(channel, STATUS, "", value)


@pytest.mark.parametrize(("channels", "steps"), CHANNELS)
def test_channels_are_combined_as_in_flink(channels: int, steps: Steps) -> None:
    heard = Heard()
    gate = InputGate(0, channels, {EVENT_TIME: DECLARATION}, heard)
    for number, (channel, kind, value, expected) in enumerate(steps):
        send(gate, channel, kind, value)
        assert heard.take() == expected, f"step {number}"


@pytest.mark.parametrize(("channels", "steps"), CHANNELS)
def test_a_gate_goes_on_after_a_restart(channels: int, steps: Steps) -> None:
    """Flink's combiners forget everything."""
    heard = Heard()
    gate = InputGate(0, channels, {EVENT_TIME: DECLARATION}, heard)
    for number, (channel, kind, value, expected) in enumerate(steps):
        state = gate.snapshot()
        gate = InputGate(0, channels, {EVENT_TIME: DECLARATION}, heard)
        gate.restore(state)
        send(gate, channel, kind, value)
        assert heard.take() == expected, f"step {number}"


@pytest.mark.parametrize("inputs", [1, 2])
def test_inputs_are_combined_as_in_flink_but_for_idleness(inputs: int) -> None:
    leaps = 0
    for steps in handlers(inputs):
        event_time = EventTimeOfInputs(inputs)
        times, active = [LONG_MIN] * inputs, [True] * inputs
        for index, kind, value, _, updated in steps:
            reached = event_time.current
            active[index] = kind == "t" or not value
            if kind == "t":
                times[index] = max(times[index], value)
                is_new = updated is not None and updated > reached
                assert event_time.update(index, value) == (updated if is_new else None)
            else:
                assert updated is None, "Flink never moves event time here"
                leap = event_time.set_idle(index, value)
                assert leap is None or leap == min(compress(times, active))
                leaps += leap is not None
    assert bool(leaps) == (inputs == 2), "LEAPS is no empty claim"


def until_an_idle_channel_speaks(steps: Steps) -> Steps:
    """What comes then does not get through a gate, so no operator ever sees it."""
    idle = set[int]()
    for number, (index, kind, value, *_) in enumerate(steps):
        if kind == "t" and index in idle:
            return steps[:number]
        (idle.add if kind == "i" and value else idle.discard)(index)
    return steps


@pytest.mark.parametrize("inputs", [1, 2])
def test_an_operator_sends_on_what_flinks_does(inputs: int) -> None:
    """Each input has one channel. The recordings give the same downstream as Flink, or, after a leap, more of it."""
    replayed = 0
    for steps in map(until_an_idle_channel_speaks, handlers(inputs)):
        driver = driven(lambda numbers: operator(numbers, inputs).with_uid("f"))
        reached = LONG_MIN
        for index, kind, value, expected, _ in steps:
            before = len(driver.sent_to("out"))
            driver.send(watermark(value, EVENT_TIME) if kind == "t" else Signal(STATUS, "", value), channel=index)
            sent = [as_recorded(signal) for signal in driver.sent_to("out")[before:]]
            leap = [signal for signal in sent if kind == "i" and signal[0] == "t"]
            known = [signal for signal in expected if signal[0] == "t" and signal[1] <= reached]
            assert sent == leap + [signal for signal in expected if signal not in known]
            reached = max([reached, *(time for what, time in sent if what == "t")])
            replayed += 1
    assert replayed > 20


def operator(numbers: Any, inputs: int) -> Any:
    if inputs == 1:
        return numbers.process(one_input(declare_watermarks=lambda: DECLARED))
    return numbers.connect_and_process(numbers, two_inputs(declare_watermarks=lambda: DECLARED))


def as_recorded(signal: Signal) -> list[Any]:
    return ["t" if signal.kind == WATERMARK else "i", signal.value]
