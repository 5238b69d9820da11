"""Keys that are expressions on columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import narwhals as nw
import pyarrow as pa
import pytest

from dsv2 import (
    CollectSink,
    ErrorPolicy,
    ExecutionEnvironment,
    OneInputStreamProcessFunction,
    StateDeclaration,
    StateDeclarations,
)
from dsv2.aggregates import Count, Key, Max, Sum
from dsv2.arrow import ArrowProcessFunction, schema_of
from dsv2.arrow import expressions as made
from dsv2.arrow.schema import rows_to_table
from dsv2.checkpoint.fingerprint import fingerprint
from dsv2.errors import InvalidKeyError, PlanError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, Left, Right, join
from dsv2.extension.window import WindowStrategy


class Click(NamedTuple):
    user: str | None
    time: int
    value: int


class Totals(NamedTuple):
    decade: int
    user: str
    clicks: int
    total: int


class Decade(NamedTuple):
    decade: int
    clicks: int


class Pair(NamedTuple):
    first: int
    second: int


class Lists(NamedTuple):
    values: list[int]


CLICKS = [Click("Ada" if number % 3 else "ben", number * 7 % 101, number) for number in range(200)]
DECADE = nw.col("time") // 10
USER = nw.col("user").str.to_lowercase()


def key_of(click: Click) -> tuple[int, str]:
    assert click.user is not None
    return click.time // 10, click.user.lower()


def environment(parallelism: int) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(parallelism)
    return env


def results(build: Callable[[Any], Any], *, in_columns: bool = False, parallelism: int = 2) -> list[Any]:
    """The sorted results of a stream that is made from the clicks."""
    env = environment(parallelism)
    given = pa.Table.from_pylist([click._asdict() for click in CLICKS], schema_of(Click))
    clicks = env.from_dataframe(given, Click) if in_columns else env.from_collection(CLICKS)
    builder = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
    times = builder.with_max_out_of_order_time(timedelta(seconds=1)).build_as_process_function()
    sink = CollectSink[Any]()
    build(clicks.with_parallelism(1).process(times).with_parallelism(1)).to_sink(sink)
    env.execute()
    return sorted(sink.results)


def by_lambda(stream: Any) -> Any:
    return stream.key_by(key_of)


def by_columns(stream: Any) -> Any:
    return stream.key_by(DECADE, USER)


@pytest.mark.parametrize("in_columns", [False, True])
def test_declared_aggregates_have_the_key(in_columns: bool) -> None:
    parts = {"decade": Key(0), "user": Key(1), "clicks": Count(), "total": Sum("value")}
    windows = WindowStrategy.tumbling(timedelta(milliseconds=20))

    def running(by: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda stream: by(stream).aggregate(Totals, Click, **parts)

    def windowed(by: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda stream: by(stream).window(windows).aggregate(Totals, Click, **parts)

    for built in running, windowed:
        expected = results(built(by_lambda))
        assert len(expected) > 10
        assert results(built(by_columns), in_columns=in_columns) == expected


def test_a_single_column_is_the_key_itself() -> None:
    found = results(lambda s: s.key_by(DECADE, records=Click).aggregate(Decade, Click, decade=Key(), clicks=Count()))

    assert max(found) == (10, sum(click.time // 10 == 10 for click in CLICKS))


@pytest.mark.parametrize("in_columns", [False, True])
def test_operators_that_only_run_on_columns_take_the_keys(in_columns: bool) -> None:
    firsts, latest, groups = list[Click](), list[Click](), dict[Any, list[Click]]()
    for click in CLICKS:
        groups.setdefault(key_of(click), []).append(click)
    for clicks in groups.values():
        firsts.append(min(clicks, key=attrgetter("value")))
        latest.append(max(clicks, key=attrgetter("time")))

    def over(stream: Any) -> Any:
        parts = {"decade": Key(0), "user": Key(1), "clicks": Count(), "total": Max("value")}
        return by_columns(stream).over(rows=2).aggregate(Totals, Click, **parts)

    assert results(lambda s: by_columns(s).first("value", Click), in_columns=in_columns) == sorted(firsts)
    last = results(lambda s: by_columns(s).last("time", Click, until="time"), in_columns=in_columns)
    assert sorted(map(key_of, last)) == sorted(map(key_of, latest))
    of_frames = results(over, in_columns=in_columns)
    assert [sum(one.clicks == number for one in of_frames) for number in (1, 2)] == [
        len(groups),
        len(CLICKS) - len(groups),
    ]


@pytest.mark.parametrize("is_field", [False, True])
def test_joins_of_computed_keys_run_on_columns(is_field: bool) -> None:
    def joined(stream: Any) -> Any:
        expression = "value" if is_field else DECADE
        keyed = stream.key_by(expression, nw.col("value") % 50, records=Click)
        other = stream.key_by(expression, nw.col("value") % 50, records=Click)
        declared = join(Pair, JoinMode.unbounded(), first=Left("value"), second=Right("value"))
        stream = keyed.connect_and_process(other, declared)
        assert "Columns" in type(stream._node.body).__name__
        return stream

    def key(click: Click) -> Any:
        return (click.value if is_field else click.time // 10), click.value % 50

    expected = [Pair(one.value, other.value) for one in CLICKS for other in CLICKS if key(one) == key(other)]
    assert results(joined) == sorted(expected)


class CountOfKey(OneInputStreamProcessFunction[Click, tuple[Any, int]]):
    _count = StateDeclarations.value_state("count", int, default=0)

    def uses_states(self) -> list[StateDeclaration]:
        return [self._count]

    def process_record(self, record: Click, output: Any, ctx: Any) -> None:
        assert type(record) is Click
        count = ctx.state_manager.get_state(self._count)
        count.update(count.value() + 1)
        output.collect((ctx.state_manager.current_key, count.value()))


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("in_columns", [False, True])
def test_functions_on_records_have_the_current_key(in_columns: bool, parallelism: int) -> None:
    single = list[Any]()
    given = rows_to_table

    def counted(rows: Sequence[Any], *rest: Any) -> Any:
        single.extend(rows if len(rows) == 1 else ())
        return given(rows, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "rows_to_table", counted)
        found = results(lambda s: by_columns(s).process(CountOfKey()), in_columns=in_columns, parallelism=parallelism)

    assert found == results(lambda s: by_lambda(s).process(CountOfKey()))
    assert len(single) < len(CLICKS) / 10  # the expressions are evaluated for many records at once


class KeysInColumns(ArrowProcessFunction[Click, Decade]):
    _counts = StateDeclarations.value_state("counts", Decade, default=Decade(0, 0))

    def uses_states(self) -> list[StateDeclaration]:
        return [self._counts]

    def process_batch(self, batch: pa.Table, output: Any, ctx: Any) -> None:
        decades = nw.from_native(batch).select(DECADE).to_native()["time"]
        ctx.keyed_state(self._counts).aggregate(
            decades, {"decade": decades, "clicks": 1}, {"decade": "last", "clicks": "sum"}
        )

    def end_input(self, output: Any, ctx: Any) -> None:
        for table in ctx.keyed_state(self._counts).tables():
            assert table["key"].equals(table["decade"])
            output.collect_batch(table)


def test_functions_on_tables_pass_the_computed_columns() -> None:
    found = results(lambda s: s.key_by(DECADE, records=Click).process(KeysInColumns()))

    assert found == [Decade(n, sum(click.time // 10 == n for click in CLICKS)) for n in range(11)]


def test_names_of_fields_are_a_key() -> None:
    expected = results(lambda s: s.key_by(attrgetter("user", "time")).process(CountOfKey()))

    assert results(lambda s: s.key_by("user", "time").process(CountOfKey())) == expected


def test_names_that_a_record_has_are_not_those_of_keys() -> None:
    class Keyed(NamedTuple):
        key: int

    key = made.ExpressionKey(Keyed, [nw.col("key") * 2])

    assert list(key) == ["key_"]
    assert key(Keyed(4)) == 8


def test_only_the_fields_of_the_expressions_are_read() -> None:
    assert made.ExpressionKey(Click, [DECADE, "user"]).fields == ["user", "time"]


@pytest.mark.parametrize("policy", [False, True])
def test_a_key_that_is_null_fails_with_its_record(policy: bool) -> None:
    env = environment(2)
    clicks = env.from_collection([Click("ada", 1, 1), Click(None, 2, 2), Click("ben", 3, 3)])
    counted = clicks.key_by(USER, records=Click).process(CountOfKey())
    sink = CollectSink[Any]()
    counted.to_sink(sink)
    if policy:
        counted.with_error_policy(ErrorPolicy().skip(InvalidKeyError))
        env.execute()
        assert sorted(sink.results) == [("ada", 1), ("ben", 1)]
    else:
        with pytest.raises(UserFunctionError, match=r"(?s)key selector.*Click\(user=None, time=2, value=2\)"):
            env.execute()


@pytest.mark.parametrize(
    ("columns", "records", "message"),
    [
        ((nw.col("nothing") + 1,), Click, "the columns of Click are user string, time int64"),
        ((nw.col("time").sum(),), Click, "depends on other rows than its own"),
        ((nw.col("values"),), Lists, "a column of list<.*> cannot be a key"),
        ((DECADE,), None, "the class of the records is not declared. Pass it as records=..."),
        ((), Click, "takes a callable"),
        ((DECADE, key_of), Click, "takes a callable .* not col.*key_of"),
    ],
)
def test_what_cannot_be_a_key_is_refused(columns: Any, records: Any, message: str) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_collection([1]).map(lambda number: number)
    with pytest.raises(PlanError, match=f"key_by at .*test_computed_keys.py.*{message}"):
        stream.key_by(*columns, records=records)


def test_explain_shows_the_expressions() -> None:
    env = environment(2)
    by_columns(env.from_collection(CLICKS)).process(CountOfKey()).to_sink(CollectSink())

    assert "hash by col(time).__floordiv__(10), col(user).str.to_lowercase()" in str(env.explain())


def test_another_expression_is_another_key() -> None:
    first, same, other = (
        fingerprint(made.ExpressionKey(Click, [nw.col("time") // number]), Click) for number in (10, 10, 9)
    )

    assert first == same != other
