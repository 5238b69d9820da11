"""Aggregates with filters, and those with accumulators of their own."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

import narwhals as nw
import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import (
    Aggregate,
    ApproxCountDistinct,
    ArgMax,
    ArgMin,
    Collect,
    Count,
    CountDistinct,
    Custom,
    Key,
    Last,
    StdDev,
    Sum,
    Variance,
)
from dsv2.arrow import expressions
from dsv2.arrow.aggregates import ColumnAggregate
from dsv2.errors import ConfigurationError, PlanError, SchemaError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.sinks import CollectSink
from dsv2.state import AggregateFunction, aggregate_of


class Sale(NamedTuple):
    """A record."""

    product: str
    time: int
    price: float | None
    amount: int | None


class Found(NamedTuple):
    """A result."""

    product: str
    value: Any


class Number(NamedTuple):
    """A result on columns."""

    product: str
    value: float | None


class Names(NamedTuple):
    """Another one."""

    product: str
    value: int | None


BY_PRODUCT = attrgetter("product")
NOT_RIGHT: Any = 5


def product_of(sale: Any) -> str:
    found: str = sale.product
    return found


def sales(*prices: Any) -> list[Sale]:
    return [Sale("tea", time, price, time) for time, price in enumerate(prices)]


def aggregated(records: list[Any], part: Any, kind: Any = Found, key: Any = product_of) -> list[Any]:
    """The values after each record."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    found = CollectSink[Any]()
    stream = (
        env.from_collection(records).with_parallelism(1).key_by(key).aggregate(kind, Sale, product=Key(), value=part)
    )
    assert isinstance(stream._node.body, ColumnAggregate) is (key is BY_PRODUCT)
    stream.with_parallelism(1).to_sink(found)
    env.execute()
    return [result.value for result in found.results]


BOTH = pytest.mark.parametrize("key", [BY_PRODUCT, product_of], ids=["columns", "rows"])


@BOTH
def test_large_numbers_that_lie_close_to_each_other_lose_no_digits(key: Any) -> None:
    numbers = [1e15 + number for number in (4.0, 7.0, 13.0, 16.0)]
    assert aggregated(sales(*numbers), Variance("price"), Number, key) == [None, 4.5, 21.0, 30.0]
    assert aggregated(sales(*numbers), Variance("price", population=True), Number, key)[-1] == 22.5
    assert aggregated(sales(5.0, 5.0, 0.1), StdDev("price"), Number, key)[:2] == [None, 0.0]


@BOTH
@pytest.mark.parametrize("first", [1e9, 0.0, -1e9])
def test_first_number_may_be_far_from_all_others(first: float, key: Any) -> None:
    chance = random.Random(1)
    numbers = [first, *(chance.gauss(5, 1) for _ in range(2000))]
    found = aggregated(sales(*numbers), Variance("price"), Number, key)[-1]
    assert found == pytest.approx(statistics.variance(numbers), rel=2e-11)


@BOTH
def test_variances_of_numbers_that_are_not_finite_are_nan(key: Any) -> None:
    for numbers in ((1.0, math.inf), (math.inf, 1.0), (math.nan, 2.0)):
        assert math.isnan(aggregated(sales(*numbers), Variance("price"), Number, key)[-1])


@BOTH
@pytest.mark.parametrize(
    ("part", "prices", "expected"),
    [
        (ArgMax("time", by="price"), (1.0, 2.0, 2.0, 1.5), [0, 1, 1, 1]),
        (ArgMin("time", by="price"), (1.0, 2.0, 1.0, 0.5), [0, 0, 0, 3]),
        (ArgMax("time", by="price"), (-0.0, 0.0, None, math.nan, 3.0, math.nan), [0, 0, 0, 3, 3, 3]),
        (ArgMin("time", by="price"), (1.0, math.nan, 0.0), [0, 1, 1]),
        (ArgMin("amount", by="price"), (None, 5.0, 4.0), [None, 1, 2]),
    ],
)
def test_first_of_the_extreme_records_counts(part: Any, prices: Any, expected: Any, key: Any) -> None:
    assert aggregated(sales(*prices), part, Names, key) == expected


def test_records_with_a_missing_field_are_left_out() -> None:
    records = [Sale("tea", 1, 5.0, None), Sale("tea", 2, 4.0, 7)]
    for key in (BY_PRODUCT, product_of):
        assert aggregated(records, ArgMax("amount", by="price"), Names, key) == [None, 7]


@BOTH
def test_equal_numbers_are_one_value(key: Any) -> None:
    prices = (1.0, -0.0, 0.0, math.nan, None, math.nan, 1.0, math.inf)
    for part in (CountDistinct("price"), ApproxCountDistinct("price")):
        assert aggregated(sales(*prices), part, Names, key) == [1, 2, 2, 3, 3, 3, 3, 4]


def test_distinct_values_of_other_types() -> None:
    prices: list[Any] = [Decimal("1.0"), 1, True, -1, -2, Decimal("NaN"), Decimal("sNaN"), 1 << 70, float(1 << 70)]
    assert aggregated(sales(*prices), ApproxCountDistinct("price")) == [1, 1, 1, 2, 3, 4, 4, 5, 5]
    assert aggregated(sales(*prices), CountDistinct("price")) == [1, 1, 1, 2, 3, 4, 4, 5, 5]
    refused: list[tuple[Aggregate, str]] = [
        (CountDistinct("price"), "requires values that have an order"),
        (ApproxCountDistinct("price"), "cannot count object"),
    ]
    for part, text in refused:
        with pytest.raises(SchemaError, match=text):
            part.add(part.add(part.empty, object()), object())


@pytest.mark.parametrize("count", [100, 511, 512, 3000, 50_000])
def test_estimate_is_exact_for_few_values_and_close_for_many(count: int) -> None:
    part = ApproxCountDistinct("price")
    halves = [part.empty, part.empty]
    for number in range(count):
        halves[number % 2] = part.add(halves[number % 2], f"user {number}")  # type: ignore[call-overload]
        halves[0] = part.add(halves[0], "user 0")  # type: ignore[call-overload]
    merged, reverse = part.merge(halves[0], halves[1]), part.merge(halves[1], halves[0])
    assert merged == reverse
    assert part.merge(merged, halves[0]) == merged
    found = part.result(merged)
    assert found == count if count <= 511 else abs(found / count - 1) < 3 * 0.0163
    assert len(merged[0]) <= 4096


@BOTH
def test_lists_end_at_their_limit(key: Any) -> None:
    class Prices(NamedTuple):
        product: str
        value: list[float] | None

    found = aggregated(sales(None, 1.0, 2.0, None, 3.0), Collect("price", limit=2), Prices, key)
    assert found == [None, [1.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]


@pytest.mark.parametrize("condition", [nw.col("price") > 1, lambda sale: (sale.price or 0) > 1], ids=["column", "row"])
def test_filter_chooses_the_records_of_an_aggregate(condition: Any) -> None:
    records = sales(2.0, 1.0, None, 3.0)
    assert aggregated(records, Sum("price", filter=condition)) == [2.0, 2.0, 2.0, 5.0]
    assert aggregated(records, Count(filter=condition)) == [1, 1, 1, 2]
    assert aggregated(records, Last("time", filter=condition)) == [0, 0, 0, 3]


def test_expression_is_evaluated_for_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    evaluate = expressions.Computation.of

    def evaluated(self: Any, table: pa.Table) -> pa.Table:
        sizes.append(len(table))
        return evaluate(self, table)

    monkeypatch.setattr(expressions.Computation, "of", evaluated)
    assert aggregated(sales(*[2.0] * 500), Count(filter=nw.col("price") > 1))[-1] == 500
    assert sum(sizes) < 600  # and some for the check of the expression
    assert sum(sizes) >= 500
    assert max(sizes) >= 100


@BOTH
def test_expression_of_several_aggregates_is_evaluated_once(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Several(NamedTuple):
        product: str
        value: int | None
        sum: float | None
        others: int

    sizes: list[int] = []
    evaluate = expressions.Computation.of

    def evaluated(self: Any, table: pa.Table) -> pa.Table:
        sizes.append(len(table))
        return evaluate(self, table)

    env = ExecutionEnvironment.get_instance(runtime="local")
    dear = nw.col("price") > 1
    keyed = env.from_collection(sales(*[2.0, 1.0] * 50)).with_parallelism(1).key_by(key)
    parts = {"sum": Sum("price", filter=dear), "others": Count(filter=nw.col("price") <= 1)}
    found = CollectSink[Several]()
    keyed.aggregate(Several, Sale, product=Key(), value=Count(filter=dear), **parts).with_parallelism(1).to_sink(found)
    monkeypatch.setattr(expressions.Computation, "of", evaluated)
    env.execute()
    assert found.results[-1] == Several("tea", 50, 100.0, 50)
    assert sum(sizes) == 200  # two expressions


def test_record_that_an_expression_cannot_take_fails_alone() -> None:
    records = [*sales(1.0, 2.0), Sale("tea", 2, "dear", 1)]  # type: ignore[arg-type]
    with pytest.raises(UserFunctionError, match="contains a value that does not fit") as failed:
        aggregated(records, Count(filter=nw.col("price") > 1))
    assert "record:   Sale(product='tea', time=2" in str(failed.value)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (lambda: Sum("price", filter=NOT_RIGHT), "filter is an expression of narwhals, such as"),
        (lambda: ArgMax("price", by=NOT_RIGHT), "ArgMax takes the name of a field, not 5"),
        (lambda: Custom("price", NOT_RIGHT), "Custom takes an AggregateFunction, not 5"),
        (lambda: Collect("price", limit=0), "limit must be a whole number of at least 1, not 0"),
    ],
)
def test_wrong_arguments_are_refused(part: Callable[[], Aggregate], text: str) -> None:
    with pytest.raises((PlanError, ConfigurationError), match=text):
        part()


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (nw.col("cost") > 5, "the columns of Sale are product string, "),
        (nw.col("price"), "the condition is a column of double, not of truth values"),
        (nw.col("price") > nw.col("price").mean(), "depends on other rows than its own"),
    ],
)
def test_wrong_filters_are_refused(condition: Any, text: str) -> None:
    with pytest.raises(PlanError, match=rf"aggregate at .*{text}"):
        aggregated([], Count(filter=condition))


def test_filter_needs_the_class_of_the_records() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    keyed = env.from_collection(["a"]).map(lambda text: Sale(text, 1, None, None)).key_by(product_of)
    with pytest.raises(PlanError, match="the class of the records is not declared"):
        keyed.aggregate(Names, product=Key(), value=Count(filter=nw.col("price") > 1))


def test_explanation_names_a_filter_that_is_a_function() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    keyed = env.from_collection(sales(1.0)).key_by(BY_PRODUCT)
    keyed.aggregate(Names, product=Key(), value=Count(filter=bool)).to_sink(CollectSink[Names]())
    text = " ".join(str(env.explain()).split())
    assert "record by record instead of in columns: 'value' of Names has a filter that is a function, not an" in text


class Ends(NamedTuple):
    """The accumulator of ``Spread``."""

    least: float | None = None
    most: float | None = None


class Spread(AggregateFunction[float, Ends, float | None]):
    """The difference between the greatest and the least value."""

    def create_accumulator(self) -> Ends:
        return Ends()

    def add(self, value: float, accumulator: Ends) -> Ends:
        least, most = accumulator
        return Ends(min(value, value if least is None else least), max(value, value if most is None else most))

    def merge(self, first: Ends, second: Ends) -> Ends:
        for value in second:
            first = first if value is None else self.add(value, first)
        return first

    def get_result(self, accumulator: Ends) -> float | None:
        least, most = accumulator
        return None if least is None or most is None else most - least


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Count(), "Count()"),
        (Count(filter=product_of), "Count(filter=product_of)"),
        (Sum("price", filter=nw.col("price") > 1), "Sum('price', filter=col(price).__gt__(1))"),
        (ArgMax("time", by="price"), "ArgMax('time', by='price')"),
        (StdDev("price", population=True), "StdDev('price', population=True)"),
        (Custom("price", Spread()), "Custom('price', Spread)"),
        (Custom("price", aggregate_of(list, lambda value, found: found, len)), "Custom('price', _AggregateOf)"),
    ],
)
def test_stored_text_of_an_aggregate_has_no_addresses(part: Aggregate, text: str) -> None:
    assert str(part) == text


@BOTH
def test_accumulator_of_a_function_is_stored_by_fields(key: Any) -> None:
    assert aggregated(sales(None, 2.0, 5.0, 1.0), Custom("price", Spread()), Number, key) == [None, 0.0, 3.0, 4.0]


def test_accumulator_without_a_type_is_stored_as_it_is() -> None:
    function: Any = aggregate_of(
        lambda: {"sum": 0}, lambda value, found: {"sum": found["sum"] + value}, lambda found: found["sum"]
    )
    assert aggregated(sales(2, 3), Custom("price", function)) == [2, 5]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Variance("price"), 16 / 3),
        (StdDev("price", population=True), 2.0),
        (ArgMax("time", by="price"), 1600),  # it arrived first
        (ArgMin("time", by="price"), 0),
        (CountDistinct("price"), 2),
        (ApproxCountDistinct("price"), 2),
        (Custom("price", Spread()), 4.0),
        (Count(filter=nw.col("price") > 1), 2),
    ],
    ids=lambda part: type(part).__name__,
)
def test_sessions_merge_accumulators(part: Any, expected: Any) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    records = [Sale("tea", time, price, None) for time, price in ((0, 1.0), (1600, 5.0), (2400, 1.0), (800, 5.0))]
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
    times = generator.with_max_out_of_order_time(timedelta(seconds=5)).build_as_process_function()
    keyed = env.from_collection(records).with_parallelism(1).process(times).with_parallelism(1).key_by(product_of)
    found = CollectSink[Any]()
    sessions = keyed.window(WindowStrategy.session(timedelta(seconds=1)))
    sessions.aggregate(Found, Sale, product=Key(), value=part).to_sink(found)
    env.execute()
    assert [result.value for result in found.results] == [pytest.approx(expected)]


def test_columns_of_other_types_fall_back_to_rows() -> None:
    class Bools(NamedTuple):
        product: str
        time: int
        price: bool

    env = ExecutionEnvironment.get_instance(runtime="local")
    keyed = env.from_collection([Bools("tea", 1, True), Bools("tea", 2, False)]).with_parallelism(1).key_by(BY_PRODUCT)
    found = CollectSink[Number]()
    keyed.aggregate(Number, product=Key(), value=Variance("price")).with_parallelism(1).to_sink(found)
    assert "'price' is of type bool, which is no number in columns" in " ".join(str(env.explain()).split())
    env.execute()
    assert [one.value for one in found.results] == [None, 0.5]
