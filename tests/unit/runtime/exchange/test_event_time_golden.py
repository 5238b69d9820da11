"""Event time and idleness over the channels and inputs of an operator, compared with recordings of Flink 2.3.0.

A step is ``[channel or input, "t" | "i", value, [[kind, value], ...]]``: an event time or idle status, and the output.
Steps over inputs also have the operator's new event time, or null.

Deliberate differences:

* ``LEAPS``: when an input becomes idle, event time is computed at once. Flink waits for the next watermark.
* The end of an input is not recorded because Flink's classes do not handle it. In dsv2 an ended input is ignored.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeAlias

import pytest

from dsv2.extension.event_time import EventTimeExtension
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import STATUS, WATERMARK
from dsv2.runtime.exchange.gate import InputGate
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN
from tests import ROOT
from tests.support import Signal, driven, one_input, two_inputs, watermark

Case: TypeAlias = dict[str, Any]
Signals: TypeAlias = list[list[Any]]
Steps: TypeAlias = list[list[Any]]

CASES: list[Case] = json.loads((ROOT / "tests" / "golden" / "combiners.json").read_text())
DECLARATION = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
DECLARED = (DECLARATION, EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION)


def handlers(inputs: int) -> list[Steps]:
    return [case["steps"] for case in CASES if case["combiner"] == "event_time_handler" and case["inputs"] == inputs]


CHANNELS = [
    pytest.param(case["channels"], case["steps"], id=f"{case['channels']}ch-{number}")
    for number, case in enumerate(CASES)
    if case["combiner"] == "event_time"
]


class Recorder:
    """Follows a gate and collects its output in the format of the recordings."""

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
def test_gate_is_restored_between_any_two_steps(channels: int, steps: Steps) -> None:
    """Flink's combiners do not keep state."""
    heard = Recorder()
    gate = InputGate(0, channels, {EVENT_TIME: DECLARATION}, heard)
    for number, (channel, kind, value, expected) in enumerate(steps):
        state = gate.snapshot()
        gate = InputGate(0, channels, {EVENT_TIME: DECLARATION}, heard)
        gate.restore(state)
        send(gate, channel, kind, value)
        assert heard.take() == expected, f"step {number}"


def until_an_idle_channel_speaks(steps: Steps) -> Steps:
    """The gate drops events of idle channels, so no operator sees them."""
    idle = set[int]()
    for number, (index, kind, value, *_) in enumerate(steps):
        if kind == "t" and index in idle:
            return steps[:number]
        (idle.add if kind == "i" and value else idle.discard)(index)
    return steps


@pytest.mark.parametrize("inputs", [1, 2])
def test_operator_forwards_what_flink_forwards(inputs: int) -> None:
    """Each input has one channel. Downstream of a leap there may be more signals than in Flink."""
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
