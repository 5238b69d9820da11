"""Joins of every kind, compared with slow ones, event by event: results, timestamps, late rows, other parallelisms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.extension.window import TimeType, WindowStrategy
from dsv2.state import StateTtl, TtlUpdate
from dsv2.testing import EndOfInput, StampedRecord, TwoInputNonBroadcastHarness
from dsv2.watermark.event_time import LONG_MAX
from tests.durations import ms
from tests.oracles.joins import Joined, Row, SlowIntervalJoin, SlowJoin, SlowRunningWindowJoin, SlowWindowJoin
from tests.profiles import examples
from tests.property.joining import HISTORIES, Event, JoinDriver, Wait, event_time, joined_columns, key_of, pair

EVENT, PROCESSING = TimeType.EVENT, TimeType.PROCESSING
any_join: Any = join  # each of its overloads accepts one type
columns = pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
each_type = pytest.mark.parametrize("join_type", JoinType, ids=lambda join_type: join_type.value)


BOUNDS = st.tuples(st.integers(-5, 5), st.integers(-5, 5)).map(lambda bounds: (min(bounds), max(bounds)))
LIFETIMES = {
    "for ever": None,
    "since they came": StateTtl(ms(10)),
    "since they met": StateTtl(ms(10), TtlUpdate.ON_READ_AND_WRITE),
}


def new_driver(mode: JoinMode, join_type: JoinType = JoinType.INNER, *, columns: bool) -> JoinDriver:
    return JoinDriver(joined_columns(mode, join_type) if columns else any_join(pair, mode, join_type))


@columns
@pytest.mark.parametrize("lifetime", LIFETIMES)
@examples(15)
@given(history=HISTORIES)
def test_join_emits_a_pair_with_its_second_row(lifetime: str, columns: bool, history: list[Event]) -> None:
    driver = new_driver(JoinMode.unbounded(ttl=LIFETIMES[lifetime]), columns=columns)
    slow = SlowJoin(10 if LIFETIMES[lifetime] else None, renews=lifetime == "since they met")
    for event in history:
        results = driver.take(event)
        expected: list[Joined] = []
        if isinstance(event.element, Row):
            expected = slow.take(event.side, event.element)
        elif isinstance(event.element, Wait):
            slow.wait(event.element.ms)
        assert [(joined, timestamp) for joined, timestamp, _ in results] == expected
    assert driver.harness.ended


@columns
@each_type
@examples(10)
@given(history=HISTORIES, bounds=BOUNDS)
def test_interval_join_matches_the_slow_one(
    join_type: JoinType, columns: bool, history: list[Event], bounds: tuple[int, int]
) -> None:
    lower, upper = bounds
    driver = new_driver(JoinMode.interval(ms(lower), ms(upper)), join_type, columns=columns)
    compare_intervals(driver, SlowIntervalJoin(join_type.value, lower, upper), history)


@each_type
@examples(10)
@given(history=HISTORIES, lower=st.integers(-5, 5))
def test_interval_that_ends_with_a_field_matches_the_slow_one(
    join_type: JoinType, history: list[Event], lower: int
) -> None:
    driver = new_driver(JoinMode.interval(ms(lower), "number"), join_type, columns=True)
    compare_intervals(driver, SlowIntervalJoin(join_type.value, lower, None), history)


def compare_intervals(driver: JoinDriver, slow: SlowIntervalJoin, history: list[Event]) -> None:
    """Compare the results of each event."""
    for event in history:
        before = driver.event_time
        results = driver.take(event)
        if isinstance(event.element, Row):
            expected = slow.take(event.side, event.element, before)
        else:
            expected = slow.move_to(driver.event_time)
        assert Counter((joined, timestamp) for joined, timestamp, _ in results) == Counter(expected)
        assert all(timestamp > forwarded for _, timestamp, forwarded in results), "none is late downstream"
    assert driver.harness.ended
    assert driver.counter("late_records_dropped") == len(slow.late)


@each_type
@examples(10)
@given(history=HISTORIES, bounds=BOUNDS)
def test_interval_join_by_the_clock_matches_the_slow_one(
    join_type: JoinType, history: list[Event], bounds: tuple[int, int]
) -> None:
    """A row arrives at the time of the clock, which takes the place of its timestamp."""
    lower, upper = bounds
    driver = JoinDriver(any_join(pair, JoinMode.interval(ms(lower), ms(upper), "processing"), join_type))
    slow = SlowIntervalJoin(join_type.value, lower, upper)
    clock = driver.harness.clock
    for event in history:
        results = driver.take(event)
        if isinstance(event.element, Row):
            row = event.element._replace(timestamp=clock.now_ms())
            expected = slow.take(event.side, row, clock.now_ms() - 1)
        else:
            expected = slow.move_to(LONG_MAX if driver.harness.ended else clock.now_ms() - 1)
        assert Counter((numbers(rows), timestamp) for rows, timestamp, _ in results) == Counter(
            (numbers(rows), timestamp) for rows, timestamp in expected
        )
    assert driver.harness.ended
    assert driver.counter("late_records_dropped") == 0
    driver.harness.restart()
    assert driver.harness.keys == []


def numbers(rows: tuple[Row | None, Row | None]) -> tuple[int | None, ...]:
    """The numbers of a pair."""
    return tuple(None if row is None else row.number for row in rows)


WINDOWS = {
    "tumbling": WindowStrategy.tumbling(ms(5)),
    "sliding": WindowStrategy.sliding(ms(6), ms(2)),
    "late": WindowStrategy.tumbling(ms(4), EVENT).with_allowed_lateness(ms(3)),
    "early": WindowStrategy.tumbling(ms(8), EVENT).with_allowed_lateness(ms(2)).with_early_firing(ms(3), EVENT),
    "early by the clock": WindowStrategy.sliding(ms(8), ms(4)).with_early_firing(ms(3), PROCESSING),
    "processing": WindowStrategy.tumbling(ms(9), PROCESSING),
    "session": WindowStrategy.session(ms(2)),
    "session by the clock": WindowStrategy.session(ms(5), PROCESSING),
    "global": WindowStrategy.global_(),
    "count": WindowStrategy.count(3, 2),
}


def windows_joined(slow: SlowWindowJoin, driver: JoinDriver, event: Event) -> list[Joined]:
    """Results of the slow join for the event that ``driver`` processed last."""
    now = driver.harness.clock.now_ms()
    if isinstance(event.element, Wait):
        return slow.pass_time(now)
    results = slow.pass_time(now) if event.restart else []  # a micro-batch has ended
    if isinstance(event.element, Row):
        return results + slow.take(event.side, event.element)
    moves, driver.moves = driver.moves, []
    return results + [joined for time in moves for joined in slow.move_to(time)]


@pytest.mark.parametrize("windows", WINDOWS)
@each_type
@examples(8)
@given(history=HISTORIES)
def test_window_join_matches_the_slow_one(join_type: JoinType, windows: str, history: list[Event]) -> None:
    driver = JoinDriver(any_join(pair, JoinMode.window(WINDOWS[windows]), join_type))
    slow = SlowWindowJoin(join_type.value, WINDOWS[windows])
    for event in history:
        found = Counter((joined, timestamp) for joined, timestamp, _ in driver.take(event))
        assert found == Counter(windows_joined(slow, driver, event))
    assert driver.harness.ended
    assert driver.counter("late_records_dropped") == len(slow.late)


@pytest.mark.parametrize("windows", ["tumbling", "sliding"])
@each_type
@examples(8)
@given(history=HISTORIES)
def test_window_join_on_columns_matches_the_slow_one(join_type: JoinType, windows: str, history: list[Event]) -> None:
    driver = JoinDriver(joined_columns(JoinMode.window(WINDOWS[windows]), join_type))
    slow = SlowWindowJoin(join_type.value, WINDOWS[windows])
    for event in history:
        found = Counter((joined, timestamp) for joined, timestamp, _ in driver.take(event))
        assert found == Counter(windows_joined(slow, driver, event))
    assert driver.harness.ended
    assert driver.counter("late_records_dropped") == len(slow.late)


@pytest.mark.parametrize(("size", "slide"), [(5, 5), (6, 2)])
@each_type
@examples(8)
@given(history=HISTORIES)
def test_running_window_join_matches_the_slow_one(
    join_type: JoinType, size: int, slide: int, history: list[Event]
) -> None:
    driver = JoinDriver(
        any_join(pair, JoinMode.window(WindowStrategy.sliding(ms(size), ms(slide)), running=True), join_type)
    )
    slow = SlowRunningWindowJoin(join_type.value, size, slide)
    for event in history:
        before = driver.event_time
        results = driver.take(event)
        if isinstance(event.element, Row):
            expected = slow.take(event.side, event.element, before)
        else:
            expected = slow.move_to(driver.event_time)
        assert Counter((joined, timestamp) for joined, timestamp, _ in results) == Counter(expected)
    assert driver.harness.ended
    assert driver.counter("late_records_dropped") == len(slow.late)


def late(side: int) -> Any:
    return lambda row, output, ctx: output.collect(("late", side, row))


WANTED: dict[str, Any] = {"on_late_left": late(0), "on_late_right": late(1)}


def late_in(driver: JoinDriver, event: Event) -> list[Any]:
    return [(row, timestamp) for row, timestamp, _ in driver.take(event) if row[0] == "late"]


@given(history=HISTORIES, bounds=BOUNDS)
def test_late_rows_of_an_interval_join_reach_the_callback(history: list[Event], bounds: tuple[int, int]) -> None:
    driver, slow = (
        JoinDriver(any_join(pair, JoinMode.interval(ms(bounds[0]), ms(bounds[1])), **WANTED)),
        SlowIntervalJoin("inner", *bounds),
    )
    found: list[Any] = []
    for event in history:
        before = driver.event_time
        found += late_in(driver, event)
        if isinstance(event.element, Row):
            slow.take(event.side, event.element, before)
    assert found == [(("late", side, row), row.timestamp) for side, row in slow.late]
    assert driver.counter("late_records_dropped") == 0


@pytest.mark.parametrize("windows", ["sliding", "session"])
@examples(25)
@given(history=HISTORIES)
def test_late_rows_of_a_window_join_reach_the_callback(windows: str, history: list[Event]) -> None:
    strategy = WINDOWS[windows]
    driver, slow = JoinDriver(any_join(pair, JoinMode.window(strategy), **WANTED)), SlowWindowJoin("inner", strategy)
    found: list[Any] = []
    for event in history:
        found += late_in(driver, event)
        windows_joined(slow, driver, event)
    assert found == [(("late", side, row), row.timestamp) for side, row in slow.late]
    assert driver.counter("late_records_dropped") == 0


# --- Other parallelisms -----------------------------------------------------------------------------------------------


KEYS = "abcde"
STEPS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(KEYS), st.integers(0, 20))
    | st.tuples(st.just(2), st.just(""), st.integers(0, 20)),
    max_size=20,
)


def subtasks(join_type: JoinType, parallelism: int, **options: Any) -> list[Any]:
    return [
        TwoInputNonBroadcastHarness(
            any_join(pair, JoinMode.interval(ms(-4), ms(6)), join_type),
            first_key=key_of,
            second_key=key_of,
            parallelism=parallelism,
            subtask=index,
            declarations=[EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION],
            **options,
        )
        for index in range(parallelism)
    ]


def send(harnesses: list[Any], step: tuple[int, str, int]) -> None:
    side, key, time = step
    if side == 2:
        for harness in harnesses:
            harness.first_input.push_all([event_time(time)])
            harness.second_input.push_all([event_time(time)])
        return
    owner = next(harness for harness in harnesses if harness.owns(key))
    stamped = StampedRecord(Row(key, 0, time), time)
    (owner.second_input if side else owner.first_input).push_all([stamped])


def joined(harnesses: list[Any]) -> Counter[Hashable]:
    return Counter(
        (element.record, element.timestamp)
        for harness in harnesses
        for element in harness.output.elements
        if isinstance(element, StampedRecord)
    )


@pytest.mark.parametrize("join_type", JoinType, ids=lambda join_type: join_type.value)
@examples(25)
@given(STEPS, STEPS, st.integers(1, 3), st.integers(1, 3))
def test_rows_wait_for_their_partners_wherever_they_are(
    join_type: JoinType, first: list[Any], second: list[Any], before: int, after: int
) -> None:
    steady, old = subtasks(join_type, 1), subtasks(join_type, before)
    for step in first:
        send(steady, step)
        send(old, step)
    new = subtasks(join_type, after, rescaled=[harness.snapshot() for harness in old])
    for step in second:
        send(steady, step)
        send(new, step)
        assert joined(steady) == joined(old) + joined(new)
    for harness in (*steady, *new):
        harness.first_input.push_all([EndOfInput()])
        harness.second_input.push_all([EndOfInput()])
    assert joined(steady) == joined(old) + joined(new)


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("join_type", [JoinType.INNER, JoinType.LEFT, JoinType.SEMI, JoinType.ANTI])
def test_one_pane_with_several_deadlines(join_type: JoinType, early: int) -> None:
    """One subtask has a row that no longer needs the pane when another one does."""
    steady, old = subtasks(join_type, 1), subtasks(join_type, 2)
    of_subtask = {next(n for n, harness in enumerate(old) if harness.owns(key)): key for key in KEYS}
    steps = [(0, of_subtask[early], 0), (0, of_subtask[1 - early], 9)]
    for step in steps:
        send(steady, step)
        send(old, step)
    new = subtasks(join_type, 1, rescaled=[harness.snapshot() for harness in old])
    for step in [(2, "", 7), (1, of_subtask[1 - early], 10), (2, "", 30)]:
        send(steady, step)
        send(new, step)
        assert joined(new) == joined(steady)
    assert joined(new)
