"""The processing-time temporal join compared with a slow one, event by event: results, order, waiting records, time."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.state import StateTtl
from dsv2.testing import EndOfInput, IdleStatus
from dsv2.watermark import LongWatermark
from dsv2.watermark.event_time import LONG_MAX
from tests.durations import ms
from tests.oracles.joins import Joined, Row, SlowTemporalJoin
from tests.property.joining import CHANNELS, Event, JoinDriver, Wait, event_time, joined_columns, pair
from tests.strategies import long_lists

BY_CLOCK = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION.new_watermark(True)

WHAT = st.one_of(
    *[st.tuples(st.just("row"), st.sampled_from("abc"), st.integers(0, 9))] * 6,
    st.tuples(st.just("deletion"), st.sampled_from("abc"), st.just(0)),
    st.tuples(st.just("event time"), st.just(""), st.integers(0, 3)),
    st.tuples(st.just("flag"), st.just(""), st.just(0)),
    st.tuples(st.just("idle"), st.just(""), st.integers(0, 1)),
    st.tuples(st.just("end"), st.just(""), st.just(0)),
)
STEPS = long_lists(st.tuples(WHAT, st.integers(0, CHANNELS - 1), st.booleans()), max_size=50)

LONGER_STEPS = long_lists(
    st.tuples(
        st.one_of(WHAT, st.tuples(st.just("wait"), st.just(""), st.integers(0, 9))),
        st.integers(0, CHANNELS - 1),
        st.booleans(),
    ),
    max_size=50,
)
"""Time passes as well."""


class History:
    """Legal histories: nothing after an end, no event time after the flag, and no late probe row."""

    def __init__(self) -> None:
        self.newest = 0
        self._done: dict[int, set[str]] = {channel: set() for channel in range(CHANNELS)}
        self._number = 0

    def event(self, what: str, channel: int, key: str, number: int, restart: bool) -> Event | None:
        done = self._done[channel]
        if "end" in done or (what == "event time" and "flag" in done):
            return None
        self._number += 1
        if what == "row" or what == "deletion":
            sign = 1 if what == "row" or channel < 2 else -1
            return Event(channel, Row(key, sign * self._number, self.newest + 1 + number), restart)
        if what == "event time":
            self.newest += number
            return Event(channel, event_time(self.newest), restart)
        if what == "wait":
            return Event(channel, Wait(number + 1), restart)
        if what == "idle":
            return Event(channel, IdleStatus(bool(number)), restart)
        done.add(what)
        return Event(channel, BY_CLOCK if what == "flag" else EndOfInput(), restart)


@pytest.mark.parametrize("lifetime", [None, 10])
@pytest.mark.parametrize("join_type", [JoinType.INNER, JoinType.LEFT])
@given(steps=LONGER_STEPS)
def test_several_rows_of_a_key_match_the_slow_one(
    join_type: Literal[JoinType.INNER, JoinType.LEFT], lifetime: int | None, steps: list[Any]
) -> None:
    any_join: Any = join
    mode = JoinMode.temporal(ttl=None if lifetime is None else StateTtl(ms(lifetime)))
    options = {"is_deletion": lambda row: row.number < 0, "row_key": lambda row: abs(row.number) % 3}
    driver = JoinDriver(any_join(pair, mode, join_type, **options))
    slow, history = SlowTemporalJoin(join_type.value, channels=2, rows=3, lifetime=lifetime), History()
    events = [history.event(what, channel, key, number, restart) for (what, key, number), channel, restart in steps]
    events += [history.event("flag", channel, "", 0, False) for channel in range(CHANNELS)]
    for event in filter(None, events):
        results = driver.take(event)
        expected: list[Joined] = []
        if isinstance(event.element, Wait):
            slow.wait(event.element.ms)
        elif isinstance(event.element, Row):
            expected = slow.take(event.side, event.element)
        elif event.side == 1 and event.element in (BY_CLOCK, EndOfInput()):
            expected = slow.end_snapshot(event.channel)
        found = Counter((joined, timestamp) for joined, timestamp, _ in results)
        assert found == Counter(expected)
        assert driver.counter("probe_records_waiting") == slow.waiting
    if lifetime is not None:
        if driver.harness.ended:  # nothing expires any more, such as the deadline of a deleted row
            return
        driver.take(Event(0, Wait(lifetime)))
        slow.wait(lifetime)
    driver.harness.restart()
    assert set(driver.harness.keys) == slow.keys, "nothing else is left"


@pytest.mark.parametrize("condition", ["event time", "idle"])
@given(steps=STEPS)
def test_event_time_or_idleness_complete_the_snapshot(condition: str, steps: list[Any]) -> None:
    """Both channels of the build side send the same signals."""
    any_join: Any = join
    mode = JoinMode.temporal(complete_at=5) if condition == "event time" else JoinMode.temporal(complete_when_idle=True)
    driver = JoinDriver(any_join(pair, mode, is_deletion=lambda row: row.number < 0))
    slow, history, is_idle = SlowTemporalJoin("inner", channels=1), History(), False
    events = [
        history.event(what, min(channel, 2), key, number, restart) for (what, key, number), channel, restart in steps
    ]
    for event in filter(None, events):
        element = event.element
        if is_idle and event.side == 1 and isinstance(element, LongWatermark):
            continue  # the event time of an idle channel does not count
        results = driver.take(event)
        expected: list[Joined] = []
        if isinstance(element, Row):
            expected = slow.take(event.side, element)
        elif event.side == 1:
            results += driver.take(event._replace(channel=3, restart=False))
            is_idle = element.idle if isinstance(element, IdleStatus) else is_idle
            by_time = condition == "event time" and isinstance(element, LongWatermark) and element.value >= 5
            if element in (BY_CLOCK, EndOfInput()) or by_time or (condition == "idle" and is_idle):
                expected = slow.end_snapshot(2)
        assert by_key([(joined, timestamp) for joined, timestamp, _ in results]) == by_key(expected)
        assert all(timestamp > forwarded for _, timestamp, forwarded in results), "none is late downstream"
        assert driver.counter("probe_records_waiting") == slow.waiting


def by_key(results: list[Joined]) -> dict[str, list[Joined]]:
    """The results by key, because the order between keys of buffered rows is not defined."""
    kept: dict[str, list[Joined]] = {}
    for joined, timestamp in results:
        probe = joined[0]
        assert probe is not None
        kept.setdefault(probe.key, []).append((joined, timestamp))
    return kept


@pytest.mark.parametrize("lifetime", [None, 10])
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("join_type", [JoinType.INNER, JoinType.LEFT])
@given(steps=LONGER_STEPS, ends=st.permutations(range(CHANNELS)))
def test_it_matches_the_slow_one(
    join_type: Literal[JoinType.INNER, JoinType.LEFT],
    columns: bool,
    lifetime: int | None,
    steps: list[Any],
    ends: list[int],
) -> None:
    any_join: Any = join
    ttl = None if lifetime is None else StateTtl(ms(lifetime))
    mode = JoinMode.temporal(snapshot_timeout=ms(1000), ttl=ttl)
    driver = JoinDriver(
        joined_columns(mode, join_type)
        if columns
        else any_join(pair, mode, join_type, is_deletion=lambda row: row.number < 0)
    )
    slow, history = SlowTemporalJoin(join_type.value, channels=2, lifetime=lifetime), History()
    if columns:  # without deletions
        steps = [step for step in steps if step[0][0] != "deletion"]
    events = [history.event(what, channel, key, number, restart) for (what, key, number), channel, restart in steps]
    events += [history.event("end", channel, "", 0, False) for channel in ends]
    for event in filter(None, events):
        results = driver.take(event)
        expected: list[Joined] = []
        if isinstance(event.element, Wait):
            slow.wait(event.element.ms)
        elif isinstance(event.element, Row):
            expected = slow.take(event.side, event.element)
        elif event.side == 1 and event.element in (BY_CLOCK, EndOfInput()):
            expected = slow.end_snapshot(event.channel)
        assert by_key([(joined, timestamp) for joined, timestamp, _ in results]) == by_key(expected)
        assert all(timestamp > forwarded for _, timestamp, forwarded in results), "none is late downstream"
        assert driver.counter("probe_records_waiting") == slow.waiting
        assert slow.over or driver.moves == [], "what waits holds event time back"
    assert driver.harness.ended
    assert driver.moves[-1] == LONG_MAX
    if lifetime is None:  # otherwise nothing expires any more
        driver.harness.restart()
        assert set(driver.harness.keys) == slow.keys, "nothing else is left"
