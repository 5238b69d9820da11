"""The sections of a plan whose records pass through DataFrames: depths, layouts, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock, Mock

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.errors import ConfigurationError, PlanError, SchemaError
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.graph import Plan
from dsv2.model.context import RuntimeExecutionMode
from dsv2.sinks import CollectSink
from dsv2.streams import ConfiguredStream
from runtime_spark import through_dataframe
from runtime_spark.frames.layout import Layout
from runtime_spark.sink import intermediate_frames as passages
from runtime_spark.sink.intermediate_frames import check_passages, passed
from runtime_spark.source.sources import source_streams
from tests.support import local_environment, operator_named


class Row(NamedTuple):
    key: str
    number: int


class Pass(OneInputStreamProcessFunction[Row, Row]):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def process_record(self, record: Row, output: Collector[Row], ctx: PartitionedContext[Row]) -> None: ...


class Join(TwoInputNonBroadcastStreamProcessFunction[Row, Row, Row]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...


def key(row: Row) -> str:
    return row.key


def source(env: ExecutionEnvironment, uid: str) -> ConfiguredStream[Row]:
    return env.from_collection([Row("a", 1)]).with_uid(uid)


def through(env: ExecutionEnvironment, stream: Any, uid: str) -> ConfiguredStream[Row]:
    return through_dataframe(env, stream, lambda rows: rows, Row, Row, name=uid).with_uid(uid)


def twice(env: ExecutionEnvironment) -> None:
    """Three sections. The last one begins with a DataFrame and another source, which has only one exchange."""
    first = source(env, "first source").key_by(key).process(Pass()).with_uid("a").key_by(key).process(Pass())
    second = through(env, first.with_uid("b"), "one").key_by(key).process(Pass()).with_uid("c")
    third = through(env, second, "two").key_by(key)
    other = source(env, "second source").key_by(key).process(Pass()).with_uid("d")
    joined = third.connect_and_process(other.key_by(key), Join()).with_uid("e")
    joined.to_sink(CollectSink()).with_uid("sink")


def plan_of(build: Callable[[ExecutionEnvironment], object]) -> Plan:
    env = local_environment(2)
    build(env)
    return env.take_plan()


def test_depths_continue_after_a_dataframe() -> None:
    plan = plan_of(twice)
    assert {plan.operators[head].uid: depth for head, depth in plan.depths.items()} == {
        "a": 1,
        "b": 2,
        "c": 3,
        "d": 4,
        "e": 5,  # not 1, because the frames of its source come after those of the second DataFrame
    }
    sections = [{op.uid for op in plan.operators if plan.sections[op.id] == section} for section in range(3)]
    assert {"first source", "a", "b"} < sections[0]
    assert {"one", "c"} < sections[1]
    assert sections[2] == {"two", "second source", "d", "e", "sink"}
    assert [[plan.operators[head].uid for head in level] for level in Layout.of(plan).levels] == [
        *(["a"], ["b"], ["c"], ["d"], ["e"])
    ]


@pytest.mark.parametrize("restores", [False, True])
def test_order_of_streams_in_the_offset_log(restores: bool) -> None:
    of_savepoints = [("", 1)] if restores else []
    first, second, third = [("first source", 1)], [("one", 1)], [("two", 1), ("second source", 1)]
    expected = [*first, *of_savepoints, *second, *of_savepoints, *third]
    assert source_streams(plan_of(twice), restores=restores) == expected


def test_plan_without_dataframes_has_one_section() -> None:
    plan = plan_of(lambda env: source(env, "s").process(Pass()).to_sink(CollectSink()))
    assert set(plan.sections.values()) == {0}
    assert plan.passages == ()


def past_the_dataframe(env: ExecutionEnvironment) -> None:
    first = source(env, "s").process(Pass()).with_uid("a")
    first.to_sink(CollectSink()).with_uid("early")
    through(env, first, "df").to_sink(CollectSink())


def around_the_dataframe(env: ExecutionEnvironment) -> None:
    first = source(env, "s").process(Pass()).with_uid("a")
    after = through(env, first, "df").key_by(key)
    after.connect_and_process(first.key_by(key), Join()).with_uid("join").to_sink(CollectSink())


def two_of_one_stream(env: ExecutionEnvironment) -> None:
    first = source(env, "s").process(Pass()).with_uid("a")
    one = through(env, first, "one").key_by(key)
    one.connect_and_process(through(env, first, "two").key_by(key), Join()).to_sink(CollectSink())


def side_by_side(env: ExecutionEnvironment) -> None:
    one = through(env, source(env, "s"), "one").key_by(key)
    one.connect_and_process(through(env, source(env, "t"), "two").key_by(key), Join()).to_sink(CollectSink())


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (
            past_the_dataframe,
            r"uid 'a'.* sends records to .*uid 'early'.*, which is not part of df, defined at .*py",
        ),
        (around_the_dataframe, r"uid 'a'.* sends records to .*uid 'join'.*, which is not part of df.* a job of their"),
        (two_of_one_stream, r"uid 'a'.* sends records to two, input.*, which is not part of one"),
        (side_by_side, r"one.* and two.* are DataFrames of different streams. In a job one must be made of the"),
    ],
)
def test_records_cannot_pass_by(build: Callable[[ExecutionEnvironment], object], told: str) -> None:
    plan = plan_of(build)
    with pytest.raises(PlanError, match=told):
        Layout.of(plan)


def test_local_runtime_refuses_it() -> None:
    env = local_environment()
    through(env, source(env, "s"), "df").to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match=r"df.* the local runtime does not support"):
        env.execute()


def test_arguments_are_checked() -> None:
    env = local_environment()
    with pytest.raises(ConfigurationError, match="transform must be a callable"):
        through_dataframe(env, source(env, "s"), "SELECT 1", Row, Row)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"through_dataframe at .*test_sections.py:\d+: the stream belongs to another"):
        through(local_environment(), source(env, "s"), "df")
    with pytest.raises(SchemaError):
        through_dataframe(env, source(env, "s"), lambda rows: rows, "nonsense", Row)


def test_uid_of_the_source_is_the_uid_of_the_stream() -> None:
    assert operator_named(plan_of(twice), "one").kind.value == "source"


def transformed(env: ExecutionEnvironment, result: DataFrame) -> None:
    rows = through_dataframe(env, source(env, "s"), lambda _: result, Row, Row, name="df")
    rows.to_sink(CollectSink())


def test_columns_that_do_not_match_are_refused() -> None:
    result: Any = Mock(spec=DataFrame, schema=t.StructType([t.StructField("key", t.StringType())]))
    session: Any = SimpleNamespace(createDataFrame=lambda rows, schema: Mock(spec=DataFrame, schema=schema))
    env = local_environment()
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    transformed(env, result)
    with pytest.raises(SchemaError, match=r"df.*, defined at .*test_sections.py:\d+: .*number"):
        check_passages(session, env.take_plan())


def test_transform_that_returns_another_stream_later_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "decoded", lambda *_, **__: Mock(spec=DataFrame, isStreaming=False))
    other: Any = Mock(spec=DataFrame, isStreaming=True, _jdf=MagicMock())
    other._jdf.queryExecution().analyzed().collectLeaves().size.return_value = 1
    plan = plan_of(lambda env: transformed(env, other))
    reports: Any = SimpleNamespace(payloads=None)
    with pytest.raises(PlanError, match=r"The DataFrame of .*df.* must read the given DataFrame exactly once"):
        passed(other, plan, plan.passages[0], Layout.of(plan), b"", reports)
