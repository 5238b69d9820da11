"""Time to live in event time."""

from __future__ import annotations

from typing import Any

import pytest

from dsv2.errors import StateDeclarationError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.state import StateDeclarations, StateTtl, TtlTimeCharacteristic, TtlUpdate
from dsv2.testing import OneInputHarness
from dsv2.watermark.event_time import LONG_MAX
from tests.durations import ms

TTL = StateTtl(ms(100), time_characteristic="event-time")
LAST = StateDeclarations.value_state("last", int, ttl=TTL)
BY_CLOCK = StateDeclarations.value_state("by clock", int, ttl=StateTtl(ms(100)))


class Last(OneInputStreamProcessFunction[int, Any]):
    """Emits each record with the earlier one that has not expired."""

    dsv2_remember_keys = False

    def __init__(self, *states: Any) -> None:
        self.states = states or (LAST,)

    def uses_states(self) -> Any:
        return self.states

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        states = [ctx.state_manager.get_state(state) for state in self.states]
        output.collect((record, *(state.value() for state in states)))
        for state in states:
            state.update(record)

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(
            lambda output, partition: output.collect(partition.state_manager.get_state(self.states[0]).value())
        )


def new_harness(function: Any = None, **options: Any) -> OneInputHarness[int, Any]:
    return OneInputHarness(function or Last(), key=lambda record: record % 2, **options)


@pytest.mark.parametrize(("event_time", "last"), [(199, 100), (200, None)])
def test_value_expires_when_event_time_has_reached_its_end(event_time: int, last: int | None) -> None:
    harness = new_harness()
    harness.input.push(100, timestamp=100)
    harness.advance_clock(ms(1_000_000))  # the clock does not matter
    harness.input.push_event_time(event_time)
    harness.input.push(300, timestamp=300)
    assert harness.output.records == [(100, None), (300, last)]


def test_late_record_updates_at_event_time() -> None:
    harness = new_harness()
    harness.input.push_event_time(500)
    harness.input.push(2, timestamp=10)
    harness.input.push_event_time(599)
    harness.input.push(4, timestamp=20)
    harness.input.push_event_time(600)
    assert harness.output.records == [(2, None), (4, 2)]


def test_reading_may_renew() -> None:
    ttl = StateTtl(ms(100), TtlUpdate.ON_READ_AND_WRITE, TtlTimeCharacteristic.EVENT_TIME)
    state = StateDeclarations.value_state("read", int, ttl=ttl)

    class Read(Last):
        def process_record(self, record: int, output: Any, ctx: Any) -> None:
            value = ctx.state_manager.get_state(state)
            output.collect(value.value())
            if record == 0:
                value.update(record)

    harness = new_harness(Read(state))
    for time in (0, 80, 160, 270):
        harness.input.push_event_time(time)
        harness.input.push(time, timestamp=time)
    assert harness.output.records == [None, 0, 0, None]


def test_both_clocks_in_one_function() -> None:
    harness = new_harness(Last(LAST, BY_CLOCK))
    harness.input.push(0, timestamp=0)
    harness.advance_clock(ms(100))
    harness.input.push(2, timestamp=50)
    harness.input.push_event_time(150)
    harness.input.push(4, timestamp=160)
    assert harness.output.records == [(0, None, None), (2, 0, None), (4, None, 2)]
    harness.input.push_event_time(1_000)
    harness.advance_clock(ms(1_000))
    harness.restart()
    assert harness.keys == []


def test_end_of_input_expires_nothing_more() -> None:
    harness = new_harness()
    harness.input.push(0, timestamp=0)
    harness.input.push(101, timestamp=100)
    harness.input.push_event_time(150)
    harness.input.end()
    assert harness.output.records[2:] == [101]  # the other one had expired


def test_event_time_may_be_the_clock() -> None:
    from dsv2.extension.event_time import OneInputEventTimeStreamProcessFunction

    class InEventTime(OneInputEventTimeStreamProcessFunction[int, Any]):
        def uses_states(self) -> Any:
            return [LAST]

        def process_record(self, record: int, output: Any, ctx: Any) -> None:
            state = ctx.state_manager.get_state(LAST)
            output.collect(state.value())
            state.update(record)

    harness = new_harness(InEventTime())
    harness.input.push_use_processing_time()
    for _ in range(4):
        harness.input.push(0)
        harness.advance_clock(ms(60))
    harness.advance_clock(ms(100))
    harness.input.push(0)
    assert harness.output.records == [None, 0, 0, 0, None]


def test_update_without_timestamp_and_event_time_is_an_error() -> None:
    harness = new_harness()
    with pytest.raises(UserFunctionError, match="the record has no timestamp, and event time has not begun"):
        harness.input.push(0)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_expiry_moves_with_its_key(parallelism: int) -> None:
    def new(**options: Any) -> OneInputHarness[int, Any]:
        return OneInputHarness(Last(), key=lambda record: record % 10, **options)

    before = [new(parallelism=2, subtask=subtask) for subtask in range(2)]
    for harness in before:
        harness.input.push(*(key for key in range(10) if harness.owns(key)), timestamp=100)
        harness.input.push_event_time(100)
    snapshots = [harness.snapshot() for harness in before]
    for subtask in range(parallelism):
        after = new(parallelism=parallelism, subtask=subtask, rescaled=snapshots)
        own = [key for key in range(10) if after.owns(key)]
        after.input.push(*(key + 10 for key in own if key % 2), timestamp=120)
        assert after.output.records == [(key + 10, key) for key in own if key % 2]
        after.input.push_event_time(200)
        after.restart()
        after.restart()
        assert sorted(after.keys) == [key for key in own if key % 2]


def test_characteristic_is_checked() -> None:
    with pytest.raises(StateDeclarationError, match="time_characteristic must be one of 'processing-time', 'event-t"):
        StateTtl(ms(1), time_characteristic="event")  # type: ignore[arg-type]


def test_end_of_event_time_as_a_watermark_expires_nothing() -> None:
    harness = new_harness()
    harness.input.push(0, timestamp=0)
    harness.input.push_event_time(LONG_MAX)
    harness.input.push(2, timestamp=1)
    assert harness.output.records == [(0, None), (2, 0)]
