"""The versioned join: late records, state and its removal, rescaling, failures."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from dsv2 import ErrorPolicy
from dsv2.errors import ConfigurationError, PlanError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.sinks import CollectSink
from dsv2.state import StateTtl
from dsv2.testing import ManualClock, StampedRecord, TwoInputNonBroadcastHarness
from tests.durations import ms
from tests.support import local_environment

any_join: Any = join  # each of its overloads accepts one type
EVENT = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION


class Sale(NamedTuple):
    key: str
    number: int


class Price(NamedTuple):
    key: str
    cents: int | None


def pair(sale: Sale, price: Price | None, output: Any, ctx: Any) -> None:
    output.collect((sale.number, price.cents if price is not None else None))


def is_gone(price: Price) -> bool:
    return price.cents is None


def key_of(record: Any) -> str:
    return str(record[0])


def harness_of(function: Any = None, **options: Any) -> TwoInputNonBroadcastHarness[Sale, Price, Any]:
    function = function if function is not None else any_join(pair, JoinMode.versioned(), is_deletion=is_gone)
    options = {"declarations": [EVENT], "clock": ManualClock(0), **options}
    return TwoInputNonBroadcastHarness(function, first_key=key_of, second_key=key_of, **options)


def move_to(harness: TwoInputNonBroadcastHarness[Any, Any, Any], time: int) -> None:
    harness.first_input.push_event_time(time)
    harness.second_input.push_event_time(time)


@pytest.mark.parametrize("join_type", [JoinType.RIGHT, JoinType.FULL, JoinType.SEMI, JoinType.ANTI])
def test_other_join_types_are_refused(join_type: JoinType) -> None:
    with pytest.raises(ConfigurationError) as refused:
        any_join(pair, JoinMode.versioned(), join_type)
    assert f"join_type of a versioned join must be INNER or LEFT, not {join_type}, because" in str(refused.value)


def test_left_record_waits_for_both_inputs() -> None:
    harness = harness_of()
    harness.second_input.push(Price("a", 1), timestamp=10)
    harness.first_input.push(Sale("a", 7), timestamp=20)
    harness.first_input.push_event_time(99)
    assert harness.output.records == []
    harness.second_input.push(Price("a", 2), timestamp=20)
    harness.second_input.push(Price("a", 3), timestamp=21)
    harness.second_input.push_event_time(20)
    assert harness.output.elements == [StampedRecord((7, 2), 20), EVENT.new_watermark(20)]


def test_late_records_are_counted() -> None:
    harness = harness_of()
    harness.second_input.push(Price("a", 1), timestamp=10)
    move_to(harness, 20)
    harness.first_input.push(Sale("a", 7), timestamp=20)
    harness.second_input.push(Price("a", 2), timestamp=9)
    assert harness.progress.counters["late_records_dropped"] == 2
    harness.second_input.push(Price("a", 3), timestamp=15)
    harness.first_input.push(Sale("a", 8), timestamp=21)
    move_to(harness, 30)
    assert harness.output.records == [(8, 3)], "the last version up to event time still counts"
    assert harness.progress.counters["late_records_dropped"] == 2


def test_late_version_does_not_undo_a_deletion() -> None:
    harness = harness_of(any_join(pair, JoinMode.versioned(), "left", is_deletion=is_gone))
    harness.second_input.push(Price("a", None), timestamp=10)
    move_to(harness, 20)
    harness.second_input.push(Price("a", 1), timestamp=9)
    harness.first_input.push(Sale("a", 8), timestamp=21)
    move_to(harness, 30)
    assert harness.output.records == [(8, None)]


def test_one_version_up_to_event_time_is_kept() -> None:
    harness = harness_of()
    harness.second_input.push(Price("a", 0), timestamp=0)
    move_to(harness, 0)
    unused = len(harness.snapshot())
    for number in range(1, 500):
        harness.second_input.push(Price("a", number), timestamp=number)
    waiting = len(harness.snapshot())
    move_to(harness, 999)
    assert len(harness.snapshot()) < unused + 50 < waiting
    for number in range(500, 999):
        harness.second_input.push(Price("a", number), timestamp=number)
    assert len(harness.snapshot()) < unused + 50, "late ones"


def test_left_records_without_versions_leave_nothing() -> None:
    harness = harness_of()
    for number in range(10):
        harness.first_input.push(Sale(f"key {number}", number), timestamp=number)
    assert len(harness.keys) == 10
    move_to(harness, 9)
    assert harness.keys == []


def test_keys_without_changes_expire() -> None:
    harness = harness_of(any_join(pair, JoinMode.versioned(StateTtl(ms(100)))))
    harness.second_input.push(Price("a", 1), timestamp=10)
    move_to(harness, 20)
    harness.advance_clock(ms(100))
    assert harness.keys == []


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
def test_state_is_redistributed(before: int, after: int) -> None:
    keys = [f"key {number}" for number in range(20)]

    def subtasks(count: int, **options: Any) -> list[TwoInputNonBroadcastHarness[Sale, Price, Any]]:
        return [harness_of(parallelism=count, max_parallelism=8, subtask=n, **options) for n in range(count)]

    old = subtasks(before)
    for number, key in enumerate(keys):
        own = old[subtask_of(key, 8, before)]
        own.second_input.push(Price(key, number), timestamp=1)
        own.first_input.push(Sale(key, number), timestamp=5)
    new = subtasks(after, rescaled=[one.snapshot() for one in old])
    for one in new:
        move_to(one, 10)
    assert sorted(record for one in new for record in one.output.records) == [(n, n) for n in range(20)]


def test_records_require_timestamps() -> None:
    for side in ("first_input", "second_input"):
        with pytest.raises(UserFunctionError, match="A versioned join requires records with timestamps"):
            getattr(harness_of(), side).push(Sale("a", 1))


def test_failed_record_is_named() -> None:
    def failing(sale: Sale, price: Price, output: Any, ctx: Any) -> None:
        if sale.number == 2:
            raise ValueError("on purpose")

    harness = harness_of(any_join(failing, JoinMode.versioned()))
    harness.second_input.push(Price("a", 1), timestamp=1)
    harness.first_input.push(Sale("a", 1), Sale("a", 2), timestamp=3)
    with pytest.raises(UserFunctionError) as failed:
        move_to(harness, 5)
    error = failed.value
    assert (error.callback, error.cause_type, error.key) == ("process_record", "ValueError", "'a'")
    assert error.record == "Sale(key='a', number=2)"
    harness = harness_of(any_join(pair, JoinMode.versioned(), is_deletion=lambda price: price.nothing))
    with pytest.raises(UserFunctionError) as failed:
        harness.second_input.push(Price("a", 1), timestamp=1)
    assert (failed.value.callback, failed.value.cause_type) == ("is_deletion", "AttributeError")


def test_error_policy_is_refused() -> None:
    env = local_environment()
    stream = env.from_collection([Sale("a", 1)]).key_by(key_of)
    joined = stream.connect_and_process(stream, any_join(pair, JoinMode.versioned()))
    joined.with_error_policy(ErrorPolicy().skip()).to_sink(CollectSink())
    with pytest.raises(PlanError, match="one timer joins all records with the same timestamp"):
        env.build_plan()
