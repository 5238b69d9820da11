"""Reports of inputs on their channels: content, size, and the times at which channels moved."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import msgpack

from dsv2 import CollectSink, ExecutionEnvironment, Trigger, new_builder
from dsv2.extension.event_time import EventTimeExtension
from dsv2.graph import Plan
from dsv2.jobs.progress import ChannelProgress, InputProgress, JobProgress
from dsv2.local import LocalRuntime
from dsv2.runtime.report.channels import Channels
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.subtask_report import ChannelReport, InputReport, SubtaskReport
from dsv2.testing import ManualClock
from dsv2.watermark.event_time import EVENT_TIME, USE_PROCESSING_TIME
from tests.support import ACTIVE, ENDED, IDLE, Driver, driven, local_environment, one_input, two_inputs, watermark
from tests.unit.jobs.test_stuck_watermarks import START, Numbers, strategy

DECLARED = [
    EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
    EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION,
    new_builder("w").type_long().build(),
    new_builder("flag").type_bool().build(),
    new_builder("barrier").type_long().combine_wait_for_all_channels(True).aligned().build(),
]


def function() -> Any:
    return one_input(declare_watermarks=lambda: DECLARED)


def driver(channels: int) -> Driver:
    return driven(lambda source: source.shuffle().process(function()).with_uid("f").with_parallelism(1), "f", channels)


def reported(of: Driver) -> InputReport:
    (one,) = of.progress("f").inputs
    return one


def shown(of: Driver) -> list[int]:
    return [one.channel for one in reported(of).channels]


def test_channels_of_an_input() -> None:
    of = driver(4)
    of.send(watermark(0, EVENT_TIME), watermark(7), watermark(False, "flag"), channel=0)
    of.send(watermark(5, EVENT_TIME), IDLE, channel=1)
    of.send(ENDED, channel=2)
    values = {"w": 7, "flag": False}
    channels = [
        ChannelReport(0, 0, values),
        ChannelReport(1, 5, idle=True),
        ChannelReport(2, ended=True),
        ChannelReport(3),
    ]
    assert reported(of) == InputReport(4, 1, 1, watermarks=values, channels=channels)
    of.send(watermark(9, EVENT_TIME), watermark(2), channel=3)
    assert reported(of).event_time == 0
    assert reported(of).watermarks == {"w": 2, "flag": False}


def test_an_aligned_watermark_belongs_to_the_round() -> None:
    of = driver(2)
    of.send(watermark(1, "barrier"), "held", channel=0)
    assert reported(of).channels[0].watermarks == {"barrier": 1}
    of.send(watermark(1, "barrier"), channel=1)
    assert reported(of).channels == [ChannelReport(0), ChannelReport(1)]


def test_event_time_that_follows_the_wall_clock_is_a_flag() -> None:
    of = driver(2)
    of.send(watermark(True, USE_PROCESSING_TIME), channel=0)
    assert reported(of).channels == [ChannelReport(0, None, {USE_PROCESSING_TIME: True}), ChannelReport(1)]
    of.send(watermark(True, USE_PROCESSING_TIME), channel=1)
    assert reported(of).watermarks == {USE_PROCESSING_TIME: True}


def test_the_event_time_of_an_operator_that_has_ended_is_the_last_one() -> None:
    of = driver(1)
    of.send(watermark(5, EVENT_TIME), ENDED)
    assert of.progress("f").event_time == 5


def test_with_many_channels_only_those_that_hold_something_back_are_reported() -> None:
    of = driver(256)
    for channel in range(256):
        of.send(watermark(1_700_000_000_000 + channel, EVENT_TIME), watermark(1_000 - channel), channel=channel)
    one = reported(of)
    assert (one.event_time, one.watermarks) == (1_700_000_000_000, {"w": 745})
    assert shown(of) == [0, 1, 2, 3, 252, 253, 254, 255]
    of.send(ACTIVE, watermark(True, "flag"), watermark(5, "barrier"), channel=77)
    assert len(msgpack.encode(one)) < 400
    assert len(msgpack.encode(of.progress("f"))) < 1_000, "of a subtask with 256 channels and 4 watermarks"


def test_channels_that_have_not_sent_anything_are_reported_as_well() -> None:
    of = driver(256)
    assert shown(of) == [0, 1, 2, 3]
    for channel in (*range(100), *range(110, 256)):
        of.send(watermark(2 if channel == 200 else 1, EVENT_TIME), channel=channel)
    assert shown(of) == [100, 101, 102, 103, 200], "and the newest"
    of.send(watermark(1, EVENT_TIME), channel=100)
    for channel in range(101, 110):
        of.send(watermark(1, EVENT_TIME), channel=channel)
    assert shown(of) == [0, 1, 2, 3]


@pytest.fixture
def plan() -> Plan:
    env = local_environment()
    one, other = env.from_collection([1], "one").with_uid("one"), env.from_collection([1], "two").with_uid("two")
    one.connect_and_process(other, two_inputs()).with_uid("f").to_sink(CollectSink())
    return env.build_plan()


def report(*rows: ChannelReport) -> SubtaskReport:
    return SubtaskReport("f", 0, outputs=[0], inputs=[InputReport(1), InputReport(9, channels=list(rows))])


def second(channels: Channels, now_ms: int, *rows: ChannelReport) -> InputProgress:
    return channels.note(now_ms, report(*rows))[1]


def test_when_channels_moved(plan: Plan) -> None:
    channels = Channels(plan)
    one = second(channels, 10, ChannelReport(0, 5, {"w": 1}), ChannelReport(1))
    assert (one.sender, one.input, one.channel_count) == ("two", 1, 9)
    assert one.channels == (
        ChannelProgress(0, 5, {"w": 1}, moved_at_ms=10, values_moved_at_ms={EVENT_TIME: 10, "w": 10}),
        ChannelProgress(1),
    )
    one = second(channels, 20, ChannelReport(0, 6, {"w": 1}), ChannelReport(1, idle=True))
    assert [row.moved_at_ms for row in one.channels] == [20, 20]
    assert one.channels[0].values_moved_at_ms == {EVENT_TIME: 20, "w": 10}
    assert (one.channels[1].idle, one.channels[1].values_moved_at_ms) == (True, {})
    one = second(channels, 30, ChannelReport(0, 6, {"w": 1}), ChannelReport(1, idle=True))
    assert [row.moved_at_ms for row in one.channels] == [20, 20], "nothing has changed"


def test_times_continue_with_stored_progress(plan: Plan) -> None:
    reports = JobReports(plan, in_portions=False)
    row = ChannelReport(0, 5, {"w": 1})
    reports.add(0, [report(row)], 10)
    again = second(Channels(plan, reports.progress()), 99, row)
    assert again.channels[0].values_moved_at_ms == {EVENT_TIME: 10, "w": 10}
    assert second(Channels(plan), 99, row).channels[0].moved_at_ms == 99, "nothing is known of earlier runs"


def test_a_restart_does_not_move_channels(tmp_path: Any) -> None:
    clock = ManualClock(START)

    def run() -> JobProgress:
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=clock))
        source = env.from_source(Numbers({"a": 3}, 99, bounded=False), watermarks=strategy()).with_uid("in")
        source.process(one_input()).with_uid("f").to_sink(CollectSink()).with_uid("out")
        return env.execute("job", checkpoint_location=tmp_path, trigger=Trigger.available_now()).progress

    before = run().operators["f"].subtasks[0].inputs
    clock.advance(timedelta(seconds=60))
    progress = run()
    assert progress.operators["f"].subtasks[0].inputs == before
    (split,) = progress.operators["in"].splits
    assert (split.position, split.lag, split.moved_at_ms) == ("3", 0, START)
