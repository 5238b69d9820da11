"""Invalid timestamps are refused wherever they enter. Otherwise their records would be lost without an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.errors import ContractError, InvalidWatermarkError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.extension.window import OneInputWindowStreamProcessFunction as WindowFunction
from dsv2.extension.window import WindowStrategy
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink
from dsv2.state import aggregate_of
from dsv2.testing import OneInputHarness, StampedRecord
from dsv2.watermark import new_builder
from tests.durations import ms
from tests.spans import Item, Span, Spans
from tests.support import one_input

WRONG = [math.nan, math.inf, -math.inf, 1.5, 2**63, 2**70, -(2**63) - 1, "5", None, Decimal(5), np.int64(5)]
wrong = pytest.mark.parametrize("timestamp", WRONG, ids=repr)
MODES: dict[str, Callable[[Any], Any]] = {
    "periodic": lambda builder: builder,
    "per event": lambda builder: builder.per_event_watermark(),
    "idle": lambda builder: builder.with_idleness(timedelta(seconds=1)),
    "none": lambda builder: builder.no_watermark(),
}


class Event(NamedTuple):
    number: int
    at: Any


def run(build: Callable[[ExecutionEnvironment], Any]) -> list[Any]:
    env, sink = ExecutionEnvironment.get_instance(runtime="local", checks=False), CollectSink[Any]()
    build(env).to_sink(sink)
    env.execute()
    return sink.results


@wrong
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_generator_refuses_it(timestamp: Any, mode: str, place: int) -> None:
    events = [Event(number, 10 - number) for number in range(3)]
    events[place] = Event(place, timestamp)
    generator = MODES[mode](EventTimeExtension.new_watermark_generator_builder(lambda event: event.at))
    with pytest.raises(
        UserFunctionError, match="A timestamp must be an integer, in ms since the epoch, but "
    ) as refused:
        run(lambda env: env.from_collection(events).process(generator.build_as_process_function()))
    assert refused.value.record == repr(events[place])


class Stamped(Spans):
    """Its records have timestamp ``others``, except that the second one has ``timestamp``."""

    def __init__(self, timestamp: Any, others: int | None = 10) -> None:
        super().__init__({"a": 4})
        self.timestamp = timestamp
        self.others = others

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        for run in super().read(start, stop):
            stamps = [self.timestamp if record.number == 1 else self.others for record in run.records]
            yield RecordBatch(run.records, stamps)


@wrong
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("extracted", [False, True], ids=["given", "extracted"])
def test_source_refuses_it(timestamp: Any, mode: str, extracted: bool) -> None:
    builder: Any = EventTimeExtension.new_watermark_strategy_builder()
    if extracted:
        builder = EventTimeExtension.new_watermark_generator_builder(
            lambda record: timestamp if record.number == 1 else 10
        )
    strategy = MODES[mode](builder).build_as_watermark_strategy()
    with pytest.raises(UserFunctionError, match="timestamp") as refused:
        run(lambda env: env.from_source(Stamped(timestamp), watermarks=strategy))
    assert refused.value.callback == ("extract_timestamp" if extracted else "read")


@wrong
def test_source_without_watermarks_refuses_it(timestamp: Any) -> None:
    if timestamp is None:
        assert len(run(lambda env: env.from_source(Stamped(None)))) == 4
        return
    for others in (10, None):
        with pytest.raises(UserFunctionError, match="A timestamp must be an integer") as refused:
            run(lambda env, others=others: env.from_source(Stamped(timestamp, others)))  # type: ignore[misc]
        assert refused.value.record == repr(Item("a", 1))


@wrong
def test_collectors_timers_and_harnesses_refuse_it(timestamp: Any) -> None:
    def overwrite(record: Any, output: Any, ctx: Any) -> None:
        output.collect_and_overwrite_timestamp(record, timestamp)

    def processing_timer(record: Any, output: Any, ctx: Any) -> None:
        ctx.processing_time_manager.register_timer(timestamp)

    class EventTimer(OneInputEventTimeStreamProcessFunction[Any, Any]):
        def init_event_time_process_function(self, manager: Any) -> None:
            self.manager = manager

        def process_record(self, record: Any, output: Any, ctx: Any) -> None:
            self.manager.register_timer(timestamp)

    for function in (one_input(process_record=overwrite), one_input(process_record=processing_timer), EventTimer()):
        with pytest.raises(UserFunctionError, match="A timestamp must be an integer"):
            OneInputHarness[Any, Any](function, key=str).input.push(1)
    if timestamp is not None:
        with pytest.raises(ContractError, match="A timestamp must be an integer"):
            OneInputHarness[Any, Any](one_input()).input.push_all([StampedRecord(1, 3), StampedRecord(2, timestamp)])


def test_bool_is_not_an_integer() -> None:
    with pytest.raises(InvalidWatermarkError, match="must be a signed 64-bit integer, not True"):
        new_builder("w").type_long().build().new_watermark(True)


class Counts(WindowFunction[Any, Any]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(len(window.get_all_records()))


count_of: Any = aggregate_of(
    create_accumulator=int, add=lambda _, n: n + 1, get_result=int, merge=lambda one, other: one + other
)
LAST = 2**63 - 1
SIZE = 10
TIME_WINDOWS = {
    "tumbling": WindowStrategy.tumbling(ms(SIZE)),
    "sliding": WindowStrategy.sliding(ms(SIZE), ms(5)),
    "session": WindowStrategy.session(ms(SIZE)),
    "late": WindowStrategy.tumbling(ms(SIZE)).with_allowed_lateness(ms(SIZE)),
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "process": lambda windows: windows.process(Counts()),
    "aggregate": lambda windows: windows.aggregate(count_of),
}


def windowed(timestamps: Sequence[int], strategy: Any, function: str) -> list[Any]:
    events = [Event(1, at) for at in timestamps]
    generator: Any = EventTimeExtension.new_watermark_generator_builder(
        lambda event: event.at
    ).build_as_process_function()

    def build(env: ExecutionEnvironment) -> Any:
        keyed = env.from_collection(events).process(generator).key_by(lambda event: event.number)
        return FUNCTIONS[function](keyed.window(strategy))

    return run(build)


edges = st.sampled_from([-(2**63), -1, 0, 10**12, LAST - 3 * SIZE, LAST - 8, LAST])
times = st.lists(st.builds(lambda edge, step: min(edge + step, LAST), edges, st.integers(0, 3 * SIZE)), min_size=1)


def unless_refused(give: Callable[[], list[Any]], greatest: int) -> list[Any] | None:
    """Return the result of ``give``, or None if it is refused because of ``greatest``, the maximum timestamp."""
    if greatest < LAST - 3 * SIZE:
        return give()
    try:
        return give()
    except UserFunctionError as refused:
        if "event time ends at" not in str(refused):
            raise
        return None


@given(times=times, kind=st.sampled_from(list(TIME_WINDOWS)), function=st.sampled_from(["process", "aggregate"]))
def test_no_record_is_lost_at_any_time(times: list[int], kind: str, function: str) -> None:
    """The last windows end with event time. A sliding one may be cut off, but each record is in another one."""
    counts = windowed(sorted(times), TIME_WINDOWS[kind], function)
    assert sum(counts) == len(times) * (2 if kind == "sliding" else 1)


@given(at=st.builds(lambda step: LAST - step, st.integers(0, 4 * SIZE)))
def test_join_matches_or_refuses_every_left_record(at: int) -> None:
    joined: Any = join(
        lambda left, right, out, ctx: out.collect((left, right)), JoinMode.interval(ms(0), ms(SIZE)), JoinType.LEFT
    )

    def build(env: ExecutionEnvironment) -> Any:
        by_time: Any = EventTimeExtension.new_watermark_generator_builder(lambda event: event.at)
        left, right = (
            env.from_collection(events).process(by_time.build_as_process_function()).key_by(lambda event: event.number)
            for events in ([Event(1, at)], [Event(2, at)])
        )
        return left.connect_and_process(right, joined)

    assert unless_refused(lambda: run(build), at) in (None, [(Event(1, at), None)])
