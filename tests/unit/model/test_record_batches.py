"""Functions on batches of records give the same results as record by record, and may run at the source."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.errors import RecordMutatedError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.functions import FilterFunction, FlatMapFunction, MapFunction, OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from dsv2.local import LocalRuntime
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange import edges
from dsv2.runtime.exchange.edges import EdgeEmitter
from dsv2.sinks import CollectSink
from dsv2.sources import DataFrameSource, DataGeneratorSource
from dsv2.watermark import WatermarkHandlingResult
from dsv2.watermark.event_time import LONG_MAX
from tests.support import broadcast_side, local_environment, operator_named

FUNCTIONS: list[Any] = [
    MapFunction(lambda record: record + 100),
    FilterFunction(lambda record: record % 3),
    FlatMapFunction(lambda record: [record] * (record % 4)),
]


class Collected:
    """A collector of records with their timestamps."""

    def __init__(self, timestamp: int | None = None) -> None:
        self.timestamp = timestamp
        self.got: list[tuple[Any, int | None]] = []

    def collect(self, record: Any) -> None:
        self.got.append((record, self.timestamp))


@given(st.sampled_from(FUNCTIONS), st.lists(st.tuples(st.integers(0, 50), st.none() | st.integers(0, 9))))
def test_batch_gives_the_same_as_single_records(function: Any, stamped: list[tuple[int, int | None]]) -> None:
    single = Collected()
    for record, single.timestamp in stamped:
        function.process_record(record, single, None)
    batches: list[RecordBatch[Any]] = []
    records, timestamps = [record for record, _ in stamped], [timestamp for _, timestamp in stamped]
    function.process_record_batch(RecordBatch(records, timestamps), batches.append)
    function.process_record_batch(RecordBatch(records), batches.append)
    with_timestamps, without = batches
    assert list(with_timestamps.pairs()) == single.got
    assert without == RecordBatch([record for record, _ in single.got])


def test_subclass_may_override_only_process_record() -> None:
    class Twice(MapFunction[int, int]):
        def process_record(self, record: int, output: Any, ctx: Any) -> None:
            output.collect(self.function(record))
            output.collect(self.function(record))

    env, sink = local_environment(), CollectSink[int]()
    env.from_source(DataGeneratorSource(int, count=2)).process(Twice(lambda record: record)).to_sink(sink)
    env.execute()
    assert sink.results == [0, 0, 1, 1]


def plan_of(build: Any, parallelism: int = 2) -> Plan:
    env = local_environment(parallelism)
    build(env)
    return env.build_plan()


def test_stateless_functions_run_at_the_source() -> None:
    def build(env: ExecutionEnvironment) -> None:
        mapped = env.from_source(DataGeneratorSource(int, count=9)).map(str).with_uid("map")
        kept = mapped.filter(bool).with_uid("filter")
        kept.key_by(len).process(lambda record, output, ctx: None).with_uid("keyed").to_sink(CollectSink())
        kept.process(lambda record, output, ctx: None).with_uid("stateful").to_sink(CollectSink())

    plan = plan_of(build)
    assert [operator.uid for operator in plan.chained_to_sources] == ["map", "filter"]
    assert {plan.operators[head].uid: depth for head, depth in plan.depths.items()} == {"keyed": 1, "stateful": 1}


class FakeFrame:
    """A streaming DataFrame, as far as a plan inspects it."""

    isStreaming = True  # noqa: N815 - Spark's name


def timed(stream: Any, idleness: int = 0) -> Any:
    """The stream with the record itself as event time, and periodic watermarks."""
    builder = EventTimeExtension.new_watermark_generator_builder(int).with_idleness(timedelta(seconds=idleness))
    return stream.process(builder.build_as_process_function())


def test_periodic_watermark_generators_run_at_the_source() -> None:
    plan = plan_of(lambda env: timed(env.from_source(DataGeneratorSource(int, count=9)).map(int)).with_uid("times"))
    assert plan.chained_to_sources[-1].uid == "times"
    assert plan.depths == {}


class Watermarks(OneInputEventTimeStreamProcessFunction[int, tuple[str, int]]):
    """Emits records and watermarks."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(("record", ctx.timestamp))

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("watermark", timestamp))


class NoWatermarks(OneInputStreamProcessFunction[int, int]):
    """Must not receive any watermark except the end of time."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        assert ctx.timestamp is None

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> Any:
        assert watermark.value == LONG_MAX, "it is of another branch"
        return WatermarkHandlingResult.PEEK


@pytest.mark.parametrize("checks", [True, False])
def test_watermarks_at_the_source_never_go_back(checks: bool) -> None:
    """The second portion ends earlier than the first, so its watermark is not sent."""
    times = [5, 9, 7, 3, 4, 8, 20, 12]
    env, sink = local_environment(), CollectSink[tuple[str, int]]()
    numbers = env.from_source(DataGeneratorSource(times.__getitem__, count=len(times)))
    timed(numbers).process(Watermarks()).to_sink(sink)
    numbers.process(NoWatermarks()).to_sink(CollectSink())
    LocalRuntime(batches=[2, 2, 2, 2], checks=checks).start(env.build_plan(), RunOptions(None, None)).result()
    expected: list[Any] = []
    for portion, watermark in (([5, 9], [8]), ([7, 3], []), ([4, 8], []), ([20, 12], [19])):
        expected += [("record", time) for time in portion] + [("watermark", time) for time in watermark]
    assert sink.results == [*expected, ("watermark", LONG_MAX)]


@pytest.mark.parametrize(
    "build",
    [
        lambda env: timed(env.from_source(DataGeneratorSource(int, count=1)), idleness=1),
        lambda env: timed(env.from_source(DataFrameSource(FakeFrame(), dict))),  # rows of a portion come from anywhere
        lambda env: timed(env.from_collection([1])),
        lambda env: env.from_collection([1]).map(str),  # its elements are created on the driver
        lambda env: env.from_source(DataGeneratorSource(int, count=1)).shuffle().map(str),
        lambda env: env.from_source(DataGeneratorSource(int, count=1)).key_by(int).process(MapFunction(str)),
        lambda env: env.from_source(DataGeneratorSource(int, count=1)).map(str).with_parallelism(1),
    ],
)
def test_other_functions_get_their_own_subtasks(build: Any) -> None:
    assert plan_of(build).chained_to_sources == ()


def test_progress_includes_functions_at_the_source() -> None:
    env, sink = local_environment(2), CollectSink[int]()
    numbers = env.from_source(DataGeneratorSource(int, count=100)).with_uid("in")
    twice = numbers.filter(lambda n: n % 4 == 0).with_uid("quarter").flat_map(lambda n: [n, n]).with_uid("twice")
    twice.to_sink(sink).with_uid("out")
    progress = env.execute().progress.operators
    assert {uid: (o.records_in, o.records_out) for uid, o in progress.items()} == {
        "in": (0, 100),
        "quarter": (100, 25),
        "twice": (25, 50),
        "out": (50, 0),
    }
    assert sorted(sink.results) == sorted(2 * [*range(0, 100, 4)])


def test_failure_at_the_source_names_operator_and_record() -> None:
    env = local_environment()
    source = env.from_source(DataGeneratorSource(int, count=10))
    source.map(lambda n: 1 // (n - 7)).with_uid("inverse").to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as raised:
        env.execute()
    assert (raised.value.operator, raised.value.record) == ("Map (uid 'inverse')", "7")
    assert raised.value.callback == "process_record"


def test_mutation_at_the_source_is_detected() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    lists = env.from_source(DataGeneratorSource(int, count=3)).map(lambda n: [n])
    lists.map(lambda record: record.append(0)).to_sink(CollectSink())
    with pytest.raises(RecordMutatedError, match="after Map"):
        env.execute()


@given(
    st.sampled_from(["key_by", "shuffle", "broadcast", "global_"]),
    st.lists(st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, 9)), max_size=9), max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_edge_sends_batches_like_single_records(how: str, runs: list[Any], stamped: list[bool]) -> None:
    def sent(one_by_one: bool) -> list[Any]:
        edge, frames = new_edge(how), list[Any]()
        for run, has_stamps in zip(runs, stamped, strict=False):
            if one_by_one and has_stamps:
                for record, timestamp in run:
                    edge.emit_stamped(record, timestamp)
            elif one_by_one:
                for record, _ in run:
                    edge.emit(record)
            else:
                edge.emit_batch(RecordBatch([r for r, _ in run], [t for _, t in run] if has_stamps else None))
        edge.flush(frames.append)
        shown = [(f.subtask, f.channel, [*f.batch.pairs()]) for f in frames]
        return [*shown, edge.snapshot()]

    assert sent(one_by_one=True) == sent(one_by_one=False)


def new_edge(how: str) -> EdgeEmitter:
    env = local_environment(3)
    source = env.from_source(DataGeneratorSource(int, count=1)).with_parallelism(2)
    if how == "broadcast":
        env.from_collection([1]).connect_and_process(source.broadcast(), broadcast_side()).with_uid("target")
    else:
        stream = source.key_by(lambda n: n) if how == "key_by" else getattr(source, how)()
        stream.process(lambda record, output, ctx: None).with_uid("target")
    plan = env.build_plan()
    return edges.new_edge(plan, plan.edges_into[operator_named(plan, "target").id][-1], 1)
