"""Triggers of windows: count, delta, purging, custom ones, and what they keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, sub
from typing import Any

import pytest

from dsv2 import ErrorPolicy
from dsv2.errors import ConfigurationError, ContractError, UserFunctionError
from dsv2.extension.window import (
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    OneInputWindowContext,
    OneInputWindowStreamProcessFunction,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TriggerContext,
    TriggerResult,
    WindowStrategy,
    WindowTrigger,
)
from dsv2.extension.window.process_functions import aggregated, reduced, windowed
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.spi import WrappingFunction
from dsv2.state import AggregateFunction, aggregate_of
from dsv2.testing import OneInputHarness
from dsv2.watermark.event_time import LONG_MAX
from tests.durations import ms

GLOBAL = WindowStrategy.global_()
TUMBLING = WindowStrategy.tumbling(ms(100))


class Show(OneInputWindowStreamProcessFunction[int, Any]):
    """Emits the records of each firing."""

    def on_trigger(self, output: Any, ctx: Any, window: OneInputWindowContext[int]) -> None:
        output.collect(window.get_all_records())


class ShowClears(Show):
    def on_clear(self, output: Any, ctx: Any, window: OneInputWindowContext[int]) -> None:
        output.collect("cleared")


def one_key(record: int) -> str:
    return "key"


def harness_of(
    strategy: WindowStrategy, trigger: WindowTrigger[Any], function: Any = None, key: Any = one_key, **options: Any
) -> OneInputHarness[int, Any]:
    triggered = strategy.with_trigger(trigger)
    return OneInputHarness(windowed(triggered, function or Show()), key=key, **options)


def pushed(harness: OneInputHarness[int, Any], records: Sequence[int], restart: bool = False) -> list[Any]:
    for record in records:
        harness.input.push(record, timestamp=record)
        if restart:
            harness.restart()
    return harness.output.records


def test_keys_and_windows_have_their_own_state() -> None:
    harness = harness_of(TUMBLING, PurgingTrigger(CountTrigger(2)), key=lambda record: record % 2)
    assert pushed(harness, [0, 1, 102, 103, 2, 104, 5]) == [[0, 2], [102, 104], [1, 5]]


def test_end_of_a_time_window_removes_it_without_firing() -> None:
    harness = harness_of(TUMBLING, CountTrigger(2), ShowClears())
    pushed(harness, [0, 1, 2])
    harness.input.push_event_time(99)
    assert harness.output.records == [[0, 1], "cleared"]
    assert harness.keys == []


def test_purged_window_is_removed_at_its_end() -> None:
    harness = harness_of(TUMBLING, PurgingTrigger(CountTrigger(2)), ShowClears())
    pushed(harness, [0, 1], restart=True)
    harness.input.push_event_time(99)
    assert harness.output.records == [[0, 1], "cleared"]
    assert harness.keys == []


def test_allowed_late_records_count() -> None:
    harness = harness_of(WindowStrategy.tumbling(ms(100)).with_allowed_lateness(ms(50)), CountTrigger(2))
    pushed(harness, [0])
    harness.input.push_event_time(120)
    pushed(harness, [1, 2])
    harness.input.push_event_time(149)
    pushed(harness, [3])
    assert harness.output.records == [[0, 1]]
    assert harness.keys == []


@pytest.mark.parametrize("lateness", [0, 50])
@pytest.mark.parametrize(
    "strategy",
    [
        lambda late: WindowStrategy.tumbling(ms(100)).with_allowed_lateness(ms(late)),
        lambda late: WindowStrategy.sliding(ms(100), ms(50)).with_allowed_lateness(ms(late)),
        lambda late: WindowStrategy.session(ms(20)),
        lambda late: GLOBAL,
    ],
)
def test_event_time_trigger_is_the_default(strategy: Callable[[int], WindowStrategy], lateness: int) -> None:
    plain = OneInputHarness(windowed(strategy(lateness), Show()), key=one_key)
    triggered = harness_of(strategy(lateness), EventTimeTrigger())
    for harness in (plain, triggered):
        for record in (0, 30, 10, 130, 190, 170):
            harness.input.push(record, timestamp=record)
            harness.input.push_event_time(record - 5)
            harness.restart()
        harness.end()
    assert triggered.output.stamped_records == plain.output.stamped_records
    assert plain.output.records


def test_processing_time_trigger_is_the_default_of_processing_time() -> None:
    strategy = WindowStrategy.tumbling(ms(100), "processing")
    plain = OneInputHarness(windowed(strategy, Show()), key=one_key)
    triggered = harness_of(strategy, ProcessingTimeTrigger())
    for harness in (plain, triggered):
        for record in range(5):
            harness.input.push(record)
            harness.advance_clock(ms(40))
        harness.end()
    assert triggered.output.stamped_records == plain.output.stamped_records
    assert plain.output.records == [[0, 1, 2], [3, 4]]


def test_purged_session_keeps_its_end_and_forgets_its_records() -> None:
    harness = harness_of(WindowStrategy.session(ms(20)), PurgingTrigger(CountTrigger(2)))
    assert pushed(harness, [0, 10, 20, 30, 31], restart=True) == [[0, 10], [20, 30]]
    harness.input.push_event_time(50)
    assert harness.keys == []


class EveryTen(WindowTrigger[int]):
    """Fires every ten milliseconds of event time, and purges with each fire."""

    def on_record(self, record: int, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        assert timestamp == record
        if ctx.state is None:
            ctx.state = record - record % 10 + 10
            ctx.register_event_timer(ctx.state)
        return TriggerResult.CONTINUE

    def on_event_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        assert timestamp == ctx.state <= ctx.current_event_time
        ctx.state = timestamp + 10
        if ctx.state < ctx.end_time:
            ctx.register_event_timer(ctx.state)
        return TriggerResult.FIRE_AND_PURGE


def test_custom_trigger_has_timers_and_state() -> None:
    harness = harness_of(TUMBLING, EveryTen())
    pushed(harness, [3, 5, 12], restart=True)
    harness.input.push_event_time(9)
    assert harness.output.records == []
    harness.input.push_event_time(10)
    harness.restart()
    pushed(harness, [13], restart=True)
    harness.input.push_event_time(45)
    pushed(harness, [91])
    harness.end()
    assert harness.output.records == [[3, 5, 12], [13], [91]]
    assert harness.output.timestamps == [99] * 3


class AfterSilence(WindowTrigger[int]):
    """Fires when no record has arrived for 50 ms."""

    def on_record(self, record: int, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        if ctx.state is not None:
            ctx.delete_processing_timer(ctx.state)
        ctx.state = ctx.current_processing_time + 50
        ctx.register_processing_timer(ctx.state)
        return TriggerResult.CONTINUE

    def on_processing_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE


class FailsAt(EveryTen):
    """Fails at one of its timers, after it has changed its state."""

    def __init__(self, time: int) -> None:
        self._time = time

    def on_event_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        if timestamp == self._time:
            ctx.register_event_timer(timestamp + 1)
            raise ZeroDivisionError
        return TriggerResult.FIRE


@pytest.mark.parametrize("strategy", [TUMBLING, GLOBAL])
def test_timer_that_is_skipped_does_not_come_again(strategy: WindowStrategy) -> None:
    harness = harness_of(strategy, FailsAt(10), error_policy=ErrorPolicy().skip(ZeroDivisionError))
    pushed(harness, [3])
    for time in (10, 11, 98):
        harness.input.push_event_time(time)
        harness.restart()
    harness.end()
    assert harness.output.records == []
    assert harness.progress.counters == {"errors_skipped": 1}


def test_window_whose_trigger_fails_at_its_end_is_removed() -> None:
    harness = harness_of(TUMBLING, FailsAt(10), ShowClears(), error_policy=ErrorPolicy().skip(ZeroDivisionError))
    pushed(harness, [3])
    harness.input.push_event_time(200)
    assert harness.progress.counters == {"errors_skipped": 1}
    pushed(harness, [205])
    harness.end()
    assert harness.output.records == ["cleared", [205], "cleared"]


def test_custom_trigger_in_processing_time() -> None:
    harness = harness_of(GLOBAL, AfterSilence())
    for record in range(3):
        harness.input.push(record)
        harness.advance_clock(ms(30))
    assert harness.output.records == []
    harness.advance_clock(ms(30))
    assert harness.output.records == [[0, 1, 2]]


def test_incremental_windows_may_be_purged() -> None:
    purging = PurgingTrigger(CountTrigger(2))
    counted: AggregateFunction[int, int, int] = aggregate_of(int, add, int)
    total: OneInputStreamProcessFunction[int, int] = aggregated(TUMBLING.with_trigger(purging), counted)
    largest: OneInputStreamProcessFunction[int, int] = reduced(GLOBAL.with_trigger(purging), max)
    found = [pushed(OneInputHarness(one, key=one_key), [1, 2, 3, 4, 5], restart=True) for one in (total, largest)]
    assert found == [[3, 7], [2, 4]]


def test_timer_does_not_fire_a_purged_window() -> None:
    class PurgeAtOnce(EventTimeTrigger):
        def on_record(self, record: object, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
            super().on_record(record, timestamp, ctx)
            return TriggerResult.PURGE

    harness = harness_of(TUMBLING, PurgeAtOnce())
    pushed(harness, [1, 2])
    harness.input.push_event_time(LONG_MAX - 1)
    assert harness.output.records == []


@pytest.mark.parametrize("parallelism", [1, 3])
def test_state_of_triggers_moves_with_its_keys(parallelism: int) -> None:
    def new(**options: Any) -> OneInputHarness[int, Any]:
        return harness_of(TUMBLING, PurgingTrigger(CountTrigger(2)), key=lambda record: record % 20, **options)

    before = [new(parallelism=2, subtask=subtask) for subtask in range(2)]
    for harness in before:
        pushed(harness, [key for key in range(20) if harness.owns(key)])
    snapshots = [harness.snapshot() for harness in before]
    found = []
    for subtask in range(parallelism):
        after = new(parallelism=parallelism, subtask=subtask, rescaled=snapshots)
        found += pushed(after, [key + 20 for key in range(20) if after.owns(key)])
    assert sorted(found) == [[key, key + 20] for key in range(20)]


def test_layout_names_the_trigger() -> None:
    plain, triggered = windowed(GLOBAL, Show()), windowed(GLOBAL.with_trigger(PurgingTrigger(CountTrigger(2))), Show())
    assert isinstance(plain, WrappingFunction)
    assert isinstance(triggered, WrappingFunction)
    assert triggered.state_layout == f"{plain.state_layout} and are fired by PurgingTrigger of CountTrigger"


class Wrong(WindowTrigger[int]):
    def on_record(self, record: int, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        return True  # type: ignore[return-value]


def test_result_must_be_a_trigger_result() -> None:
    harness = harness_of(GLOBAL, Wrong())
    with pytest.raises(UserFunctionError, match=r"Wrong.on_record returned True, not a TriggerResult") as failed:
        harness.input.push(1)
    assert failed.value.callback == "Wrong.on_record"
    assert failed.value.record == "1"
    assert isinstance(failed.value.cause, ContractError)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TUMBLING.with_trigger(CountTrigger), "takes a WindowTrigger"),  # type: ignore[arg-type]
        (lambda: WindowStrategy.count(3).with_trigger(CountTrigger(2)), "Count windows have their own trigger"),
        (lambda: WindowStrategy.session(ms(5)).with_trigger(DeltaTrigger(1, sub)), "DeltaTrigger cannot be used for"),
        (
            lambda: WindowStrategy.session(ms(5)).with_trigger(PurgingTrigger(DeltaTrigger(1, sub))),
            "PurgingTrigger of DeltaTrigger cannot be used for sessions",
        ),
        (lambda: TUMBLING.with_early_firing(ms(5)).with_trigger(CountTrigger(2)), "fire early cannot have a trigger"),
        (lambda: TUMBLING.with_trigger(CountTrigger(2)).with_early_firing(ms(5)), "with a trigger cannot fire early"),
        (lambda: CountTrigger(0), "count must be a whole number of at least 1"),
        (lambda: DeltaTrigger("1", sub), "threshold must be a number"),  # type: ignore[arg-type]
        (lambda: DeltaTrigger(1, len), "delta must be a callable"),  # type: ignore[arg-type]
        (lambda: PurgingTrigger(3), "PurgingTrigger takes a WindowTrigger"),  # type: ignore[arg-type]
    ],
)
def test_wrong_triggers_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()
