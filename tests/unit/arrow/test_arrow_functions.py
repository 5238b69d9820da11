"""Functions that take Arrow tables: their input, their output and their errors."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.arrow import ArrowCollector, ArrowProcessFunction, map_tables, schema_of
from dsv2.arrow.records import table_of
from dsv2.errors import ConfigurationError, ContractError, PlanError, SchemaError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction, no_output_until_end_of_input
from dsv2.model.context import NonPartitionedContext, PartitionedContext
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.testing import OneInputHarness, StampedRecord
from dsv2.watermark import LongWatermark, Watermark, WatermarkHandlingResult, new_builder

T = TypeVar("T")


class Click(NamedTuple):
    """Input."""

    user: str
    time: int


class Size(NamedTuple):
    """Output: the number of rows of a table and the time of its first row."""

    rows: int
    first: int


CLICKS = [Click("a", 1), Click("b", 2), Click("c", 3)]


class Measure(ArrowProcessFunction[Click, Size]):
    """Emits one record for each table."""

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Size], ctx: PartitionedContext[Size]) -> None:
        output.collect(Size(batch.num_rows, batch["time"][0].as_py()))


MARK = new_builder("mark").type_long().combine_function_max().combine_wait_for_all_channels(False).build()


class Sum(ArrowProcessFunction[Click, Click]):
    """Keeps all tables in a field and emits them with the next watermark."""

    def __init__(self) -> None:
        self.waiting = schema_of(Click).empty_table()

    def declare_watermarks(self) -> list[Any]:
        return [MARK]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Click], ctx: PartitionedContext[Click]) -> None:
        self.waiting = pa.concat_tables([self.waiting, batch])

    def on_watermark(
        self, watermark: Watermark, output: ArrowCollector[Click], ctx: NonPartitionedContext[Click]
    ) -> WatermarkHandlingResult:
        output.collect_batch(self.waiting, time_column="time")
        output.collect_and_overwrite_timestamp(Click("mark", int(watermark.value)), 0)
        self.waiting = self.waiting.slice(0, 0)
        return WatermarkHandlingResult.PEEK


def test_watermarks_pass_by_default() -> None:
    class Marked(Measure):
        def declare_watermarks(self) -> list[Any]:
            return [MARK]

    harness = OneInputHarness(Marked())
    harness.input.push_watermark(MARK.new_watermark(5))
    assert harness.output.watermarks == [LongWatermark(5, "mark")]


@pytest.mark.parametrize("key", [None, attrgetter("user")])
def test_table_holds_records_of_all_keys(key: Callable[[Click], str] | None) -> None:
    harness = OneInputHarness(Measure(), key=key)
    harness.input.push(*CLICKS)
    harness.input.push(Click("d", 4))
    assert harness.output.records == [Size(3, 1), Size(1, 4)]


def test_tables_in_fields_survive_a_restart() -> None:
    harness = OneInputHarness(Sum())
    harness.input.push(*CLICKS)
    harness.restart()
    harness.input.push(Click("d", 4))
    assert harness.output.records == []
    harness.input.push_watermark(MARK.new_watermark(7))
    assert harness.output.records == [*CLICKS, Click("d", 4), Click("mark", 7)]
    assert harness.output.timestamps == [1, 2, 3, 4, 0]
    assert harness.output.watermarks == [LongWatermark(7, "mark")]


def test_records_emitted_from_a_table_have_no_timestamp() -> None:
    harness = OneInputHarness(Measure())
    harness.input.push(*CLICKS, timestamp=5)
    assert harness.output.timestamps == [None]


def test_output_keeps_its_order() -> None:
    class Both(ArrowProcessFunction[Click, Click]):
        def process_batch(self, batch: pa.Table, output: ArrowCollector[Click], ctx: Any) -> None:
            output.collect(Click("first", 0))
            output.collect_batch(batch)
            ctx.non_partitioned_context.watermark_manager.emit_watermark(MARK.new_watermark(1))
            output.collect_batch(batch.slice(0, 0))
            output.collect_batch(batch)
            output.collect(Click("last", 0))

        def declare_watermarks(self) -> list[Any]:
            return [MARK]

    heard = CollectSink[str]()
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(1)
    env.from_collection(CLICKS[:1]).process(Both()).shuffle().process(Recorder()).to_sink(heard)
    env.execute()
    assert heard.results == ["first", "a", "mark 1", "a", "last"]


class Recorder(OneInputStreamProcessFunction[Click, str]):
    """Emits what it receives, in order."""

    def process_record(self, record: Click, output: Any, ctx: Any) -> None:
        output.collect(record.user)

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"{watermark.identifier} {watermark.value}")
        return WatermarkHandlingResult.PEEK


def doubled(table: pa.Table) -> pa.Table:
    """Every row twice."""
    return pa.concat_tables([table, table])


def test_map_tables_is_chained_to_the_source() -> None:
    sink = CollectSink[Click]()
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(1)
    clicks = env.from_source(DataGeneratorSource(lambda index: CLICKS[index], count=2), "clicks")
    clicks.process(map_tables(doubled, Click, Click)).with_uid("doubled").to_sink(sink)
    assert [operator.uid for operator in env.build_plan("clicks").chained_to_sources] == ["doubled"]
    env.execute()
    assert sink.results == [*CLICKS[:2], *CLICKS[:2]]


def test_wrong_table_is_an_error_of_the_chained_function() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    clicks = env.from_source(DataGeneratorSource(lambda index: CLICKS[index], count=2), "clicks")
    lacking = map_tables(lambda table: table.drop_columns("time"), Click, Click)
    clicks.process(lacking).with_uid("lacking").to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match="no column 'time', so it does not match Click") as raised:
        env.execute()
    assert (raised.value.callback, "lacking" in raised.value.operator) == ("process_batch", True)


def test_error_of_a_table_names_its_first_record() -> None:
    class Fails(ArrowProcessFunction[Click, Click]):
        def process_batch(self, batch: pa.Table, output: Any, ctx: Any) -> None:
            raise RuntimeError("no")

    harness = OneInputHarness(Fails())
    with pytest.raises(UserFunctionError, match="no") as raised:
        harness.input.push(*CLICKS)
    assert raised.value.callback == "process_batch"
    assert raised.value.record is not None
    assert "Click(user='a', time=1)" in raised.value.record


@pytest.mark.parametrize(
    ("table", "time_column", "said"),
    [
        (pa.table({"user": ["a"]}), None, "does not match Click"),
        (pa.table({"user": ["a"], "time": [1]}), "user", "Click has no column 'user' of whole numbers"),
    ],
)
def test_wrong_table_is_an_error_of_the_function(table: pa.Table, time_column: str | None, said: str) -> None:
    class Emits(ArrowProcessFunction[Click, Click]):
        def process_batch(self, batch: pa.Table, output: ArrowCollector[Click], ctx: Any) -> None:
            output.collect_batch(table, time_column=time_column)

    with pytest.raises(UserFunctionError, match=said):
        OneInputHarness(Emits()).input.push(*CLICKS)


def test_all_keys_of_a_subtask_are_one_partition() -> None:
    class EmitsTables(ArrowProcessFunction[Click, Click]):
        def process_batch(self, batch: pa.Table, output: Any, ctx: Any) -> None:
            ctx.non_partitioned_context.apply_to_all_partitions(lambda out, _: out.collect_batch(batch))

        def end_input(self, output: ArrowCollector[Click], ctx: Any) -> None:
            output.collect(Click("end", 9))

    harness = OneInputHarness(EmitsTables(), key=attrgetter("user"))
    harness.input.push(*CLICKS)
    harness.end()
    assert harness.output.records == [*CLICKS, Click("end", 9)]


def test_no_current_key() -> None:
    class ReadsKey(ArrowProcessFunction[Click, Click]):
        def process_batch(self, batch: pa.Table, output: Any, ctx: Any) -> None:
            ctx.state_manager.current_key  # noqa: B018

    with pytest.raises(UserFunctionError, match="There is no current key here"):
        OneInputHarness(ReadsKey(), key=attrgetter("user")).input.push(*CLICKS)


class Undeclared(ArrowProcessFunction[T, T], Generic[T]):
    """Does not declare its record types."""

    def process_batch(self, batch: pa.Table, output: Any, ctx: Any) -> None:
        output.collect_batch(batch)


class Plain(ArrowProcessFunction[Click, int]):
    """Its results have no columns."""

    def process_batch(self, batch: pa.Table, output: Any, ctx: Any) -> None:
        output.collect(batch.num_rows)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (Undeclared(), r"Undeclared must declare the classes of its records: class Undeclared\(ArrowProcessFunction\["),
        (Plain(), "int has no columns. Use a NamedTuple class or a dataclass"),
    ],
    ids=["unsaid", "no columns"],
)
def test_classes_without_columns_are_refused(function: ArrowProcessFunction[Any, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        OneInputHarness(function)


def test_output_cannot_stay_keyed() -> None:
    with pytest.raises(PlanError, match="several keys at once, so the stream cannot stay keyed"):
        OneInputHarness(Sum(), key=attrgetter("user"), output_key=attrgetter("user"))


def test_map_tables_checks_its_arguments() -> None:
    with pytest.raises(ConfigurationError, match="map_tables requires a callable"):
        map_tables(lambda: None, Click, Click)  # type: ignore[arg-type, misc]
    with pytest.raises(SchemaError, match="int has no columns"):
        map_tables(doubled, Click, int)


def test_no_output_until_end_applies_to_tables() -> None:
    @no_output_until_end_of_input
    class Early(ArrowProcessFunction[Click, Click]):
        def process_batch(self, batch: pa.Table, output: ArrowCollector[Click], ctx: Any) -> None:
            output.collect_batch(batch)

        def end_input(self, output: ArrowCollector[Click], ctx: Any) -> None:
            output.collect_batch(table_of(CLICKS, Click), time_column="time")

    with pytest.raises(UserFunctionError, match="no_output_until_end_of_input") as raised:
        OneInputHarness(Early()).input.push(*CLICKS)
    assert isinstance(raised.value.cause, ContractError)
    harness = OneInputHarness(Early())
    harness.end()
    assert harness.output.elements[:3] == [StampedRecord(click, click.time) for click in CLICKS]


class Reading(NamedTuple):
    """A record with columns and an attribute that is none."""

    sensor: int | None
    value: float

    @property
    def area(self) -> int:
        assert self.sensor is not None
        return self.sensor // 10


class Forward(ArrowProcessFunction[Reading, Reading]):
    """Emits its tables."""

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Reading], ctx: PartitionedContext[Reading]) -> None:
        output.collect_batch(batch)


class KeyOf(OneInputStreamProcessFunction[Reading, tuple[Any, float]]):
    """Emits the key and the value of each record."""

    def process_record(self, record: Reading, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, record.value))


def keyed(readings: list[Reading], key: Callable[[Reading], Any], function: Any, parallelism: int) -> list[Any]:
    env = ExecutionEnvironment.get_instance("local")
    sink = CollectSink[Any]()
    tables = env.from_collection(readings).process(Forward())
    tables.key_by(key).process(function).with_parallelism(parallelism).to_sink(sink)
    env.execute()
    return sorted(sink.results)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (attrgetter("sensor"), [11, 12, 23]),
        (attrgetter("sensor", "value"), [(11, 0.5), (12, 1.5), (23, 2.5)]),
        (attrgetter("area"), [1, 1, 2]),
        (lambda reading: reading.sensor % 2, [0, 1, 1]),
    ],
    ids=["column", "columns", "property", "lambda"],
)
def test_keys_of_tables(key: Callable[[Reading], Any], keys: list[Any], parallelism: int) -> None:
    readings = [Reading(11, 0.5), Reading(12, 1.5), Reading(23, 2.5)]
    assert [found for found, _ in keyed(readings, key, KeyOf(), parallelism)] == keys


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("function", [Forward(), KeyOf()], ids=["tables", "records"])
@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("sensor", Reading(None, 0.5), "The assigned key must not be None"),
        ("value", Reading(1, float("nan")), "NaN cannot be a key"),
    ],
)
def test_invalid_key_in_a_table(name: str, wrong: Reading, said: str, function: Any, parallelism: int) -> None:
    with pytest.raises(UserFunctionError, match=said) as failed:
        keyed([Reading(1, 1.5), wrong], attrgetter(name), function, parallelism)
    assert f"record:   {wrong}" in str(failed.value)


@pytest.mark.parametrize(
    "chained",
    [
        lambda clicks: clicks.process(map_tables(lambda table: table, Click, Click)),
        lambda clicks: clicks.map(lambda click: click),
    ],
    ids=["tables", "rows"],
)
def test_batches_of_a_chained_function_become_tables(chained: Any) -> None:
    env = ExecutionEnvironment.get_instance("local")
    sink = CollectSink[Size]()
    clicks = env.from_collection([Click("a", number) for number in range(20_000)]).shuffle()
    chained(clicks).process(Measure()).to_sink(sink)
    env.execute()
    assert sum(size.rows for size in sink.results) == 20_000
    assert [size.first for size in sink.results] == sorted(size.first for size in sink.results)


class Later(NamedTuple):
    """The fields of a click in another order."""

    time: int
    user: str


class Longer(Click):
    """A subclass."""


def process(records: list[Any], function: Any, *, declared: bool) -> list[Any]:
    env, sink = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[Any]()
    stream: Any = env.from_collection(records)
    if not declared:
        stream = stream.map(lambda record: record)
    stream.process(function).to_sink(sink)
    env.execute()
    return sink.results


@pytest.mark.parametrize("function", [Measure(), map_tables(lambda table: table, Click, Click)], ids=["class", "map"])
def test_records_of_another_class_are_refused(function: Any) -> None:
    said = r"test_arrow_functions.py:\d+ takes records of Click, but those of .*, defined at .*, are of Later"
    with pytest.raises(PlanError, match=said):
        process([Later(1, "a")], function, declared=True)
    env = ExecutionEnvironment.get_instance(runtime="local")
    union: Any = env.from_collection(CLICKS).union(env.from_collection([Later(1, "a")]))  # type: ignore[list-item]
    union.process(function).to_sink(CollectSink())
    with pytest.raises(PlanError, match=said):
        env.execute()


def test_records_of_a_subclass_are_taken() -> None:
    assert process([Longer("a", 1)], map_tables(lambda table: table, Click, Click), declared=True) == [Click("a", 1)]


def test_fields_are_matched_by_name_where_the_class_is_unknown() -> None:
    mixed = [Later(1, "a"), Click("b", 2)]
    found = process(mixed, map_tables(lambda table: table, Click, Click), declared=False)
    assert found == [Click("a", 1), Click("b", 2)]


@pytest.mark.parametrize("other", [Size(1, 2), ("a", 1), {"user": "a", "time": 1}, None], ids=str)
def test_records_without_the_fields_are_refused(other: Any) -> None:
    if other is None:
        other = object()
    with pytest.raises(UserFunctionError, match=f"no field 'user' of Click: .*, a {type(other).__name__}. Map the rec"):
        process([CLICKS[0], other], Measure(), declared=False)
