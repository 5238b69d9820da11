"""Event time and its flag over channels and inputs, compared with a model that keeps both for each (FLIP-326)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeExtension, TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK
from dsv2.runtime.exchange.gate import InputGate
from dsv2.testing import IdleStatus, StampedRecord, TwoInputNonBroadcastHarness
from dsv2.watermark import LongWatermark, WatermarkDeclaration, extremum
from dsv2.watermark.event_time import (
    EVENT_TIME,
    LONG_MAX,
    LONG_MIN,
    PROCESSING_TIME,
    USE_PROCESSING_TIME,
    EventTimeCombiner,
    EventTimeOfInputs,
)

Step: TypeAlias = tuple[int, Literal["flag", "idle", "active", "end"] | int]
"""An event and its channel or input. A number is an event time."""

DECLARED: dict[str, WatermarkDeclaration] = {
    EVENT_TIME: EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
    USE_PROCESSING_TIME: EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION,
}
MEMBERS = 3
WHAT = st.one_of(st.integers(0, 12), st.sampled_from(["flag", "idle", "active", "end"]))
STEPS = st.lists(st.tuples(st.integers(0, MEMBERS - 1), WHAT), max_size=40)


@dataclass
class Member:
    """A channel or an input, as a receiver sees it."""

    time: int = LONG_MIN
    flag: bool = False
    idle: bool = False
    ended: bool = False
    aligned: bool = True

    @property
    def active(self) -> bool:
        return not self.ended and (self.flag or not self.idle)


class Model:
    """The rules, literally."""

    def __init__(self) -> None:
        self.members = [Member() for _ in range(MEMBERS)]
        self.time = LONG_MIN
        self.flag = False

    def out(self) -> list[int]:
        """The output at this point."""
        live = [member for member in self.members if not member.ended]
        if live and all(member.flag for member in live):
            is_new, self.flag = not self.flag, True
            return [PROCESSING_TIME] if is_new else []
        active = [one for one in live if one.active and not one.flag]
        if not active:
            return self.reach(max((one.time for one in self.members if not one.flag), default=LONG_MIN))
        return self.reach(min((one.time for one in active if one.aligned), default=LONG_MIN))

    @property
    def idle(self) -> bool:
        """True if the receiver is idle."""
        live = [member for member in self.members if not member.ended]
        if all(member.idle for member in live):
            return bool(live)
        timed = [member for member in live if not member.flag]
        return bool(timed) and all(member.idle for member in timed)

    def reach(self, time: int) -> list[int]:
        if time <= self.time:
            return []
        self.time = time
        return [time]


class ChannelModel(Model):
    """The channels of one input."""

    def take(self, step: Step) -> list[int]:
        channel, what = self.members[step[0]], step[1]
        if what == "flag":
            if channel.flag:
                return []
            channel.flag = True
        elif what == "active":
            channel.idle = False
            channel.aligned = channel.flag or channel.time >= self.time
        elif what == "idle":
            channel.idle = True
        elif what == "end":
            channel.ended = True
        elif not channel.active or channel.flag or what <= channel.time:
            return []  # nothing new
        else:
            channel.time = what
            channel.aligned = channel.aligned or channel.time >= self.time
        return self.out()


class InputModel(Model):
    """The inputs of one operator. An input that becomes active counts at once, and event time makes it active."""

    def take(self, step: Step) -> list[int]:
        one, what = self.members[step[0]], step[1]
        if what == "flag":
            one.flag = True
        elif what == "end":
            one.ended = True
        elif what == "idle" or what == "active":
            one.idle = what == "idle"
        else:
            one.idle = False
            one.time = max(one.time, what)
        if all(member.ended for member in self.members):
            return self.reach(LONG_MAX)
        return self.out()


class Recorder:
    """Follows a gate."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.idle = False

    def on_records(self, *args: Any) -> None: ...

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        assert identifier == EVENT_TIME
        self.times.append(value)

    def on_status(self, input_index: int, idle: bool) -> None:
        self.idle = idle

    def on_end(self, *args: Any) -> None: ...

    def on_crossing(self, *args: Any) -> NoReturn:
        raise AssertionError


def control(what: object) -> tuple[int, str, int | bool]:
    if isinstance(what, int):
        return WATERMARK, EVENT_TIME, what
    return {
        "flag": (WATERMARK, USE_PROCESSING_TIME, True),
        "idle": (STATUS, "", True),
        "active": (STATUS, "", False),
        "end": (END, "", 0),
    }[str(what)]


def until_the_end(steps: list[Step]) -> list[Step]:
    """The steps without those of a channel or input after its end."""
    ended = set[int]()
    left = []
    for place, what in steps:
        if place not in ended:
            left.append((place, what))
        if what == "end":
            ended.add(place)
    return left


@given(steps=STEPS, restarts=st.sets(st.integers(0, 39)))
def test_over_channels(steps: list[Step], restarts: set[int]) -> None:
    model, heard = ChannelModel(), Recorder()
    gate = InputGate(0, MEMBERS, DECLARED, heard)
    expected = list[int]()
    for number, (channel, what) in enumerate(until_the_end(steps)):
        if number in restarts:
            state = gate.snapshot()
            gate = InputGate(0, MEMBERS, DECLARED, heard)
            gate.restore(state)
        gate.control(channel, *control(what))
        expected += model.take((channel, what))
        assert heard.times == expected, (number, channel, what)
        assert gate.ended or heard.idle == model.idle, (number, channel, what)
    assert heard.times == sorted(set(heard.times)), "never back, and the flag is the last word"


def test_over_channels_with_the_heap_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extremum, "_FEW", 0)
    test_over_channels()


@given(steps=STEPS, restarts=st.sets(st.integers(0, 39)))
def test_over_inputs(steps: list[Step], restarts: set[int]) -> None:
    model, event_time = InputModel(), EventTimeOfInputs(MEMBERS)
    for number, (index, what) in enumerate(until_the_end(steps)):
        if number in restarts:
            state = event_time.snapshot()
            event_time = EventTimeOfInputs(MEMBERS)
            event_time.restore(state)
        if isinstance(what, int):
            moved = event_time.update(index, what) if not model.members[index].flag else None
        elif what == "flag":
            moved = event_time.update(index, PROCESSING_TIME)
        elif what == "end":
            moved = event_time.end(index)
        else:
            moved = event_time.set_idle(index, what == "idle")
        assert [time for time in [moved] if time is not None] == model.take((index, what)), (number, index, what)
        assert (event_time.current, event_time.uses_processing_time) == (model.time, model.flag)


class Timed(TwoInputNonBroadcastEventTimeStreamProcessFunction[Any, Any, int]):
    """Emits event time whenever it advances."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(timestamp)


@given(steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12) | st.booleans()), max_size=30))
def test_active_sender_and_receiver_agree(steps: list[tuple[int, int | bool]]) -> None:
    """An operator sends idle statuses at the right place between event times."""
    harness = TwoInputNonBroadcastHarness[Any, Any, int](Timed())
    inputs = harness.first_input, harness.second_input
    idle, receiver, reached, time = False, EventTimeCombiner(1), LONG_MIN, LONG_MIN
    for index, what in steps:
        if isinstance(what, bool):
            inputs[index].push_idle(what)
        else:
            inputs[index].push_event_time(what)
        for element in harness.output.elements:
            if isinstance(element, IdleStatus):
                idle = element.idle
                (receiver.deactivate if idle else receiver.activate)(0)
            elif isinstance(element, LongWatermark):
                moved = receiver.update(0, element.value)
                reached = reached if moved is None else moved
            elif isinstance(element, StampedRecord):
                time = element.record
        harness.output.clear()
        assert idle or reached == time
