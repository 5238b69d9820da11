"""The number of timers in the progress, compared with a model, in both layouts, when callbacks fail and state moves."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ErrorPolicy
from dsv2.extension.event_time import EventTimeExtension, EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.functions import AsyncOneInputStreamProcessFunction
from dsv2.runtime.exchange.control_log import WATERMARK
from dsv2.sinks import CollectSink
from dsv2.testing import OneInputHarness
from dsv2.watermark.event_time import EVENT_TIME
from tests.strategies import long_lists
from tests.support import Driver, KeptEntries, Signal, local_environment


class Order(NamedTuple):
    """Timers of both kinds to set and to delete; then the callback may fail."""

    key: int
    set: tuple[int, ...]
    unset: tuple[int, ...]
    fails: bool


class Alarms(OneInputEventTimeStreamProcessFunction[Order, int]):
    """Sets timers in event time, and twice that in processing time. Timers at multiples of seven fail."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        for time in record.set:
            self.event_time.register_timer(time)
            ctx.processing_time_manager.register_timer(2 * time)
        for time in record.unset:
            self.event_time.delete_timer(time)
        if record.fails:
            raise ValueError(record.key)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.event_time.register_timer(timestamp + 50)
        if timestamp % 7 == 0:
            raise ValueError(timestamp)


TIMES = st.lists(st.integers(1, 60), max_size=3).map(tuple)
ORDERS = st.builds(Order, st.integers(0, 150), TIMES, TIMES, st.booleans())
STEPS = long_lists(
    ORDERS
    | st.tuples(st.sampled_from(["clock", "event time"]), st.integers(1, 30))
    | st.tuples(st.sampled_from(["restart", "savepoint"]), st.just(0)),
    max_size=40,
)


class Model:
    """The timers of all keys."""

    def __init__(self) -> None:
        self.now = self.time = 0
        self.by_clock: defaultdict[int, set[int]] = defaultdict(set)
        self.by_event: defaultdict[int, set[int]] = defaultdict(set)

    def order(self, order: Order) -> None:
        if not order.fails:
            self.by_event[order.key] |= {*order.set}
            self.by_clock[order.key] |= {2 * time for time in order.set}
            self.by_event[order.key] -= {*order.unset}

    def pass_to(self, now: int) -> None:
        self.now = now
        for key, timers in self.by_clock.items():
            self.by_clock[key] = {timer for timer in timers if timer > now}

    def advance(self, time: int) -> None:
        self.time = time
        for timers in self.by_event.values():
            while due := [timer for timer in timers if timer <= time]:
                timers.remove(min(due))
                if min(due) % 7:
                    timers.add(min(due) + 50)

    @property
    def count(self) -> int:
        return sum(map(len, [*self.by_clock.values(), *self.by_event.values()]))


def new_driver(entries: KeptEntries | None) -> Driver:
    env = local_environment()
    times: Any = EventTimeExtension.new_watermark_generator_builder(hash).per_event_watermark()
    timed: Any = env.from_collection(list[Order](), "in").process(times.build_as_process_function())
    timed.to_sink(CollectSink()).with_uid("all")  # so that the function is not chained
    alarms = timed.key_by(lambda order: order.key).process(Alarms()).with_uid("f")
    alarms.with_error_policy(ErrorPolicy().skip(ValueError))
    alarms.to_sink(CollectSink())
    return Driver(env.build_plan(), "f", entries=entries).open()


@given(st.none() | st.builds(KeptEntries), STEPS)
def test_count_is_exact(entries: KeptEntries | None, steps: list[Any]) -> None:
    driver, model = new_driver(entries), Model()
    for step in steps:
        match step:
            case Order():
                driver.send(step)
                model.order(step)
            case "clock", int(duration):
                model.pass_to(model.now + duration)
                driver.pass_time(model.now)
            case "event time", int(duration):
                model.advance(model.time + duration)
                driver.send(Signal(WATERMARK, EVENT_TIME, model.time))
            case "restart", _:
                driver.restart()
            case _:
                driver.restart_from(driver.rows())
        assert driver.progress("f").timers == model.count


class Asks(AsyncOneInputStreamProcessFunction[Order, int]):
    """Sets timers around a pause."""

    async def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        first, *others = record.set or (1,)
        ctx.processing_time_manager.register_timer(first)
        await asyncio.sleep(0.001 * len(record.unset))
        for time in others:
            ctx.processing_time_manager.register_timer(time)
        if record.fails:
            raise ValueError(record.key)


@given(st.lists(ORDERS.map(lambda order: order._replace(key=order.key % 4)), max_size=12))
def test_count_is_exact_while_several_keys_are_in_flight(orders: list[Order]) -> None:
    policy = ErrorPolicy().skip(ValueError)
    harness = OneInputHarness(Asks(), key=lambda order: order.key, error_policy=policy, checks=False)
    harness.input.push(*orders)
    timers = {(order.key, time) for order in orders if not order.fails for time in order.set or (1,)}
    assert harness.progress.subtasks[0].timers == len(timers)
