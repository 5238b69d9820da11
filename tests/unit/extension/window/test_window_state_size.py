"""Size of window state in bytes: open windows are kept, and ended windows leave nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import OutputTag
from dsv2.extension.window import TimeType, WindowStrategy
from dsv2.extension.window.process_functions import aggregated, reduced, windowed
from dsv2.functions import ProcessFunction
from dsv2.state import aggregate_of
from tests.durations import ms
from tests.windows import (
    TwoInputWindowRecorder,
    TwoOutputWindowRecorder,
    WindowDriver,
    WindowRecorder,
)

EVENT, PROCESSING = TimeType.EVENT, TimeType.PROCESSING
KEYS = 499
NOTHING = 60  # bytes: event time and the numbers of records have more digits

# Each with the time at which the last window of records up to 99 ms is removed.
STRATEGIES = {
    "tumbling": (WindowStrategy.tumbling(ms(10)), 99),
    "tumbling, late": (WindowStrategy.tumbling(ms(10), EVENT).with_allowed_lateness(ms(20)), 119),
    "tumbling, early": (WindowStrategy.tumbling(ms(10)).with_early_firing(ms(3), EVENT), 99),
    "sliding": (WindowStrategy.sliding(ms(20), ms(5)), 114),
    "session": (WindowStrategy.session(ms(5)), 103),
    "session, early": (WindowStrategy.session(ms(5)).with_early_firing(ms(2), EVENT), 103),
}


def letters(record: str, so_far: str) -> str:
    return so_far + record[0]


FUNCTIONS: dict[str, Callable[[WindowStrategy], ProcessFunction]] = {
    "records": lambda strategy: windowed(strategy, WindowRecorder()),
    "two inputs": lambda strategy: windowed(strategy, TwoInputWindowRecorder()),
    "two outputs": lambda strategy: windowed(strategy, TwoOutputWindowRecorder()),
    "aggregated": lambda strategy: aggregated(
        strategy, aggregate_of(str, letters, str, lambda one, other: one + other)
    ),
    "late output": lambda strategy: reduced(strategy, max, late_tags=(OutputTag("late", str),)),
}


def key_of(record: str) -> str:
    return record.partition(" ")[0]


def pair_of_drivers(function: Callable[[], ProcessFunction]) -> tuple[WindowDriver, WindowDriver]:
    """One driver to be filled, and one that stays unused."""
    return WindowDriver(function(), key_of), WindowDriver(function(), key_of)


def fill(driver: WindowDriver, times: range) -> None:
    """Push four records of each key, with timestamps in ``times``."""
    records = [f"key{number % KEYS} {number}" for number in range(4 * KEYS)]
    driver.records(records, [times[number * 37 % len(times)] for number in range(4 * KEYS)])


def move(driver: WindowDriver, time: int, channels: int) -> None:
    for channel in range(channels):
        driver.event_time(time, channel)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_records_are_removed_with_event_time(function: str, strategy: str) -> None:
    windows, gone = STRATEGIES[strategy]
    channels = 2 if function == "two inputs" else 1
    driver, unused = pair_of_drivers(lambda: FUNCTIONS[function](windows))
    fill(driver, range(100))
    full = len(driver.state())
    assert full > 10 * KEYS
    move(driver, 50, channels)
    assert len(driver.restart().state()) < 0.9 * full
    move(driver, gone - 1, channels)
    assert len(driver.state()) > len(unused.state()) + NOTHING
    for each in (driver, unused):
        move(each, gone, channels)
    assert abs(len(driver.state()) - len(unused.state())) < NOTHING
    assert abs(len(driver.restart().state()) - len(unused.state())) < NOTHING


@pytest.mark.parametrize(
    "windows",
    [
        WindowStrategy.tumbling(ms(10), PROCESSING),
        WindowStrategy.sliding(ms(10), ms(5), PROCESSING),
        WindowStrategy.session(ms(9), PROCESSING).with_early_firing(ms(2)),
    ],
    ids=lambda windows: windows.layout,
)
def test_records_are_removed_with_processing_time(windows: WindowStrategy) -> None:
    driver, unused = pair_of_drivers(lambda: windowed(windows, WindowRecorder()))
    fill(driver.clock(5), range(100))
    assert len(driver.restart().state()) > 10 * KEYS
    for each in (driver, unused):
        each.clock(30)
    assert abs(len(driver.state()) - len(unused.state())) < NOTHING


@pytest.mark.parametrize(
    "windows",
    [
        WindowStrategy.global_(),
        WindowStrategy.global_().with_early_firing(ms(10)),
        WindowStrategy.count(3),
        WindowStrategy.count(5, 3).with_early_firing(ms(10), EVENT),
        WindowStrategy.tumbling(ms(10)).with_early_firing(ms(3)),
    ],
    ids=lambda windows: f"{windows.layout} {windows.early_firing}",
)
def test_records_are_removed_at_the_end_of_input(windows: WindowStrategy) -> None:
    driver, unused = pair_of_drivers(lambda: windowed(windows, WindowRecorder()))
    fill(driver.clock(5), range(100))
    assert len(driver.restart().state()) > 10 * KEYS
    for each in (driver, unused):
        each.end()
    assert abs(len(driver.state()) - len(unused.state())) < NOTHING


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_unbounded_job_keeps_only_open_windows(strategy: str) -> None:
    """New keys and new times in every round: the state is as large after many rounds as after a few."""
    driver = WindowDriver(windowed(STRATEGIES[strategy][0], WindowRecorder()), key_of)
    sizes: list[int] = []
    for number in range(1000, 1040):  # numbers with the same count of digits
        records: list[Any] = [f"key{number * 50 + n} {n}" for n in range(100)]
        driver.records(records, [number * 10 + n % 10 for n in range(100)])
        driver.event_time(number * 10)
        sizes.append(len(driver.state()))
        if number % 10 == 0:
            driver.restart()
    assert max(sizes[20:]) < 1.1 * max(sizes[5:20])


def test_growing_session_has_one_timer() -> None:
    driver = WindowDriver(reduced(WindowStrategy.session(ms(10)), max), key_of).record("key 0", 0)
    before = len(driver.state())
    for time in range(1, 1000):
        driver.record("key 0", time)
    assert len(driver.state()) < before + NOTHING
