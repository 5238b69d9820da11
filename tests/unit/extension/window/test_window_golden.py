"""Windows and event timers, compared with recordings of Flink 2.3.0: jobs of 60 records, three keys and one subtask."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.window import WindowStrategy
from dsv2.extension.window.process_functions import windowed
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from tests import ROOT
from tests.durations import ms
from tests.windows import Event, FlinkGenerator, WindowRecorder

Case = dict[str, Any]

CASES: list[Case] = json.loads((ROOT / "tests" / "golden" / "windows.json").read_text())
LONG_MAX = 2**63 - 1
RUNTIMES = {
    "at once": LocalRuntime(),
    "restarting after each record": LocalRuntime(batches=(1,)),
    "in batches": LocalRuntime(batches=(1, 7, 3), seed=1),
}


def number_of(record: int) -> int:
    return record // 10**9


def key_of(record: int) -> int:
    return record // 10**6 % 1000


def time_of(record: int) -> int:
    return record % 10**6


def strategy_of(case: Case) -> WindowStrategy:
    size, lateness = ms(case["size"]), ms(case["lateness"])
    match case["strategy"]:
        case "tumbling":
            return WindowStrategy.tumbling(size).with_allowed_lateness(lateness)
        case "sliding":
            return WindowStrategy.sliding(size, ms(case["slide"])).with_allowed_lateness(lateness)
        case "session":
            return WindowStrategy.session(size)
        case _:
            return WindowStrategy.global_()


class Timers(OneInputEventTimeStreamProcessFunction[int, Event]):
    """Each record registers a timer, some in the past, and some delete it again. As in the recorded job."""

    manager: EventTimeManager

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.manager = manager

    def process_record(self, record: int, output: Collector[Event], ctx: PartitionedContext[Event]) -> None:
        output.collect(("rec", record, self.manager.current_time()))
        timer = time_of(record) + 5 - 4 * (number_of(record) % 3)
        self.manager.register_timer(timer)
        if number_of(record) % 7 == 3:
            self.manager.delete_timer(timer)

    def on_event_timer(self, timestamp: int, output: Collector[Event], ctx: PartitionedContext[Event]) -> None:
        key = ctx.state_manager.current_key
        output.collect(("timer", key, timestamp, self.manager.current_time()))

    def on_event_time_watermark(
        self, timestamp: int, output: Collector[Event], ctx: NonPartitionedContext[Event]
    ) -> None:
        output.collect(("wm", timestamp))


def output_of(case: Case, function: OneInputStreamProcessFunction[int, Event], runtime: LocalRuntime) -> list[Event]:
    """Output of ``function`` for the recorded input."""
    env = ExecutionEnvironment.get_instance(runtime)
    env.set_parallelism(1)
    sink = CollectSink[Event]()
    records = env.from_collection(case["input"]).process(FlinkGenerator(time_of, case["out_of_order"]))
    records.key_by(key_of).process(function).to_sink(sink)
    env.execute("golden")
    return sink.results


def recorded(case: Case) -> list[Event]:
    """Flink's recorded output."""
    return [tuple(tuple(part) if isinstance(part, list) else part for part in event) for event in case["events"]]


def records_sorted(events: Iterable[Event]) -> list[Event]:
    return [tuple(tuple(sorted(part)) if isinstance(part, tuple) else part for part in event) for event in events]


def of_key(events: Iterable[Event], key: int) -> list[Event]:
    return [event for event in events if event[1] == key]


def named(*, timers: bool) -> list[Any]:
    def name(case: Case) -> str:
        parts = {"slide": case["slide"], "late": case["lateness"], "disorder": case["out_of_order"]}
        said = "".join(f"-{part}-{value}" for part, value in parts.items() if value)
        return f"{case['strategy']}-{case['size']}{said}"

    return [pytest.param(case, id=name(case)) for case in CASES if (case["strategy"] == "timers") is timers]


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
@pytest.mark.parametrize("case", named(timers=False))
def test_windows_fire_as_in_flink(case: Case, runtime: LocalRuntime) -> None:
    ours = output_of(case, windowed(strategy_of(case), WindowRecorder()), runtime)
    flink = recorded(case)
    for key in range(3):
        expected = of_key(flink, key)
        if case["strategy"] == "global":
            # Flink never clears the global window, although its documentation says so. In dsv2 it is cleared after it
            # fired.
            expected.append(("clear", key, -1, -1))
        found = of_key(ours, key)
        if case["strategy"] == "session":
            # In Flink a merged session has its records in the order of a hash set. In dsv2 the records of the earlier
            # session come first.
            found, expected = records_sorted(found), records_sorted(expected)
        assert found == expected
    assert len(ours) == len(flink) + (3 if case["strategy"] == "global" else 0)


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
@pytest.mark.parametrize("case", named(timers=True))
def test_event_timers_fire_as_in_flink(case: Case, runtime: LocalRuntime) -> None:
    ours = output_of(case, Timers(), runtime)
    flink = recorded(case)
    # Flink does not notify functions of the end of event time. dsv2 does.
    flink.append(("wm", LONG_MAX))
    for kind in ("rec", "wm"):
        assert [event for event in ours if event[0] == kind] == [event for event in flink if event[0] == kind]
    for key in range(3):
        timers = [event for event in ours if event[0] == "timer"]
        assert of_key(timers, key) == of_key((event for event in flink if event[0] == "timer"), key)
    # The timers of one watermark are ordered by time over all keys, as in Flink.
    assert [e[2:] for e in ours if e[0] == "timer"] == [e[2:] for e in flink if e[0] == "timer"]


def test_recordings_contain_all_kinds_of_events() -> None:
    """Otherwise the tests above might compare nothing."""
    kinds = {case["strategy"]: {event[0] for event in case["events"]} for case in CASES}
    assert kinds == {
        "tumbling": {"trigger", "clear", "late"},
        "sliding": {"trigger", "clear", "late"},
        "session": {"trigger", "clear", "late"},
        "global": {"trigger"},
        "timers": {"rec", "wm", "timer"},
    }
