"""Joins of every kind against slow ones, event by event: results, timestamps, late rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from dsv2.extension.join import JoinType, interval_join, join, window_join
from dsv2.extension.window import TimeType, WindowStrategy
from tests.oracles.joins import Row, SlowIntervalJoin, SlowWindowJoin
from tests.property.joining import Event, JoinDriver, histories, pair

any_join: Any = interval_join  # its overloads each take one type
any_window_join: Any = window_join
each_type = pytest.mark.parametrize("join_type", JoinType, ids=lambda join_type: join_type.value)


def with_bounds(count: int) -> Iterator[tuple[list[Event], int, int]]:
    for number, history in enumerate(histories(count)):
        choice = random.Random(number)
        lower, upper = sorted((choice.randint(-5, 5), choice.randint(-5, 5)))
        yield history, lower, upper


def test_a_join_gives_a_pair_when_the_second_of_it_comes() -> None:
    for history in histories(50):
        driver = JoinDriver(join(pair))
        came: list[tuple[int, Row]] = []
        for event in history:
            expected: list[Any] = []
            if isinstance(row := event.element, Row):
                partners = [other for side, other in came if side != event.side and other.key == row.key]
                expected = [((row, other) if event.side == 0 else (other, row), row.timestamp) for other in partners]
                came.append((event.side, row))
            assert [(joined, timestamp) for joined, timestamp, _ in driver.take(event)] == expected, history
        assert driver.harness.ended


@each_type
def test_an_interval_join_gives_what_the_slow_one_gives(join_type: JoinType) -> None:
    for history, lower, upper in with_bounds(200):
        driver = JoinDriver(any_join(pair, lower, timedelta(milliseconds=upper), join_type))
        slow = SlowIntervalJoin(join_type.value, lower, upper)
        for event in history:
            before = driver.event_time
            results = driver.take(event)
            if isinstance(event.element, Row):
                expected = slow.take(event.side, event.element, before)
            else:
                expected = slow.move_to(driver.event_time)
            found = Counter((joined, timestamp) for joined, timestamp, _ in results)
            assert found == Counter(expected), (history, lower, upper)
            assert all(timestamp > forwarded for _, timestamp, forwarded in results), "none is late downstream"
        assert driver.harness.ended
        assert driver.counter("late_records_dropped") == len(slow.late)


WINDOWS = {
    "tumbling": (WindowStrategy.tumbling(5), {"size": 5, "slide": 5}),
    "sliding": (WindowStrategy.sliding(6, 2), {"size": 6, "slide": 2}),
    "late": (WindowStrategy.tumbling(4, TimeType.EVENT, 3), {"size": 4, "slide": 4, "lateness": 3}),
    "session": (WindowStrategy.session(2), {"gap": 2}),
}


@pytest.mark.parametrize("windows", WINDOWS)
@each_type
def test_a_window_join_gives_what_the_slow_one_gives(join_type: JoinType, windows: str) -> None:
    strategy, parameters = WINDOWS[windows]
    for history in histories(60):
        driver = JoinDriver(any_window_join(strategy, pair, join_type))
        slow = SlowWindowJoin(join_type.value, **parameters)
        for event in history:
            before = driver.event_time
            results = driver.take(event)
            if isinstance(event.element, Row):
                expected = slow.take(event.side, event.element, before)
            else:
                expected = slow.move_to(driver.event_time)
            found = Counter((joined, timestamp) for joined, timestamp, _ in results)
            assert found == Counter(expected), history
        assert driver.harness.ended
        assert driver.counter("late_records_dropped") == len(slow.late)


@pytest.mark.parametrize("windowed", [False, True])
def test_late_rows_go_where_they_are_wanted(windowed: bool) -> None:
    def late(side: int) -> Any:
        return lambda row, output, ctx: output.collect(("late", side, row))

    wanted = {"on_late_left": late(0), "on_late_right": late(1)}
    for history, lower, upper in with_bounds(50):
        slow: SlowIntervalJoin | SlowWindowJoin
        if windowed:
            function, slow = (
                any_window_join(WINDOWS["sliding"][0], pair, **wanted),
                SlowWindowJoin("inner", size=6, slide=2),
            )
        else:
            function, slow = any_join(pair, lower, upper, **wanted), SlowIntervalJoin("inner", lower, upper)
        driver = JoinDriver(function)
        found: list[Any] = []
        for event in history:
            before = driver.event_time
            found += [(row, timestamp) for row, timestamp, _ in driver.take(event) if row[0] == "late"]
            if isinstance(event.element, Row):
                slow.take(event.side, event.element, before)
        assert found == [(("late", side, row), row.timestamp) for side, row in slow.late], history
        assert driver.counter("late_records_dropped") == 0
