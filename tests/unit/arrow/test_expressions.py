"""Expressions on columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.arrow import records_of
from dsv2.arrow.expressions import SelectFunction, WhereFunction
from dsv2.arrow.records import ArrowRecords, ArrowWholeNumbers, table_of
from dsv2.errors import PlanError
from dsv2.model.record_batch import RecordBatch


class Bid(NamedTuple):
    user: str | None
    price: int
    share: float | None


class LateBid(Bid):
    pass


class Price(NamedTuple):
    user: str | None
    cents: int


BIDS = st.builds(
    Bid,
    st.none() | st.text(st.characters(codec="utf-8"), max_size=3),
    st.integers(-(1 << 40), 1 << 40),
    st.none() | st.floats(allow_nan=False),
)


def run(function: WhereFunction[Any] | SelectFunction[Any, Any], batch: RecordBatch[Any]) -> RecordBatch[Any]:
    emitted: list[RecordBatch[Any]] = []
    function.process_record_batch(batch, emitted.append)
    (result,) = emitted
    return result


def in_columns(bids: list[Bid], times: list[int]) -> RecordBatch[Bid]:
    return RecordBatch(records_of(table_of(bids, Bid), Bid), ArrowWholeNumbers(pa.array(times, pa.int64())))


@settings(max_examples=50)
@given(st.lists(BIDS))
def test_where_keeps_the_records_that_python_would(bids: list[Bid]) -> None:
    def is_wanted(bid: Bid) -> bool:
        return bid.price % 7 < 3 and bid.share is not None and bid.share >= 0

    function = WhereFunction(Bid, (nw.col("price") % 7 < 3) & (nw.col("share") >= 0))
    times = list(range(len(bids)))
    wanted = [(bid, at) for bid, at in zip(bids, times, strict=True) if is_wanted(bid)]
    for batch in (RecordBatch(bids, times), in_columns(bids, times)):
        assert list(run(function, batch).pairs()) == wanted


@settings(max_examples=50)
@given(st.lists(BIDS))
def test_select_computes_what_python_would(bids: list[Bid]) -> None:
    function = SelectFunction(Bid, Price, {"user": nw.col("user"), "cents": nw.col("price") * 100 // 7})
    times = list(range(len(bids)))
    wanted = [(Price(bid.user, bid.price * 100 // 7), at) for bid, at in zip(bids, times, strict=True)]
    for batch in (RecordBatch(bids, times), in_columns(bids, times)):
        result = run(function, batch)
        assert (result.is_columnar, list(result.pairs())) == (True, wanted)


def test_records_of_subclasses_stay_what_they_are() -> None:
    bids = [LateBid("ada", 1, None), Bid("ben", 2, None), LateBid("cid", 3, None)]
    assert run(WhereFunction(Bid, nw.col("price") != 2), RecordBatch(bids)).records == [bids[0], bids[2]]
    assert all(type(bid) is LateBid for bid in run(WhereFunction(Bid, nw.col("price") != 2), RecordBatch(bids)).records)


def test_columns_stay_columns() -> None:
    result = run(WhereFunction(Bid, nw.col("price") > 1), in_columns([Bid("a", 1, 0.5), Bid("b", 2, 0.5)], [10, 20]))
    assert (type(result.records), list(result.pairs())) == (ArrowRecords, [(Bid("b", 2, 0.5), 20)])


def test_a_literal_is_the_value_of_every_record() -> None:
    function = SelectFunction(Bid, Price, {"user": nw.lit("all"), "cents": nw.lit(5)})
    assert list(run(function, RecordBatch([Bid("a", 1, None)] * 2)).records) == [Price("all", 5)] * 2


def test_results_may_be_nan() -> None:
    zero = nw.col("share") - nw.col("share")
    function = SelectFunction(Bid, Bid, {"user": "user", "price": "price", "share": zero / zero})
    (found,) = run(function, in_columns([Bid("a", 1, 0.5)], [10])).records
    assert found.share != found.share


OTHER_ROWS = "'cents' depends on other rows than its own"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (nw.col("price").sum(), OTHER_ROWS),
        (nw.col("price") - nw.col("price").min(), OTHER_ROWS),
        (nw.col("price").shift(1), OTHER_ROWS),
        (nw.col("price").cum_sum(), OTHER_ROWS),
        (nw.col("price").drop_nulls(), "another number of rows than the records"),
        (nw.col("cost"), "the columns of Bid are user string, price int64, share double"),
        (nw.col("user") + 1, "the columns of Bid are"),
        (nw.col("price") / 2, "cents of Price is int64, but its expression is double. Cast the expression"),
        (nw.all(), "the columns of Bid are"),
    ],
)
def test_invalid_expressions_are_refused(expression: nw.Expr, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        SelectFunction(Bid, Price, {"user": nw.col("user"), "cents": expression})


def test_a_condition_is_a_truth_value() -> None:
    with pytest.raises(PlanError, match="the condition is a column of int64, not of truth values"):
        WhereFunction(Bid, nw.col("price"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda bids: bids.map(lambda bid: bid).where(nw.col("price") > 1), "the class of the records is not declared"),
        (lambda bids: bids.where(lambda bid: bid.price), "where at .*: <function .* is not an expression of narwhals"),
        (lambda bids: bids.select(Price, user="user"), "select at .*: .* Missing: 'cents'; unknown: no other"),
        (
            lambda bids: bids.with_columns(Price, cost="price"),
            "with_columns at .* Missing: 'cents'; unknown: 'cost'",
        ),
        (lambda bids: bids.map(str).where(nw.col("price") > 1, str), "str has no columns"),
        (lambda bids: bids.select(int, user="user"), "int has no columns"),
    ],
)
def test_errors_name_the_method_and_the_line(build: Any, message: str) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    with pytest.raises(PlanError, match=message):
        build(env.from_collection([Bid("ada", 1, None)]))
