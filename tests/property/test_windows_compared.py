"""Windows against the plainest model of them: records out of order, several channels, idleness, ends, restarts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.window import TimeType, WindowStrategy, aggregate, window
from dsv2.state import aggregate_of
from tests.oracles.windows import Event, SlowWindows
from tests.support import unhurried
from tests.windows import Told, ToldOfTwo, WindowDriver

Step: TypeAlias = tuple[str, int, Any]
"""What happens, on which channel, and what more there is to say."""

CHANNELS = 2
EVENT = TimeType.EVENT
STRATEGIES = [
    WindowStrategy.tumbling(10),
    WindowStrategy.tumbling(7, EVENT, 5, offset=3),
    WindowStrategy.tumbling(10).with_early_firing(3, EVENT),
    WindowStrategy.sliding(10, 4),
    WindowStrategy.sliding(9, 3, EVENT, 4, offset=-2),
    WindowStrategy.sliding(4, 6, EVENT, 2),
    WindowStrategy.session(5),
    WindowStrategy.session(8).with_early_firing(5, EVENT),
    WindowStrategy.global_(),
    WindowStrategy.global_().with_early_firing(10, EVENT),
    WindowStrategy.count(3),
    WindowStrategy.count(3, 2),
    WindowStrategy.count(2, 3),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"{s.layout} {s.early_firing}")

RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-5, 60)), min_size=1, max_size=4)
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.integers(0, 2 * CHANNELS - 1), RECORDS),
        st.tuples(st.just("records"), st.integers(0, 2 * CHANNELS - 1), RECORDS),
        st.tuples(st.just("watermark"), st.integers(0, 2 * CHANNELS - 1), st.integers(0, 60)),
        st.tuples(st.sampled_from(["idle", "active", "end", "restart"]), st.integers(0, 2 * CHANNELS - 1), st.none()),
    ),
    max_size=40,
)


class Compared:
    """A driver and the model, to which the same happens."""

    def __init__(self, strategy: WindowStrategy, inputs: int) -> None:
        self.function: Any = Told() if inputs == 1 else ToldOfTwo()
        self.driver = WindowDriver(window(strategy, self.function), channels=CHANNELS)
        self.model = SlowWindows(strategy, inputs)
        self.expected: list[Event] = []
        self.channels = range(CHANNELS * inputs)
        self.ended: set[int] = set()
        self.count = self.moves = 0

    def step(self, what: str, channel: int, more: Any) -> None:
        """Let it happen to both."""
        if what == "restart":
            self.driver.restart()
        elif channel in self.channels and channel not in self.ended:
            if what == "records":
                self._records(channel, more)
            elif what == "watermark":
                self.driver.event_time(more, channel)
            elif what == "end":
                self.ended.add(channel)
                self.driver.end(channel)
            else:
                self.driver.idle(what == "idle", channel)
            times = self.driver.times()
            for time in times[self.moves :]:
                self.expected += self.model.advance(time)
            self.moves = len(times)

    def _records(self, channel: int, keys_and_times: list[tuple[str, int]]) -> None:
        records = [f"{key}{self.count + n}" for n, (key, _) in enumerate(keys_and_times)]
        self.count += len(records)
        times = [time for _, time in keys_and_times]
        self.driver.records(records, [*times], channel)
        for record, time in zip(records, times, strict=True):
            self.expected += self.model.record(record[0], record, time, channel // CHANNELS)

    def finish(self) -> None:
        """End what has not ended."""
        for channel in self.channels:
            self.step("end", channel, None)


def by_key(events: Iterable[Event]) -> dict[Any, list[Event]]:
    keys: dict[Any, list[Event]] = {}
    for event in events:
        keys.setdefault(event[1], []).append(event)
    return keys


@each_strategy
@pytest.mark.parametrize("inputs", [1, 2])
@unhurried
@given(steps=STEPS)
def test_windows_do_what_the_model_does(strategy: WindowStrategy, inputs: int, steps: list[Step]) -> None:
    both = Compared(strategy, inputs)
    for step in steps:
        both.step(*step)
        assert by_key(both.driver.out()) == by_key(both.expected)
    both.finish()
    assert by_key(both.driver.out()) == by_key(both.expected)
    # Counting goes on from one window to the next, if there are records between them.
    assert both.driver.keys() == 0 or strategy == WindowStrategy.count(2, 3)


def collecting(strategy: WindowStrategy) -> WindowDriver:
    """Windows that fold their records into a tuple of them."""
    records = aggregate_of(tuple[str, ...], appended, whole, joined)
    function = aggregate(strategy, records, lambda all_, w, ctx: (ctx.state_manager.current_key, w.start_time, all_))
    return WindowDriver(function, channels=CHANNELS)


def appended(record: str, records: tuple[str, ...]) -> tuple[str, ...]:
    return (*records, record)


def joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return first + second


def whole(records: tuple[str, ...]) -> tuple[str, ...]:
    return records


@each_strategy
@unhurried
@given(steps=STEPS)
def test_folded_records_are_those_that_would_have_been_kept(strategy: WindowStrategy, steps: list[Step]) -> None:
    keeping, folding = Compared(strategy, 1), Compared(strategy, 1)
    folding.driver = collecting(strategy)
    for step in steps:
        keeping.step(*step)
        folding.step(*step)
    keeping.finish()
    folding.finish()
    triggers = [event for event in keeping.driver.out() if event[0] == "trigger"]
    assert folding.driver.out() == [(key, start, records) for _, key, start, _, records in triggers]
