"""The channel that is reported to hold a watermark back does so: if it advances, the value or the channel changes."""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import new_builder
from dsv2.extension.event_time import EventTimeExtension
from dsv2.jobs.progress import ChannelProgress, InputProgress
from dsv2.jobs.watermark_report.blockers import held_channel
from dsv2.jobs.watermark_report.route import Route
from dsv2.model.record_batch import NO_RECORDS
from dsv2.plan_view.view import view_of
from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.report.channels import Channels
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.sinks import CollectSink
from dsv2.views.explain import PlanView
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.event_time import EVENT_TIME
from tests.strategies import long_lists
from tests.support import local_environment, one_input

DECLARATIONS: dict[str, WatermarkDeclaration] = {
    EVENT_TIME: EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
    "min": new_builder("min").type_long().build(),
    "max": new_builder("max").type_long().combine_function_max().build(),
    "and": new_builder("and").type_bool().build(),
    "or": new_builder("or").type_bool().combine_function_or().build(),
    "all": new_builder("all").type_long().combine_wait_for_all_channels(True).build(),
    "aligned": new_builder("aligned").type_long().combine_wait_for_all_channels(True).aligned().build(),
}
OF_BOOL = ("and", "or")
GREAT = 1_000


class Step(NamedTuple):
    """An event on a channel: a new value, or a change of its status."""

    channel: int
    value: int | None = None
    idle: bool | None = None


def steps(channels: int) -> st.SearchStrategy[Step]:
    # All fields: Hypothesis invents values for those of a named tuple that are left out, even if they have defaults.
    channel = st.integers(0, channels - 1)
    values = st.builds(Step, channel, st.integers(1, 9), st.none())
    statuses = st.builds(Step, channel, st.none(), st.booleans())
    ends = st.builds(Step, channel, st.none(), st.none())
    return st.sampled_from([values] * 12 + [statuses] * 8 + [ends]).flatmap(lambda chosen: chosen)


@functools.cache
def channels_and_view() -> tuple[Channels, PlanView]:
    """The channels and the view of a plan with an operator that receives all watermarks."""
    env = local_environment()
    env.from_collection([1], "in").process(one_input(declare_watermarks=lambda: list(DECLARATIONS.values()))).process(
        one_input()
    ).with_uid("f").to_sink(CollectSink())
    plan = env.build_plan()
    return Channels(plan), view_of(plan)


class Receiver:
    """An input with many channels, and what is reported of it."""

    def __init__(self, identifier: str, channels: int) -> None:
        self.identifier = identifier
        self.combined: list[int | bool] = []
        self.ended: set[int] = set()
        self.idle: set[int] = set()
        self.count = channels
        self.gate = InputGate(0, channels, DECLARATIONS, self)
        self.channels, self.view = channels_and_view()
        self.now_ms = 0

    def on_records(self, input_index: int, batch: Any) -> None: ...

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        self.combined.append(value)

    def on_status(self, input_index: int, idle: bool) -> None: ...

    def on_end(self, input_index: int) -> None: ...

    def on_crossing(self, input_index: int, waiting: Any) -> Any:
        raise AssertionError

    def do(self, step: Step) -> None:
        if step.channel in self.ended:
            return
        if step.value is not None:
            value = step.value > 4 if self.identifier in OF_BOOL else step.value
            control = (0, WATERMARK, self.identifier, value)
        elif step.idle is None:
            control = (0, END, "", 0)
            self.ended.add(step.channel)
        else:
            control = (0, STATUS, "", step.idle)
            (self.idle.add if step.idle else self.idle.discard)(step.channel)
        self.gate.receive(step.channel, NO_RECORDS, [control])

    def copy(self) -> Receiver:
        other = Receiver(self.identifier, self.count)
        other.combined, other.ended, other.idle = list(self.combined), set(self.ended), set(self.idle)
        other.gate.restore(copy.deepcopy(self.gate.snapshot()))
        return other

    def advance(self, channel: int) -> None:
        """The channel sends a value that is greater than all others."""
        self.do(Step(channel, GREAT))

    def input(self) -> InputProgress:
        self.now_ms += 1
        (one,) = self.channels.note(self.now_ms, SubtaskReport("f", 0, inputs=[self.gate.report()]))
        return one

    def held(self) -> ChannelProgress | None:
        return held_channel(Route(self.view, self.identifier), self.input())


def holds_alone(identifier: str, one: InputProgress, held: ChannelProgress) -> bool:
    """Return whether the value cannot change before the channel advances, whatever the others send."""
    if identifier == EVENT_TIME:
        active = [row.event_time or 0 for row in one.channels if not row.idle and not row.ended]
        return one.event_time is None or max(active) >= one.event_time  # otherwise all of them have to catch up
    return identifier in ("all", "aligned") or (identifier in ("min", "and") and identifier in held.watermarks)


@pytest.mark.parametrize("identifier", DECLARATIONS)
@given(data=st.data())
def test_the_value_depends_on_the_reported_channel(identifier: str, data: st.DataObject) -> None:
    channels = data.draw(st.sampled_from([1, 2, 3, 20]))
    receiver = Receiver(identifier, channels)
    for step in data.draw(long_lists(steps(channels), 40)):
        receiver.do(step)
    held, one = receiver.held(), receiver.input()
    active = one.channel_count - one.idle_count - one.ended_count
    if held is None:
        assert active == 0
        return
    assert not held.idle
    assert not held.ended
    if receiver.combined[-1:] == [True]:
        return  # it cannot become more than true
    before = list(receiver.combined)
    if holds_alone(identifier, one, held):
        others = receiver.copy()
        for channel in set(range(channels)) - {held.channel}:
            if channel not in others.idle:
                others.advance(channel)
        assert others.combined == before
    receiver.advance(held.channel)
    if receiver.combined == before:
        after = receiver.held()
        assert after is not None
        assert after.channel != held.channel
