"""Windows compared with the simplest model: records out of order, several channels, idleness, ends, restarts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import OutputTag
from dsv2.extension.window import (
    CountEvictor,
    OneInputWindowStreamProcessFunction,
    TimedRecord,
    TimeEvictor,
    TimeType,
    WindowAssigner,
    WindowContext,
    WindowEvictor,
    WindowStrategy,
)
from dsv2.extension.window.process_functions import aggregated, reduced, windowed
from dsv2.extension.window.strategy import SessionWindowStrategy, TimestampCombiner
from dsv2.functions import ProcessFunction
from dsv2.state import aggregate_of
from tests.durations import ms
from tests.oracles.windows import SlowWindows, Stamped
from tests.profiles import examples
from tests.strategies import long_lists
from tests.windows import (
    StatefulWindowRecorder,
    TwoInputWindowRecorder,
    TwoOutputWindowRecorder,
    WindowDriver,
    WindowRecorder,
)

Step: TypeAlias = tuple[str, int, Any]
"""A kind of event, its channel, and its details."""

CHANNELS = 2


class Uneven(WindowAssigner[str]):
    """A window around each record, and a long one for some of them; none for others."""

    def assign_windows(self, record: str, timestamp: int) -> Iterable[tuple[int, int]]:
        number = int(record[1:])
        if number % 5 == 4:
            return []
        near = (timestamp - 2, timestamp + number % 3 + 1)
        return [near, near] if number % 2 else [near, (timestamp // 10 * 10, timestamp // 10 * 10 + 10)]


class Even(WindowEvictor[str]):
    """Keeps records with even numbers, and after the firing the first of them."""

    def evict_before(self, records: Sequence[TimedRecord[str]], window: WindowContext) -> Sequence[TimedRecord[str]]:
        return [one for one in records if int(one.record[1:]) % 2 == 0]

    def evict_after(self, records: Sequence[TimedRecord[str]], window: WindowContext) -> Sequence[TimedRecord[str]]:
        return records[:1]


def gap_of(record: str) -> int:
    """A gap for each record, such as ``a7``."""
    return 2 + int(record[1:]) * 3 % 8


EVENT, PROCESSING = TimeType.EVENT, TimeType.PROCESSING
STRATEGIES = [
    WindowStrategy.tumbling(ms(10)),
    WindowStrategy.tumbling(ms(7), EVENT, offset=ms(3)).with_allowed_lateness(ms(5)),
    WindowStrategy.tumbling(ms(10)).with_early_firing(ms(3), EVENT),
    WindowStrategy.tumbling(ms(10), EVENT).with_allowed_lateness(ms(5)).with_early_firing(ms(4), PROCESSING),
    WindowStrategy.tumbling(ms(10), PROCESSING),
    WindowStrategy.tumbling(ms(10), PROCESSING).with_early_firing(ms(3), PROCESSING),
    WindowStrategy.sliding(ms(10), ms(4)),
    WindowStrategy.sliding(ms(9), ms(3), EVENT, offset=ms(-2)).with_allowed_lateness(ms(4)),
    WindowStrategy.sliding(ms(4), ms(6), EVENT).with_allowed_lateness(ms(2)),
    WindowStrategy.sliding(ms(10), ms(4), EVENT).with_allowed_lateness(ms(3)).with_early_firing(ms(3), EVENT),
    WindowStrategy.sliding(ms(9), ms(4), PROCESSING, offset=ms(-2)).with_early_firing(ms(4), PROCESSING),
    WindowStrategy.cumulate(ms(3), ms(9)),
    WindowStrategy.cumulate(ms(5), ms(15), EVENT, offset=ms(4)).with_allowed_lateness(ms(3)),
    WindowStrategy.cumulate(ms(4), ms(8), PROCESSING).with_early_firing(ms(3), PROCESSING),
    WindowStrategy.session(ms(5)),
    WindowStrategy.session(ms(8)).with_early_firing(ms(5), EVENT),
    WindowStrategy.session(ms(8)).with_early_firing(ms(5), PROCESSING),
    WindowStrategy.session(ms(5), PROCESSING),
    WindowStrategy.session(ms(8), PROCESSING).with_early_firing(ms(5), PROCESSING),
    WindowStrategy.session(ms(5)).with_allowed_lateness(ms(6)),
    WindowStrategy.session(ms(5)).with_allowed_lateness(ms(9)).with_early_firing(ms(3), EVENT),
    WindowStrategy.session(gap_of),
    WindowStrategy.session(gap_of).with_allowed_lateness(ms(4)),
    WindowStrategy.session(gap_of, PROCESSING),
    WindowStrategy.of_records(ms(0)),
    WindowStrategy.of_records(ms(7)),
    WindowStrategy.of_records(ms(5)).with_allowed_lateness(ms(8)).with_timestamps("latest"),
    WindowStrategy.of_records(ms(9)).with_early_firing(ms(3), EVENT),
    WindowStrategy.assigned_by(Uneven()),
    WindowStrategy.assigned_by(Uneven()).with_allowed_lateness(ms(6)).with_timestamps("latest"),
    WindowStrategy.assigned_by(Uneven()).with_early_firing(ms(3), EVENT),
    WindowStrategy.assigned_by(Uneven(), PROCESSING),
    WindowStrategy.tumbling(ms(10)).with_evictor(CountEvictor(2)),
    WindowStrategy.sliding(ms(10), ms(4)).with_allowed_lateness(ms(5)).with_evictor(Even()),
    WindowStrategy.session(ms(5)).with_early_firing(ms(4), EVENT).with_evictor(TimeEvictor(ms(4), after=True)),
    WindowStrategy.global_().with_early_firing(ms(10), EVENT).with_evictor(TimeEvictor(ms(6))),
    WindowStrategy.count(3, 2).with_evictor(CountEvictor(1, after=True)),
    WindowStrategy.tumbling(ms(10)).with_timestamps("earliest"),
    WindowStrategy.sliding(ms(10), ms(4)).with_allowed_lateness(ms(5)).with_timestamps("latest"),
    WindowStrategy.cumulate(ms(3), ms(9)).with_timestamps("latest"),
    WindowStrategy.session(ms(5)).with_allowed_lateness(ms(6)).with_timestamps("earliest"),
    WindowStrategy.session(gap_of).with_early_firing(ms(3), EVENT).with_timestamps("latest"),
    WindowStrategy.count(3, 2).with_timestamps("earliest"),
    WindowStrategy.global_().with_timestamps("latest"),
    WindowStrategy.global_(),
    WindowStrategy.global_().with_early_firing(ms(10), EVENT),
    WindowStrategy.global_().with_early_firing(ms(10), PROCESSING),
    WindowStrategy.count(3),
    WindowStrategy.count(3, 2),
    WindowStrategy.count(2, 3),
    WindowStrategy.count(5, 2).with_early_firing(ms(10), EVENT),
]

RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-5, 60)), min_size=1, max_size=4)
STEPS: st.SearchStrategy[list[Step]] = long_lists(
    st.one_of(
        st.tuples(st.just("records"), st.integers(0, 2 * CHANNELS - 1), RECORDS),
        st.tuples(st.just("records"), st.integers(0, 2 * CHANNELS - 1), RECORDS),
        st.tuples(st.just("watermark"), st.integers(0, 2 * CHANNELS - 1), st.integers(0, 60)),
        st.tuples(st.just("clock"), st.just(0), st.integers(1, 12)),
        st.tuples(st.sampled_from(["idle", "active", "end", "restart"]), st.integers(0, 2 * CHANNELS - 1), st.none()),
    ),
    max_size=40,
)


def name_of(strategy: WindowStrategy) -> str:
    early = strategy.early_firing
    if strategy.evictor is not None:
        return f"{strategy.layout}, {type(strategy.evictor).__name__}"
    if strategy.timestamps is not TimestampCombiner.END:
        return f"{strategy.layout}, {strategy.timestamps.value}"
    if callable(getattr(strategy, "gap", None)):
        return f"{strategy.layout}, with gaps of records"
    return strategy.layout if early is None else f"{strategy.layout}, early in {early.time_type.value.lower()} time"


class Shape(NamedTuple):
    """A kind of window function, and the events for its second output."""

    make: Callable[[WindowStrategy], ProcessFunction]
    inputs: int = 1
    second: Collection[str] = ()


SHAPES = {
    "one input": Shape(lambda strategy: windowed(strategy, WindowRecorder())),
    "window state": Shape(lambda strategy: windowed(strategy, StatefulWindowRecorder())),
    "two inputs": Shape(lambda strategy: windowed(strategy, TwoInputWindowRecorder()), inputs=2),
    "two outputs": Shape(lambda strategy: windowed(strategy, TwoOutputWindowRecorder()), second=("clear", "late")),
}


class Compared:
    """A driver and the model, which receive the same events."""

    def __init__(self, strategy: WindowStrategy, shape: Shape) -> None:
        self.driver = WindowDriver(shape.make(strategy), channels=CHANNELS)
        self.model = SlowWindows(strategy, shape.inputs)
        self.expected: list[Stamped] = []
        self.channels = range(CHANNELS * shape.inputs)
        self.ended: set[int] = set()
        self.now = self.count = self.moves = 0
        self._second = shape.second

    def step(self, what: str, channel: int, more: Any) -> None:
        """Apply the event to both."""
        if what == "restart":
            self.driver.restart()
        elif what == "clock":
            self.now += more
            self.driver.clock(self.now)
            self.expected += self.model.pass_time(self.now)
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
        """End all channels that have not ended."""
        for channel in self.channels:
            self.step("end", channel, None)

    def events(self, *kinds: str) -> list[Stamped]:
        """The events of the model so far, of these kinds."""
        return [stamped for stamped in self.expected if stamped[0][0] in kinds]

    def check(self) -> None:
        """Check that both emitted the same for each key, in the same order."""
        first = [stamped for stamped in self.expected if stamped[0][0] not in self._second]
        assert by_key(self.driver.stamped()) == by_key(first)
        if self._second:
            assert by_key(self.driver.stamped("second")) == by_key(self.events(*self._second))


def by_key(events: Iterable[Stamped]) -> dict[Any, list[Stamped]]:
    keys: dict[Any, list[Stamped]] = {}
    for stamped in events:
        keys.setdefault(stamped[0][1], []).append(stamped)
    return keys


# Sessions cannot have state. Evictors are for one input, and for records instead of state.
PAIRS = [
    (shape, strategy)
    for shape in SHAPES
    for strategy in STRATEGIES
    if (shape != "window state" or not isinstance(strategy, SessionWindowStrategy))
    and (shape in ("one input", "two outputs") or strategy.evictor is None)
]


@pytest.mark.parametrize(
    ("shape", "strategy"), PAIRS, ids=lambda part: part if isinstance(part, str) else name_of(part)
)
@examples(13)
@given(steps=STEPS)
def test_windows_match_the_model(shape: str, strategy: WindowStrategy, steps: list[Step]) -> None:
    both = Compared(strategy, SHAPES[shape])
    for step in steps:
        both.step(*step)
        both.check()
    both.finish()
    both.check()
    # Counts continue from one window to the next if there are records in between.
    assert both.driver.keys() == 0 or strategy == WindowStrategy.count(2, 3)


def appended(record: str, records: tuple[str, ...]) -> tuple[str, ...]:
    return (*records, record)


def joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return first + second


def whole(records: tuple[str, ...]) -> tuple[str, ...]:
    return records


def to_event(records: tuple[str, ...], window: Any, ctx: Any) -> Any:
    return "trigger", ctx.state_manager.current_key, window.start_time, window.end_time, records


class Triggered(OneInputWindowStreamProcessFunction[str, Any]):
    """Has only on_trigger, so its records take the fast path."""

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(to_event(tuple(window.get_all_records()), window, ctx))


WHOLE = aggregate_of(tuple[str, ...], appended, whole, joined)


def both_texts(one: str, other: str) -> str:
    return f"{one} {other}"


def split_to_event(records: str, window: Any, ctx: Any) -> Any:
    return to_event(tuple(records.split()), window, ctx)


LATE = OutputTag("second", str)

SHORT_WAYS = {
    "aggregate": Shape(lambda strategy: aggregated(strategy, WHOLE, to_event)),
    "reduce": Shape(lambda strategy: reduced(strategy, both_texts, split_to_event)),
    "aggregate, late output": Shape(lambda s: aggregated(s, WHOLE, to_event, [LATE]), second=["late"]),
    "keep, late output": Shape(lambda strategy: windowed(strategy, Triggered(), [LATE]), second=["late"]),
}


@pytest.mark.parametrize(
    ("shape", "strategy"),
    [(shape, one) for shape in SHORT_WAYS for one in STRATEGIES if one.evictor is None or shape.startswith("keep")],
    ids=lambda part: part if isinstance(part, str) else name_of(part),
)
@examples(8)
@given(steps=STEPS)
def test_fast_paths_give_the_same(shape: str, strategy: WindowStrategy, steps: list[Step]) -> None:
    """Folded records, and late ones without a callback, which go to their own output."""
    both = Compared(strategy, SHORT_WAYS[shape])
    for step in steps:
        both.step(*step)
    both.finish()
    assert by_key(both.driver.stamped()) == by_key(both.events("trigger"))
    if SHORT_WAYS[shape].second:
        late = [(record, timestamp) for (_, _, record), timestamp in both.events("late")]
        assert both.driver.stamped("second") == late
    assert both.driver.keys() == 0 or strategy == WindowStrategy.count(2, 3)
