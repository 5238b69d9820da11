"""Streams of the rows of pandas DataFrames and Arrow tables."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from datetime import date, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import duckdb
import narwhals as nw
import pandas as pd
import pyarrow as pa
import pytest

from dsv2 import CollectSink
from dsv2.arrow import ArrowForeachBatchSink, map_tables
from dsv2.arrow.records import ArrowRecords
from dsv2.arrow.table_source import TableSource
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.extension.event_time import EventTimeExtension
from tests.support import local_environment


class Sale(NamedTuple):
    product: str
    cents: int
    weight: float | None = None


@dataclass(frozen=True)
class Weight:
    weight: float


COLUMNS: dict[str, Any] = {"cents": [250, 90], "product": ["tea", "milk"], "other": [1, 2]}
TABLES = [pd.DataFrame(COLUMNS, index=[7, 7]), pa.table(COLUMNS)]


def read(table: Any, record_type: type, parallelism: int = 1, **options: Any) -> list[Any]:
    env, sink = local_environment(parallelism), CollectSink[Any]()
    env.from_dataframe(table, record_type, **options).to_sink(sink)
    env.execute()
    return sink.results


@pytest.mark.parametrize("table", TABLES, ids=["pandas", "arrow"])
def test_columns_are_matched_by_name(table: Any) -> None:
    class Cents(NamedTuple):
        product: str
        cents: int

    assert read(table, Cents) == [("tea", 250), ("milk", 90)]
    assert read(table, dict) == [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    assert sorted(read(table, Cents, 3, records_per_batch=1)) == [("milk", 90), ("tea", 250)]


def test_missing_values() -> None:
    columns = {"product": ["tea", "milk"], "cents": [1, 2], "weight": [math.nan, 0.5]}
    assert read(pd.DataFrame(columns), Sale) == [Sale("tea", 1), Sale("milk", 2, 0.5)]
    first, second = read(pd.DataFrame(columns), Weight)
    assert (math.isnan(first.weight), second.weight) == (True, 0.5)
    with pytest.raises(SchemaError, match="Field 'weight' of Weight is None in a record"):
        read(pa.table({"weight": [None, 0.5]}), Weight)


def test_empty_table_has_no_records() -> None:
    assert read(pd.DataFrame({"weight": pd.Series([], dtype="float64")}), Weight) == []


@pytest.mark.parametrize(
    ("table", "options", "told"),
    [
        (pd.DataFrame({"weight": ["heavy"]}), {},
         "'weight' of Weight, which is double, cannot hold a column of string"),
        (pd.DataFrame({"other": [1]}), {}, "does not match Weight"),
        (pd.DataFrame({"weight": [object()]}), {}, "column 'weight' of the pandas DataFrame has a value"),
        (pd.Series([1.0]), {}, "not a Series"),
        (pa.chunked_array([[1.0]]), {}, "Arrow cannot read the ChunkedArray"),
        (pa.table({"weight": [1.0]}), {"split_by": "weight"}, "split_by is for a DataFrame of Spark"),
        (pa.table({"weight": [1.0]}), {"records_per_batch": 0}, "records_per_batch"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(table: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises((ConfigurationError, SchemaError), match=told):
        read(table, Weight, **options)


NOON = pd.Timestamp("2024-07-01 12:00")


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (datetime, NOON.tz_localize("Europe/Berlin"), "tz=Europe/Berlin.*Convert it to UTC and remove the time zone"),
        (date, NOON, "cannot hold a column of timestamp"),
        (int, NOON, "cannot hold a column of timestamp"),
        (int, pd.Timedelta("1s"), "cannot hold a column of duration"),
        (int, 1.0, "cannot hold a column of double.*In pandas, whole numbers with missing values are 'Int64'"),
        (int, "1", "cannot hold a column of .*string"),
        (str, 1, "cannot hold a column of int64"),
        (bool, 2, "cannot hold a column of int64"),
    ],
)
def test_other_types_are_refused(kind: type, given: Any, said: str) -> None:
    record_type: Any = make_dataclass("Record", [("x", kind)])
    with pytest.raises(SchemaError, match=f"Field 'x' of Record, which is .*, {said}"):
        read(pd.DataFrame({"x": [given]}), record_type)


def test_values_keep_their_form() -> None:
    class Record(NamedTuple):
        amount: Decimal
        at: datetime
        color: str
        number: int | None

    large = Decimal("12345678901234567890123456789.50")
    columns = {
        "amount": pa.array([Decimal("1.50"), large]),
        "at": pa.array([NOON, NOON], pa.timestamp("ns")),
        "color": pa.array(["red", "red"]).dictionary_encode(),
        "number": pa.array([1, None], pa.int32()),
    }
    first, second = read(pa.table(columns), Record)
    assert first == Record(Decimal("1.5"), NOON.to_pydatetime(), "red", 1)
    assert (str(first.amount), type(first.at), second.amount) == ("1.50", datetime, large)


def test_source_is_sent_to_tasks() -> None:
    source = TableSource(pa.table({"weight": [1.0, 2.0, 3.0]}).slice(1), Weight)
    source = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert source.read(range(2)) == [Weight(2.0), Weight(3.0)]


class Awkward(NamedTuple):
    number: int | None
    share: float | None
    name: str | None
    at: datetime | None
    day: date | None
    nested: list[list[str | None]] | None


class Amount(NamedTuple):
    amount: Decimal


AWKWARD = pa.table(
    {
        "share": pa.array([math.nan, None, math.inf, -0.0], pa.float32()),
        "number": pa.array([None, -(2**31), 0, 2**31 - 1], pa.int32()),
        "name": pa.array(["", None, "\0", "\N{SNOWMAN}"]).dictionary_encode(),
        "at": pa.array([datetime.max, None, datetime.min, NOON.to_pydatetime()], pa.timestamp("us")),
        "day": pa.array([date.min, date.max, None, date(1970, 1, 1)]),
        "nested": pa.array([[], None, [["a"], [None], []], [["b", "c"]]], pa.list_(pa.large_list(pa.string()))),
        "other": pa.array([1, 2, 3, 4]),
    }
)


ABSENT: dict[str, Any] = {"name": ["a", None], "day": [None, date.min], "nested": [None, [["x"]]]}


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (AWKWARD, Awkward),
        (AWKWARD.slice(1, 2), Awkward),
        (AWKWARD.slice(4), Awkward),
        (pa.concat_tables([AWKWARD, AWKWARD.slice(2), AWKWARD.slice(0, 0)]), Awkward),
        (pd.DataFrame({"at": [NOON, pd.NaT], "number": pd.array([1, None], "Int64")}).assign(
            share=[math.nan, 1.0], **ABSENT), Awkward),
        (pd.DataFrame({"weight": [math.nan, 0.5]}), Weight),
        (pa.table({"amount": pa.array([Decimal("1.5"), Decimal("-0")], pa.decimal128(38, 18))}), Amount),
    ],
    ids=["awkward", "slice", "empty", "chunks", "pandas", "NaN", "decimals"],
)  # fmt: skip
@pytest.mark.parametrize("parallelism", [1, 3])
def test_columns_hold_the_same_records(table: Any, kind: type[Any], parallelism: int) -> None:
    source = TableSource(table, kind)
    for first in range(parallelism):
        indices = range(first, len(source.table), parallelism)
        columns = source.dsv2_read_columns(indices)
        assert isinstance(columns, ArrowRecords)
        assert repr(list(columns)) == repr(source.read(indices))
    given: list[pa.Table] = []
    env = local_environment(parallelism)
    env.from_dataframe(table, kind, records_per_batch=2).to_sink(
        ArrowForeachBatchSink(lambda found, batch_id: given.append(found), kind)
    )
    env.execute()
    received = [repr(record) for found in given for record in ArrowRecords(found, kind)]
    assert sorted(received) == sorted(map(repr, source.read(range(len(source.table)))))


def test_dicts_and_decimals_with_their_own_digits_are_rows() -> None:
    amounts = pa.table({"amount": [Decimal("1.50")]})
    for kind in (Amount, dict):
        source = TableSource[Any](amounts, kind)
        assert isinstance(source.dsv2_read_columns(range(1)), list)
        assert "Decimal('1.50')" in repr(source.dsv2_read_columns(range(1)))


class Reads(TableSource[Sale]):
    """Records whether it was read as columns."""

    ways: ClassVar[set[str]] = set()

    def read(self, indices: range) -> list[Sale]:
        self.ways.add("rows")
        return super().read(indices)

    def dsv2_read_columns(self, indices: range) -> Sequence[Sale]:
        self.ways.add("columns")
        return super().dsv2_read_columns(indices)


def same(table: pa.Table) -> pa.Table:
    return table


TIMES = EventTimeExtension.new_watermark_generator_builder(attrgetter("cents")).build_as_process_function()


@pytest.mark.parametrize(
    ("build", "way"),
    [
        (lambda sales: sales.process(map_tables(same, Sale, Sale)), "columns"),
        (lambda sales: sales.process(TIMES).union(sales).where(nw.col("cents") > 100), "columns"),
        (lambda sales: sales.filter(lambda sale: True).process(map_tables(same, Sale, Sale)), "rows"),
        (lambda sales: sales.map(lambda sale: sale), "rows"),
    ],
)
def test_only_functions_on_tables_read_columns(build: Any, way: str) -> None:
    Reads.ways.clear()
    env = local_environment()
    build(env.from_source(Reads(pa.table({**COLUMNS, "weight": [None, 0.5]}), Sale))).to_sink(CollectSink())
    env.execute()
    assert Reads.ways == {way}


class Stream:
    """A table of another library, with Arrow's PyCapsule interface only."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


TEA_AND_MILK = pa.table({**COLUMNS, "weight": [None, 0.5]})
VIEWS = TEA_AND_MILK.set_column(1, "product", pa.array(["tea", "milk"], pa.string_view()))  # as Polars has text
STREAMS: dict[str, Any] = {
    "capsule": Stream(TEA_AND_MILK),
    "views": Stream(VIEWS),
    "batch": TEA_AND_MILK.to_batches()[0],
    "reader": TEA_AND_MILK.to_reader(1),
    "duckdb": duckdb.sql("SELECT 250 cents, 'tea' product, NULL weight UNION ALL SELECT 90, 'milk', 0.5::float"),
}


@pytest.mark.parametrize("library", STREAMS)
def test_tables_of_other_libraries(library: str) -> None:
    assert read(STREAMS[library], Sale) == [Sale("tea", 250), Sale("milk", 90, 0.5)]


def test_results_go_to_other_libraries() -> None:
    env, found = local_environment(), list[pa.Table]()
    sales = env.from_dataframe(Stream(TEA_AND_MILK), Sale)
    sales.to_sink(ArrowForeachBatchSink(lambda table, batch_id: found.append(table), Sale))
    env.execute()
    result = pa.concat_tables(found)
    assert duckdb.table("result").sum("cents").fetchall() == [(340,)]
    assert result.to_pandas()["product"].tolist() == ["tea", "milk"]
