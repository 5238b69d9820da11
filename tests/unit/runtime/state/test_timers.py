"""Timers of both kinds: when they fire, in which order, and the state they leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest

from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import OneInputEventTimeStreamProcessFunction
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.testing import ManualClock, OneInputHarness, StampedRecord
from dsv2.watermark import LongWatermark
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX
from tests.durations import ms
from tests.support import one_input

Kind: TypeAlias = Literal["event", "processing"]
KINDS: tuple[Kind, ...] = ("event", "processing")
both_kinds = pytest.mark.parametrize("kind", KINDS)


class Order(NamedTuple):
    """A record that sets and deletes timers of its key."""

    key: str
    set: tuple[int, ...] = ()
    unset: tuple[int, ...] = ()


class Fired(NamedTuple):
    key: str
    timestamp: int
    now: int


def key_of(order: Any) -> str:
    key: str = order.key
    return key


class Alarms(OneInputEventTimeStreamProcessFunction[Order, Any]):
    """Sets and deletes timers of its kind, emits those that fire, and applies ``then`` when they do."""

    def __init__(self, kind: Kind, then: dict[int, Order] | None = None) -> None:
        self.kind = kind
        self.then = then or {}

    def init_event_time_process_function(self, manager: Any) -> None:
        self.event_time = manager

    def manager(self, ctx: Any) -> Any:
        return self.event_time if self.kind == "event" else ctx.processing_time_manager

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        manager = self.manager(ctx)
        for time in record.set:
            manager.register_timer(time)
        for time in record.unset:
            manager.delete_timer(time)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        assert self.kind == "event"
        self.fired(timestamp, output, ctx)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        assert self.kind == "processing"
        self.fired(timestamp, output, ctx)

    def fired(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(Fired(ctx.state_manager.current_key, timestamp, self.manager(ctx).current_time()))
        if timestamp in self.then:
            self.process_record(self.then[timestamp], output, ctx)

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("end"))


class Forgetful(Alarms):
    dsv2_remember_keys = False


class Timers:
    """A harness of ``Alarms`` with one interface for both kinds."""

    def __init__(self, kind: Kind, then: dict[int, Order] | None = None, key: Callable[[Any], str] = key_of) -> None:
        self.kind = kind
        self.harness = OneInputHarness(Alarms(kind, then), key=key)
        self.now = 0

    def order(self, key: str, *set: int, unset: tuple[int, ...] = ()) -> None:
        self.harness.input.push(Order(key, set, unset))

    def pass_to(self, time: int) -> list[Any]:
        """Advance to ``time`` and return what fires."""
        before = len(self.harness.output.records)
        if self.kind == "event":
            self.harness.input.push_event_time(time)
        else:
            self.harness.advance_clock(ms(time - self.now))
            self.now = time
        return self.harness.output.records[before:]

    def pending(self, key: str) -> list[int]:
        return self.harness.event_timers(key) if self.kind == "event" else self.harness.processing_timers(key)


@both_kinds
def test_timers_set_while_timers_fire(kind: Kind) -> None:
    """Timers that are due fire in the same round, the others later."""
    timers = Timers(kind, then={100: Order("", (150, 50, 300, 400)), 150: Order("", (160,)), 400: Order("", (500,))})
    timers.order("a", 100)
    timers.order("b", 155, 200)
    assert [(key, time) for key, time, _ in timers.pass_to(300)] == [
        ("a", 100),
        ("a", 50),
        ("a", 150),
        ("b", 155),
        ("a", 160),
        ("b", 200),
        ("a", 300),
    ]
    assert timers.pending("a") == [400]
    assert timers.pass_to(499) == [Fired("a", 400, 499)]
    assert timers.pass_to(500) == [Fired("a", 500, 500)]


@both_kinds
@pytest.mark.parametrize("restarts", [False, True])
def test_ten_thousand_timers_of_one_key(kind: Kind, restarts: bool) -> None:
    """Set in any order, every tenth deleted."""
    timers = Timers(kind)
    count = 10_000
    times = [1 + number * 7919 % count for number in range(count)]
    timers.order("a", *times, unset=tuple(range(1, count, 10)))
    expected = [time for time in range(1, count + 1) if time % 10 != 1]
    assert timers.pending("a") == expected
    if restarts:
        timers.harness.restart()
    early = timers.pass_to(count // 2)
    if restarts:
        timers.harness.restart()
    late = timers.pass_to(count)
    assert [time for _, time, _ in early + late] == expected
    assert {now for *_, now in early} == {count // 2}


@both_kinds
def test_many_keys_that_come_and_go(kind: Kind) -> None:
    """Pages of keyed state split when keys are added, and are removed with the last keys."""
    harness = OneInputHarness(Forgetful(kind), key=key_of)
    for round_number in range(3):
        start = round_number * 10_000
        for late in (9000, 1000):  # the earlier timers once most pages exist
            harness.input.push(*(Order(f"key {number}", (start + late + number,)) for number in range(500)))
        for time in (1499, 9999):
            if kind == "event":
                harness.input.push_event_time(start + time)
            else:
                harness.advance_clock(ms(start + time - harness.clock.now_ms()))
        harness.snapshot()
        assert harness.keys == []
    fired = [record.timestamp for record in harness.output.records]
    assert fired == [start + late + n for start in (0, 10_000, 20_000) for late in (1000, 9000) for n in range(500)]


def test_repeating_processing_timer_stops_at_the_end() -> None:
    """In Flink's batch mode it repeats forever."""
    timers = Timers("processing", then={time: Order("", (time + 10,)) for time in range(1000)})
    timers.order("a", 100)
    timers.harness.end()
    assert [fired.timestamp for fired in timers.harness.output.records[:-1]] == [100]


def test_timers_wait_for_the_end_of_all_inputs() -> None:
    timers = OneInputHarness(Alarms("processing"), key=key_of, channels=2)
    timers.input.push(Order("a", (100,)))
    timers.input.end(channel=0)
    assert timers.output.records == []
    timers.input.end(channel=1)
    assert timers.output.records == [Fired("a", 100, 0), "end"]


def test_timers_fire_before_event_time_is_forwarded() -> None:
    """Flink forwards event time first (E1, H2), so the output of a timer is late downstream."""
    timers = Timers("event")
    timers.order("a", 100)
    timers.pass_to(150)
    assert timers.harness.output.elements == [
        StampedRecord(Fired("a", 100, 150), 100),
        LongWatermark(150, EVENT_TIME),
    ]


def test_processing_time_is_constant_within_a_micro_batch() -> None:
    clock = ManualClock(1000, step=ms(1))
    told: list[int] = []

    def process(record: Any, output: Any, ctx: Any) -> None:
        told.append(ctx.processing_time_manager.current_time())

    harness = OneInputHarness[str, Any](one_input(process_record=process), key=str, clock=clock)
    harness.input.push("a", "b")
    harness.input.push("a")
    harness.advance_clock(ms(50))
    harness.input.push("a")
    assert told == [1000, 1000, 1000, 1051]


@both_kinds
def test_key_is_removed_with_its_last_timer(kind: Kind) -> None:
    harnesses = [OneInputHarness(function, key=key_of) for function in (Alarms(kind), Forgetful(kind))]
    for harness in harnesses:
        harness.input.push(Order("a", (100,)), Order("b", (200,)), Order("c"))
        harness.restart()
        harness.input.push_event_time(150)
        harness.advance_clock(ms(150))
        harness.restart()
    assert [sorted(harness.keys) for harness in harnesses] == [["a", "b", "c"], ["b"]]
    empty = OneInputHarness(Forgetful(kind), key=key_of).snapshot()
    harnesses[1].input.push(Order("b", unset=(200,)))
    assert len(harnesses[1].snapshot()) < len(empty) + 100, "nothing is left"


@both_kinds
def test_kept_key_is_checked_in_timers(kind: Kind) -> None:
    wrong = OneInputHarness(Alarms(kind), key=key_of, output_key=lambda record: "b")
    wrong.input.push(Order("b", (100,)), Order("a", (200,)))
    with pytest.raises(UserFunctionError, match="InvalidKeyError") as caught:
        wrong.input.push_event_time(1000) if kind == "event" else wrong.advance_clock(ms(1000))
    assert caught.value.key == "'a'"
    assert wrong.output.records == [], "what the failed call gave is not sent"


class Misplaced(OneInputEventTimeStreamProcessFunction[Any, Any]):
    """Accesses timers where there are none."""

    def __init__(self, callback: str, action: Callable[[Any], Any]) -> None:
        self.callback = callback
        self.action = action

    def init_event_time_process_function(self, manager: Any) -> None:
        self.event_time = manager

    def open(self, ctx: Any) -> None:
        self.act("open")

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.act("process_record", ctx)

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.act("on_event_time_watermark")

    def end_input(self, ctx: Any) -> None:
        self.act("end_input")

    def act(self, callback: str, ctx: Any = None) -> None:
        if callback == self.callback:
            self.action(self.event_time if ctx is None else ctx)


ACTIONS: dict[str, Callable[[Any], Any]] = {
    "register": lambda manager: manager.register_timer(1),
    "delete": lambda manager: manager.delete_timer(1),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("callback", ["open", "on_event_time_watermark", "end_input"])
def test_timers_require_a_current_key(callback: str, action: str) -> None:
    with pytest.raises(UserFunctionError, match=r"no current key here.*apply_to_all_partitions") as caught:
        drive(OneInputHarness[Any, Any](Misplaced(callback, ACTIONS[action]), key=str))
    assert (caught.value.callback, caught.value.cause_type) == (callback, "ContractError")


def drive(harness: OneInputHarness[Any, Any]) -> None:
    harness.input.push("a")
    harness.input.push_event_time(1)
    harness.end()


@pytest.mark.parametrize(
    "action",
    [
        lambda ctx: ctx.processing_time_manager.register_timer(1),
        lambda ctx: ctx.processing_time_manager.delete_timer(1),
    ],
)
def test_processing_timers_are_for_keyed_functions(action: Callable[[Any], Any]) -> None:
    with pytest.raises(UserFunctionError, match=r"keyed stream\. Call key_by before process") as caught:
        drive(OneInputHarness[Any, Any](Misplaced("process_record", action)))
    assert caught.value.cause_type == "ContractError"


def test_processing_time_is_for_all_functions() -> None:
    times = list[int]()
    function = Misplaced("process_record", lambda ctx: times.append(ctx.processing_time_manager.current_time()))
    harness = OneInputHarness[Any, Any](function)
    drive(harness)
    assert times == [harness.clock.now_ms()]


@pytest.mark.parametrize("action", ACTIONS.values())
def test_event_timers_are_for_keyed_functions(action: Callable[[Any], Any]) -> None:
    """Event time itself is available everywhere, as in Flink."""
    with pytest.raises(UserFunctionError, match=r"keyed stream\. Call key_by before process"):
        drive(OneInputHarness[Any, Any](Misplaced("end_input", action)))
    times = []
    function = Misplaced("end_input", lambda manager: times.append(manager.current_time()))
    drive(OneInputHarness[Any, Any](function))
    assert times == [LONG_MAX]


def test_apply_to_all_partitions_may_set_timers() -> None:
    class Everywhere(Alarms):
        def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
            if timestamp == 10:
                ctx.apply_to_all_partitions(lambda output, partition: self.manager(partition).register_timer(20))

    harness = OneInputHarness(Everywhere("event"), key=key_of)
    harness.input.push(Order("a"), Order("b"))
    harness.input.push_event_time(10)
    assert harness.event_timers("a") == harness.event_timers("b") == [20]
    harness.input.push_event_time(20)
    assert sorted(harness.output.records) == [Fired("a", 20, 20), Fired("b", 20, 20)]


def test_function_without_the_callback_is_not_affected() -> None:
    class WithoutCallback(OneInputStreamProcessFunction[str, str]):
        def process_record(self, record: str, output: Any, ctx: Any) -> None:
            ctx.processing_time_manager.register_timer(5)
            output.collect(record)

    harness = OneInputHarness(WithoutCallback(), key=str)
    harness.input.push("a")
    harness.advance_clock(ms(10))
    assert (harness.output.records, harness.processing_timers("a")) == (["a"], [])
