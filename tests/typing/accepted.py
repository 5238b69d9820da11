"""The exact types that a type checker must see: every row of the stream tables, and the code that users write.

Checked by ``test_typing.py``, never run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple, assert_type

import pandas as pd

from dsv2 import (
    BroadcastStream,
    Collector,
    ExecutionEnvironment,
    GlobalStream,
    KeyedPartitionStream,
    NonKeyedPartitionStream,
    NonPartitionedContext,
    PartitionedContext,
    RuntimeContext,
    TwoOutputPartitionedContext,
)
from dsv2.connectors.files import FileSinkSource
from dsv2.extension.join import (
    JoinFunction,
    JoinMode,
    JoinType,
    Left,
    OnSnapshotTimeout,
    Right,
    join,
)
from dsv2.extension.window import WindowStrategy
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.model import Histogram, StateManager, SubtaskStateManager
from dsv2.sinks import CollectSink, FileSink, ForeachBatchSink, Sink
from dsv2.sources import DataFrameSource, DataGeneratorSource
from dsv2.sources.dataframe import DataFrameLike
from dsv2.state import (
    AggregateFunction,
    AggregatingState,
    AggregatingStateDeclaration,
    BroadcastState,
    BroadcastStateDeclaration,
    ListState,
    ListStateDeclaration,
    MapState,
    MapStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    ReducingState,
    ReducingStateDeclaration,
    StateDeclarations,
    StateTtl,
    ValueState,
    ValueStateDeclaration,
    aggregate_of,
)
from dsv2.streams import (
    ConfiguredGlobalStream,
    ConfiguredKeyedStream,
    ConfiguredSink,
    ConfiguredStream,
    TwoGlobalStreams,
    TwoKeyedStreams,
    TwoStreams,
)
from dsv2.watermark import (
    BoolWatermark,
    BoolWatermarkBuilder,
    BoolWatermarkDeclaration,
    LongWatermark,
    LongWatermarkBuilder,
    LongWatermarkDeclaration,
    Watermark,
    WatermarkDeclaration,
    WhenExceeded,
    new_builder,
)
from tests.durations import ms
from tests.typing.given import Given, Mean

NonKeyed = ConfiguredStream
Keyed = ConfiguredKeyedStream
Global = ConfiguredGlobalStream
TwoNonKeyed = TwoStreams
TwoKeyed = TwoKeyedStreams


def partitionings(g: Given) -> None:
    assert_type(g.non_keyed.key_by(g.by_text), KeyedPartitionStream[str, int])
    assert_type(g.non_keyed.key_by(g.by_text, version=2), KeyedPartitionStream[str, int])
    assert_type(g.non_keyed.key_by(lambda record: (record, str(record))), KeyedPartitionStream[tuple[int, str], int])
    assert_type(g.non_keyed.shuffle(), NonKeyedPartitionStream[int])
    assert_type(g.non_keyed.global_(), GlobalStream[int])
    assert_type(g.non_keyed.broadcast(), BroadcastStream[int])
    assert_type(g.keyed.key_by(g.by_day), KeyedPartitionStream[date, int])
    assert_type(g.keyed.shuffle(), NonKeyedPartitionStream[int])
    assert_type(g.keyed.global_(), GlobalStream[int])
    assert_type(g.keyed.broadcast(), BroadcastStream[int])
    assert_type(g.global_.key_by(g.by_text), KeyedPartitionStream[str, int])
    assert_type(g.global_.shuffle(), NonKeyedPartitionStream[int])
    assert_type(g.global_.broadcast(), BroadcastStream[int])


def one_input(g: Given) -> None:
    assert_type(g.non_keyed.process(g.one), NonKeyed[bytes])
    assert_type(g.non_keyed.process(emit_text), NonKeyed[str])
    assert_type(g.non_keyed.process(g.two_out), TwoNonKeyed[bytes, list[int]])
    assert_type(g.keyed.process(g.one), NonKeyed[bytes])
    assert_type(g.keyed.process(emit_text), NonKeyed[str])
    assert_type(g.keyed.process(g.one, g.key_of_bytes), Keyed[str, bytes])
    assert_type(g.keyed.process(g.one, new_key_selector=lambda record: record.decode()), Keyed[str, bytes])
    assert_type(g.keyed.process(g.one, lambda record: record.decode(), version=2), Keyed[str, bytes])
    assert_type(g.keyed.process(g.two_out), TwoNonKeyed[bytes, list[int]])
    assert_type(g.global_.process(g.one), Global[bytes])
    assert_type(g.global_.process(emit_text), Global[str])
    assert_type(g.global_.process(g.two_out), TwoGlobalStreams[bytes, list[int]])


def two_outputs(g: Given) -> None:
    non_keyed = g.non_keyed.process(g.two_out)
    assert_type(non_keyed.first, NonKeyed[bytes])
    assert_type(non_keyed.second, NonKeyed[list[int]])
    keyed = g.keyed.process(g.two_out, first_key_selector=g.key_of_bytes, second_key_selector=g.key_of_list)
    assert_type(keyed, TwoKeyed[str, bytes, list[int]])
    assert_type(keyed.first, Keyed[str, bytes])
    assert_type(keyed.second, Keyed[str, list[int]])
    global_ = g.global_.process(g.two_out)
    assert_type(global_.first, Global[bytes])
    assert_type(global_.second, Global[list[int]])


def two_inputs(g: Given) -> None:
    assert_type(g.non_keyed.connect_and_process(g.other_non_keyed, g.two_in), NonKeyed[bytes])
    assert_type(g.non_keyed.connect_and_process(g.other_broadcast, g.with_side), NonKeyed[bytes])
    assert_type(g.keyed.connect_and_process(g.other_keyed, g.two_in), NonKeyed[bytes])
    assert_type(g.keyed.connect_and_process(g.other_keyed, g.two_in, g.key_of_bytes), Keyed[str, bytes])
    assert_type(g.keyed.connect_and_process(g.other_broadcast, g.with_side), NonKeyed[bytes])
    assert_type(g.keyed.connect_and_process(g.other_broadcast, g.with_side, g.key_of_bytes), Keyed[str, bytes])
    assert_type(g.global_.connect_and_process(g.other_global, g.two_in), Global[bytes])
    assert_type(g.other_broadcast.connect_and_process(g.keyed, g.with_side), NonKeyed[bytes])
    assert_type(g.other_broadcast.connect_and_process(g.keyed, g.with_side, g.key_of_bytes), Keyed[str, bytes])
    assert_type(g.other_broadcast.connect_and_process(g.non_keyed, g.with_side), NonKeyed[bytes])


def sinks(g: Given) -> None:
    assert_type(g.non_keyed.to_sink(g.int_sink), ConfiguredSink)
    assert_type(g.keyed.to_sink(g.int_sink), ConfiguredSink)
    assert_type(g.global_.to_sink(CollectSink()), ConfiguredSink)


def handles(g: Given) -> None:
    non_keyed = g.non_keyed.process(g.one)
    assert_type(non_keyed.with_uid("u").with_name("n").with_parallelism(1).with_max_parallelism(1), NonKeyed[bytes])
    keyed = g.keyed.process(g.one, g.key_of_bytes)
    assert_type(keyed.with_uid("u").with_name("n").with_parallelism(1).with_max_parallelism(1), Keyed[str, bytes])
    global_ = g.global_.process(g.one)
    assert_type(global_.with_uid("u").with_name("n").with_parallelism(1).with_max_parallelism(1), Global[bytes])
    two = g.non_keyed.process(g.two_out)
    assert_type(two.with_uid("u").with_parallelism(1).first.with_name("n"), NonKeyed[bytes])
    two_keyed = g.keyed.process(g.two_out, first_key_selector=g.key_of_bytes, second_key_selector=g.key_of_list)
    assert_type(two_keyed.with_uid("u").with_max_parallelism(1), TwoKeyed[str, bytes, list[int]])
    assert_type(g.global_.process(g.two_out).first.with_uid("u"), Global[bytes])
    assert_type(g.keyed.to_sink(g.int_sink).with_name("n").with_parallelism(1), ConfiguredSink)


def sugar(g: Given) -> None:
    assert_type(g.non_keyed.map(lambda record: str(record)), NonKeyed[str])
    assert_type(g.non_keyed.map(str).map(str.encode), NonKeyed[bytes])
    assert_type(g.non_keyed.filter(lambda record: record > 1), NonKeyed[int])
    assert_type(g.non_keyed.flat_map(lambda record: [b"", b"x"] * record), NonKeyed[bytes])
    assert_type(g.non_keyed.flat_map(range), NonKeyed[int])


@dataclass(frozen=True)
class Flight:
    origin: str


@dataclass(frozen=True)
class DelayedFlight(Flight):
    minutes: int


def sources(g: Given, dataframe: DataFrameLike) -> None:
    assert_type(g.env.from_source(g.source), NonKeyed[int])
    assert_type(g.env.from_source(DataGeneratorSource(str, count=3), "numbers"), NonKeyed[str])
    assert_type(g.env.from_collection([1, 2]), NonKeyed[int])
    assert_type(g.env.from_collection(["a"], records_per_batch=1).with_parallelism(2), NonKeyed[str])
    assert_type(g.env.from_dataframe(dataframe, Flight, split_by="origin"), NonKeyed[Flight])
    assert_type(g.env.from_dataframe(pd.DataFrame(), Flight), NonKeyed[Flight])
    assert_type(DataFrameSource(dataframe, Flight), DataFrameSource[Flight])


def variance(
    delayed: NonKeyedPartitionStream[DelayedFlight],
    of_flights: OneInputStreamProcessFunction[Flight, DelayedFlight],
    sink_of_flights: Sink[Flight],
    pair: TwoInputNonBroadcastStreamProcessFunction[Flight, Flight, Flight],
    with_side: TwoInputBroadcastStreamProcessFunction[Flight, Flight, Flight],
) -> None:
    """A stream of a subclass can be used where a stream of the base class is expected."""
    flights: NonKeyedPartitionStream[Flight] = delayed
    keyed: KeyedPartitionStream[str, Flight] = delayed.key_by(lambda flight: flight.origin)
    results: NonKeyedPartitionStream[Flight] = delayed.process(of_flights)
    assert_type(delayed.process(of_flights), NonKeyed[DelayedFlight])
    delayed.to_sink(sink_of_flights)
    delayed.to_sink(CollectSink[Flight]())
    delayed.connect_and_process(results, pair).to_sink(sink_of_flights)
    results.connect_and_process(delayed, pair).to_sink(sink_of_flights)
    delayed.broadcast().connect_and_process(keyed, with_side, lambda flight: flight.origin)
    flights.connect_and_process(delayed.broadcast(), with_side)


def emit_text(record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None:
    output.collect(str(record))


NEWEST = new_builder("newest").type_long().combine_function_max().build()
DONE = new_builder("done").type_bool().combine_wait_for_all_channels(True).default_handling_strategy_ignore().build()


def watermarks() -> None:
    assert_type(new_builder("w").type_long().combine_function_min(), LongWatermarkBuilder)
    assert_type(new_builder("w").type_bool().combine_across_inputs(True).aligned(), BoolWatermarkBuilder)
    assert_type(NEWEST, LongWatermarkDeclaration)
    assert_type(DONE, BoolWatermarkDeclaration)
    assert_type(NEWEST.new_watermark(1), LongWatermark)
    assert_type(DONE.new_watermark(True), BoolWatermark)


def barriers(watermark: Watermark) -> None:
    minute = timedelta(minutes=1)
    assert_type(new_builder("day").type_long().barrier().build(), LongWatermarkDeclaration)
    builder = new_builder("day").type_str().barrier(timeout=minute, max_records=9, when_exceeded="proceed")
    assert_type(builder.build(), WatermarkDeclaration[str])
    new_builder("day").type_float().barrier(timeout=minute, when_exceeded=WhenExceeded.FAIL)
    assert_type(builder.build().new_watermark("2026-11-22"), Watermark[str])
    if builder.build().matches(watermark):
        assert_type(watermark.value, str)  # pyright: ignore  # Any: it keeps the declared type


def metrics(ctx: NonPartitionedContext[bytes], record: int) -> None:
    ctx.metric_group.counter("emitted").inc()
    sizes = ctx.metric_group.histogram("sizes", [1, 2.5])
    assert_type(sizes, Histogram)
    sizes.update(record / 2)
    ctx.metric_group.gauge("values", lambda: sizes.count)


def declarations() -> None:
    assert_type(ValueStateDeclaration("s", int), ValueStateDeclaration[int])
    assert_type(ValueStateDeclaration("s", int), ValueStateDeclaration[int, int | None])
    assert_type(ValueStateDeclaration("s", int, 0), ValueStateDeclaration[int, int])
    assert_type(StateDeclarations.value_state("s", int | str), ValueStateDeclaration[int | str])
    assert_type(StateDeclarations.value_state("s", list[int], []), ValueStateDeclaration[list[int], list[int]])
    assert_type(StateDeclarations.value_state("s", float, 0, ttl=StateTtl(ms(1))), ValueStateDeclaration[float, float])
    assert_type(StateDeclarations.list_state("s", Flight), ListStateDeclaration[Flight])
    builder = StateDeclarations.list_state_builder("s", tuple[int, str])
    assert_type(builder.redistribute_by(RedistributionStrategy.UNION).build(), ListStateDeclaration[tuple[int, str]])
    assert_type(
        builder.redistribute_with_mode(RedistributionMode.IDENTICAL).build(), ListStateDeclaration[tuple[int, str]]
    )
    assert_type(StateDeclarations.map_state("s", str, list[int]), MapStateDeclaration[str, list[int]])
    assert_type(StateDeclarations.map_state_builder("s", str, int).build(), MapStateDeclaration[str, int])
    assert_type(
        StateDeclarations.map_state_builder("s", str, int).build_broadcast(), BroadcastStateDeclaration[str, int]
    )
    assert_type(StateDeclarations.reducing_state("s", int, max), ReducingStateDeclaration[int])
    assert_type(
        StateDeclarations.aggregating_state("s", tuple[int, int], Mean()),
        AggregatingStateDeclaration[int, tuple[int, int], float],
    )
    assert_type(aggregate_of(set[str], with_word, len), AggregateFunction[str, set[str], int])


def with_word(word: str, words: set[str]) -> set[str]:
    return words | {word}


def states(manager: StateManager) -> None:
    value = manager.get_state(StateDeclarations.value_state("s", int))
    assert_type(value, ValueState[int])
    assert_type(value.value(), int | None)
    counted = manager.get_state(StateDeclarations.value_state("s", int, default=0))
    assert_type(counted, ValueState[int, int])
    assert_type(counted.value(), int)
    assert_type(counted.update_with(lambda count: count + 1), int)
    assert_type(value.update_with(lambda count: (count or 0) + 1), int)
    assert_type(manager.get_state(ValueStateDeclaration("s", int, 0)).value() + 1, int)
    with_or_without: ValueState[int] = counted
    assert_type(with_or_without.value(), int | None)  # pyright: ignore  # int: it follows the assignment
    flights = manager.get_state(StateDeclarations.list_state("s", Flight))
    assert_type(flights, ListState[Flight])
    assert_type(flights.get(), list[Flight])
    flights.add_all([DelayedFlight("JFK", 5)])
    delays = manager.get_state(StateDeclarations.map_state("s", str, int))
    assert_type(delays, MapState[str, int])
    assert_type(delays.get("JFK"), int | None)
    assert_type(delays.get("JFK", 0), int)
    assert_type(delays.get("JFK", "none"), int | str)
    assert_type(delays.items(), list[tuple[str, int]])
    assert_type(delays.update_with("JFK", lambda delay: max(delay, 5), 0), int)
    assert_type(delays.update_with("JFK", lambda delay: (delay or 0) + 5), int)
    assert_type([origin.lower() for origin in delays if origin in delays], list[str])
    rules = manager.get_state(StateDeclarations.map_state_builder("s", str, int).build_broadcast())
    assert_type(rules, BroadcastState[str, int])
    assert_type(rules.get("JFK"), int | None)
    assert_type(manager.get_state(StateDeclarations.reducing_state("s", int, max)), ReducingState[int])
    assert_type(manager.get_state(StateDeclarations.reducing_state("s", int, max)).get(), int | None)
    mean = manager.get_state(StateDeclarations.aggregating_state("s", tuple[int, int], Mean()))
    assert_type(mean, AggregatingState[int, float])
    assert_type(mean.get(), float | None)
    assert_type(manager.get_state_optional(StateDeclarations.value_state("s", int, 0)), ValueState[int, int] | None)
    assert_type(manager.get_state_optional(StateDeclarations.list_state("s", int)), ListState[int] | None)


RULES = StateDeclarations.map_state_builder("rules", str, int).build_broadcast()
PENDING = StateDeclarations.list_state_builder("pending", Flight).redistribute_by(RedistributionStrategy.SPLIT).build()


def states_of_the_subtask(manager: SubtaskStateManager) -> None:
    assert_type(manager.get_state(RULES), BroadcastState[str, int])
    assert_type(manager.get_state(PENDING), ListState[Flight])
    assert_type(manager.get_state_optional(RULES), BroadcastState[str, int] | None)
    assert_type(manager.get_state_optional(PENDING), ListState[Flight] | None)


def partitions_lead_to_them_as_well(
    one: PartitionedContext[bytes], two: TwoOutputPartitionedContext[bytes, str]
) -> None:
    states_of_the_subtask(one.state_manager)  # pyright: ignore  # it compares overloads one by one
    states_of_the_subtask(one.non_partitioned_context.state_manager)
    states_of_the_subtask(two.non_partitioned_context.state_manager)


def every_pair(left: int, right: date, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def left_alone(left: int, right: date | None, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def right_alone(left: int | None, right: date, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def anyone_alone(left: int | None, right: date | None, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def left_only(left: int, right: None, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def late_date(record: date, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


class JoinResult(NamedTuple):
    number: int
    day: date | None


def joins(g: Given, every: JoinFunction[int, date, bytes]) -> None:
    connect = g.keyed.connect_and_process
    declared = join(JoinResult, JoinMode.interval(ms(-5), ms(5)), "left", number=Left("number"), day=Right("day"))
    assert_type(connect(g.other_keyed, declared), NonKeyed[JoinResult])
    assert_type(join(every), TwoInputNonBroadcastStreamProcessFunction[int, date, bytes])
    assert_type(join(every_pair), TwoInputNonBroadcastStreamProcessFunction[int, date, bytes])
    assert_type(connect(g.other_keyed, join(every_pair)), NonKeyed[bytes])
    assert_type(
        connect(g.other_keyed, join(every_pair, JoinMode.unbounded(ttl=StateTtl(timedelta(hours=1))))), NonKeyed[bytes]
    )
    assert_type(connect(g.other_keyed, join(every_pair), g.key_of_bytes), Keyed[str, bytes])
    assert_type(
        connect(g.other_keyed, join(every, JoinMode.interval(ms(-5), timedelta(seconds=5)), on_late_right=late_date)),
        NonKeyed[bytes],
    )


def a_join_of_anything(left: object, right: object, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def joins_of_subclasses(g: Given) -> None:
    connect = g.keyed.connect_and_process
    assert_type(connect(g.other_keyed, join(a_join_of_anything)), NonKeyed[bytes])
    assert_type(
        connect(g.other_keyed, join(a_join_of_anything, JoinMode.interval(ms(0), ms(5)), JoinType.FULL)),
        NonKeyed[bytes],
    )
    assert_type(
        connect(g.other_keyed, join(a_join_of_anything, JoinMode.window(WindowStrategy.count(2)))), NonKeyed[bytes]
    )


def choices_are_members_or_strings(g: Given) -> None:
    g.env.set_execution_mode("batch")
    WindowStrategy.tumbling(timedelta(minutes=5), "processing").with_early_firing(timedelta(minutes=1), "processing")
    StateTtl(timedelta(hours=1), "on-read-and-write")
    StateDeclarations.list_state_builder("s", int).redistribute_by("union")
    new_builder("w").type_bool().default_handling_strategy("ignore")
    connect, tumbling = g.keyed.connect_and_process, WindowStrategy.tumbling(ms(5))
    assert_type(connect(g.other_keyed, join(left_alone, JoinMode.interval(ms(0), ms(5)), "left")), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(left_only, JoinMode.interval(ms(0), ms(5)), "anti")), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(anyone_alone, JoinMode.window(tumbling), "full")), NonKeyed[bytes])
    join(every_pair, JoinMode.temporal(on_snapshot_timeout="fail"))


def names_for_annotations(g: Given) -> None:
    one: ConfiguredStream[bytes] = g.non_keyed.process(g.one)
    two: TwoStreams[bytes, list[int]] = g.non_keyed.process(g.two_out)
    keyed: ConfiguredKeyedStream[str, bytes] = g.keyed.process(g.one, g.key_of_bytes)
    stream: NonKeyedPartitionStream[bytes] = two.first
    assert_type(one.with_uid("u"), ConfiguredStream[bytes])
    assert_type(keyed.with_uid("u"), ConfiguredKeyedStream[str, bytes])
    stream.map(len)


def joins_with_none(g: Given) -> None:
    connect, tumbling = g.keyed.connect_and_process, WindowStrategy.tumbling(ms(5))
    assert_type(
        connect(g.other_keyed, join(left_alone, JoinMode.interval(ms(0), ms(5)), JoinType.LEFT)), NonKeyed[bytes]
    )
    assert_type(
        connect(g.other_keyed, join(right_alone, JoinMode.interval(ms(0), ms(5)), JoinType.RIGHT)), NonKeyed[bytes]
    )
    assert_type(
        connect(g.other_keyed, join(anyone_alone, JoinMode.interval(ms(0), ms(5)), JoinType.FULL)), NonKeyed[bytes]
    )
    assert_type(
        connect(g.other_keyed, join(left_only, JoinMode.interval(ms(0), ms(5)), JoinType.SEMI)), NonKeyed[bytes]
    )
    assert_type(connect(g.other_keyed, join(every_pair, JoinMode.window(tumbling, running=True))), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(left_alone, JoinMode.window(tumbling), JoinType.LEFT)), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(right_alone, JoinMode.window(tumbling), JoinType.RIGHT)), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(anyone_alone, JoinMode.window(tumbling), JoinType.FULL)), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(left_only, JoinMode.window(tumbling), JoinType.ANTI)), NonKeyed[bytes])


def is_sunday(day: date) -> bool:
    return day.isoweekday() == 7


def temporal_joins(g: Given, every: JoinFunction[int, date, bytes]) -> None:
    connect, mode = g.keyed.connect_and_process, JoinMode.temporal()
    assert_type(join(every, mode), TwoInputNonBroadcastStreamProcessFunction[int, date, bytes])
    assert_type(connect(g.other_keyed, join(every_pair, mode, is_deletion=is_sunday)), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(every_pair, mode, is_deletion=lambda day: day.day == 1)), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(left_alone, mode, JoinType.LEFT), g.key_of_bytes), Keyed[str, bytes])
    assert_type(connect(g.other_keyed, join(every_pair, mode, row_key=is_sunday)), NonKeyed[bytes])
    versioned = JoinMode.versioned(ttl=StateTtl(timedelta(hours=1)))
    assert_type(connect(g.other_keyed, join(every_pair, versioned, is_deletion=is_sunday)), NonKeyed[bytes])
    assert_type(connect(g.other_keyed, join(left_alone, versioned, "left", on_late_right=late_date)), NonKeyed[bytes])
    JoinMode.temporal(snapshot_timeout=timedelta(hours=1), on_snapshot_timeout=OnSnapshotTimeout.FAIL)


def sinks_and_their_files(env: ExecutionEnvironment, flights: NonKeyedPartitionStream[Flight]) -> None:
    flights.to_sink(FileSink("out", schema=Flight, partition_by=["carrier"], roll_interval=timedelta(minutes=1)))
    flights.to_sink(CollectSink[Flight](max_records=10, max_bytes=None))
    flights.to_sink(ForeachBatchSink(lambda records, batch_id: assert_type(records, list[Flight]).clear(), max_bytes=1))
    followed = env.from_source(FileSinkSource("out", lambda row: str(row["carrier"])), "flights")
    assert_type(followed, ConfiguredStream[str])
