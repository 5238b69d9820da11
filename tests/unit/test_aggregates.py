"""Declared aggregates: what is refused, and whether they run on columns. Results: tests/property."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment, PlanError, UserFunctionError
from dsv2.aggregates import Count, First, Key, Last, Max, Mean, Sum, WindowEnd, WindowStart
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource


class Sale(NamedTuple):
    """A record."""

    product: str
    time: int
    amount: int
    price: float | None


class Total(NamedTuple):
    """A result."""

    product: str
    value: int


@dataclass(frozen=True, kw_only=True)
class Price:
    """A result with an aggregate that may be missing."""

    product: str
    value: float | None


@dataclass(frozen=True)
class Hidden:
    """A result with a field whose name begins with an underscore."""

    product: str
    _value: float | None


SALES = [Sale("tea", 1, 3, None), Sale("milk", 2, 8, 0.5), Sale("tea", 3, 5, None)]
SECOND = WindowStrategy.tumbling(timedelta(seconds=1))
BY_PRODUCT = attrgetter("product")


def keyed(key: Any = BY_PRODUCT, sales: Any = SALES) -> tuple[ExecutionEnvironment, Any]:
    env = ExecutionEnvironment.get_instance(runtime="local")
    return env, env.from_collection(sales).key_by(key)


def explained(env: ExecutionEnvironment, stream: Any) -> str:
    stream.to_sink(CollectSink[Any]())
    return str(env.explain())


def product_of(sale: Any) -> str:
    found: str = sale.product
    return found


@pytest.mark.parametrize(
    ("kind", "parts", "text"),
    [
        (Total, {"product": Key()}, "Missing: 'value'; unknown: no other"),
        (Total, {"product": Key(), "value": Count(), "more": Count()}, "Missing: no field; unknown: 'more'"),
        (Total, {"product": Key(), "value": "sum"}, "value='sum' is not an aggregate"),
        (Total, {"product": Key(), "value": WindowEnd()}, "value is a bound of a window, but there is none"),
        (
            Total,
            {"product": Key(), "value": Sum("cost")},
            "value aggregates 'cost', but Sale has the fields",
        ),
        (Total, {"product": Key(), "value": Mean("amount")}, "value of Total is a mean, which is a float. Declare"),
        (Price, {"product": Key(), "value": Mean("cost")}, "value aggregates 'cost', but Sale has the fields"),
        (Hidden, {"product": Key(), "_value": Mean("amount")}, "must not begin with an underscore. Rename _value"),
        (int, {"value": Count()}, "must be a NamedTuple class or a dataclass, not <class 'int'>"),
    ],
)
def test_wrong_declarations_are_refused(kind: Any, parts: Any, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        keyed()[1].aggregate(kind, **parts)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: Sum(5), "Sum takes the name of a field, not 5"),  # type: ignore[arg-type]
        (lambda: Mean(5), "Mean takes the name of a field, not 5"),  # type: ignore[arg-type]
        (lambda: Key("a"), "Key takes the index of a part of the key, or nothing, not 'a'"),  # type: ignore[arg-type]
        (lambda: Key(True), "Key takes the index of a part of the key, or nothing, not True"),
    ],
)
def test_wrong_arguments_are_refused(wrong: Any, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        wrong()


def test_windows_need_a_strategy() -> None:
    with pytest.raises(PlanError, match=r"window at .*test_aggregates.py:\d+ takes a WindowStrategy, not 5"):
        keyed()[1].window(5)


@pytest.mark.parametrize(
    ("key", "kind", "parts", "why"),
    [
        (product_of, Total, {"product": Key(), "value": Count()}, "the key selector is not an operator.attrgetter"),
        (BY_PRODUCT, Total, {"product": Key(), "value": Sum("price")}, "is int64, and what it aggregates is double"),
        (attrgetter("product", "time"), Total, {"product": Key(), "value": Count()}, "with the type of the key"),
        (attrgetter("time"), Total, {"product": Key(), "value": Count()}, "not a column with the type of the key"),
        (BY_PRODUCT, Price, {"product": Key(), "value": Max("price")}, None),
        (BY_PRODUCT, Total, {"product": Key(), "value": Count("price")}, None),
        (BY_PRODUCT, Price, {"product": Key(), "value": Mean("amount")}, None),
        (BY_PRODUCT, Price, {"product": Key(), "value": Mean("product")}, "is of type string, which has no sum"),
    ],
)
def test_explanation_says_whether_columns_are_aggregated(key: Any, kind: Any, parts: Any, why: str | None) -> None:
    env, stream = keyed(key)
    text = " ".join(explained(env, stream.aggregate(kind, **parts)).split())
    assert ("called with Arrow tables" in text) is (why is None)
    assert ("aggregates record by record instead of in columns" in text) is (why is not None)
    assert why is None or why in text


def test_class_of_the_records_may_be_given() -> None:
    for records, on_columns in ((None, False), (Sale, True)):
        env = ExecutionEnvironment.get_instance(runtime="local")
        source = DataGeneratorSource(lambda index: SALES[index % 3], count=5)
        stream = env.from_source(source, "sales").key_by(BY_PRODUCT)
        total = stream.aggregate(Total, records, product=Key(), value=Count())
        text = explained(env, total)
        assert ("called with Arrow tables" in text) is on_columns
        assert ("pass it after the class of the results" in " ".join(text.split())) is not on_columns


@pytest.mark.parametrize(
    "strategy",
    [
        WindowStrategy.session(timedelta(seconds=1)),
        WindowStrategy.count(2),
        WindowStrategy.tumbling(timedelta(seconds=1), "processing"),
        WindowStrategy.tumbling(timedelta(seconds=1), allowed_lateness=timedelta(seconds=1)),
        SECOND.with_early_firing(timedelta(seconds=1)),
    ],
)
def test_other_windows_are_aggregated_record_by_record(strategy: WindowStrategy) -> None:
    env, stream = keyed()
    text = explained(env, stream.window(strategy).aggregate(Total, product=Key(), value=Count()))
    assert "aggregates record by record" in text


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_missing_values(key: Any) -> None:
    env, stream = keyed(key)
    prices = CollectSink[Price]()
    stream.aggregate(Price, product=Key(), value=First("price")).to_sink(prices)
    env.execute()
    expected = [Price(product="milk", value=0.5), Price(product="tea", value=None), Price(product="tea", value=None)]
    assert sorted(prices.results, key=BY_PRODUCT) == expected


@pytest.mark.parametrize(("kind", "part"), [(Total, Sum("amount")), (Price, Mean("amount"))])
@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_sums_of_more_than_64_bits_are_refused(key: Any, kind: Any, part: Any) -> None:
    env, stream = keyed(key, [Sale("a", 1, 1 << 62, None)] * 2)
    stream.aggregate(kind, product=Key(), value=part).to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match="A sum exceeds 64 bits"):
        env.execute()


def test_number_of_more_than_64_bits_is_refused() -> None:
    env, stream = keyed(product_of, [Sale("a", 1, 1 << 63, None)])
    stream.aggregate(Price, product=Key(), value=Mean("amount")).to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match="A sum exceeds 64 bits: 9223372036854775808"):
        env.execute()


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
@pytest.mark.parametrize(
    ("amounts", "mean"),
    [
        ([(1 << 53) + 1, 0, 0], 3002399751580331.0),  # rounded once; the sum as a float would be another number
        ([-(1 << 63)], -9223372036854775808.0),
        ([1, 2], 1.5),
    ],
)
def test_mean_of_whole_numbers_is_exact(key: Any, amounts: list[int], mean: float) -> None:
    env, stream = keyed(key, [Sale("a", 1, amount, None) for amount in amounts])
    means = CollectSink[Price]()
    stream.aggregate(Price, product=Key(), value=Mean("amount")).to_sink(means)
    env.execute()
    assert means.results[-1].value == mean


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        ([None, 1.0, None, 2.0], [None, 1.0, 1.0, 1.5]),
        ([1.0, math.inf, -math.inf, 1.0], [1.0, math.inf, math.nan, math.nan]),
        ([1e308, 1e308], [1e308, math.inf]),
    ],
)
def test_mean_of_floats(key: Any, prices: list[float | None], expected: list[float | None]) -> None:
    env, stream = keyed(key, [Sale("a", 1, 1, price) for price in prices])
    means = CollectSink[Price]()
    stream.aggregate(Price, product=Key(), value=Mean("price")).to_sink(means)
    env.execute()
    assert list(map(repr, (mean.value for mean in means.results))) == list(map(repr, expected))


class Mixed(NamedTuple):
    """A result whose other fields have the names of the sum and the count of the mean."""

    product: str
    mean: float
    mean_sum: int
    mean_count: str


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_fields_may_have_any_names(key: Any) -> None:
    env, stream = keyed(key)
    found = CollectSink[Mixed]()
    parts = {"mean": Mean("amount"), "mean_sum": Max("time"), "mean_count": First("product")}
    stream.aggregate(Mixed, product=Key(), **parts).to_sink(found)
    env.execute()
    assert found.results[-1] == Mixed("tea", 4.0, 3, "tea")


class Ends(NamedTuple):
    """The first and the last record of a window, by their amount."""

    product: str
    start: int
    first: int
    last: int


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_records_of_sliding_windows_are_in_the_order_of_arrival(key: Any) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    found = CollectSink[Ends]()
    sales = [Sale("tea", time, number, None) for number, time in enumerate((1500, 700, 1600, 800))]
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
    times = generator.with_max_out_of_order_time(timedelta(seconds=5)).build_as_process_function()
    windows = WindowStrategy.sliding(timedelta(seconds=2), timedelta(seconds=1))
    by_product = env.from_collection(sales).process(times).key_by(key)
    parts = {"start": WindowStart(), "first": First("amount"), "last": Last("amount")}
    by_product.window(windows).aggregate(Ends, product=Key(), **parts).to_sink(found)
    env.execute()
    assert sorted(found.results) == [Ends("tea", -1000, 1, 3), Ends("tea", 0, 0, 3), Ends("tea", 1000, 0, 2)]


def test_class_of_results_may_have_means_of_several_types() -> None:
    env, stream = keyed()
    stream.aggregate(Price, product=Key(), value=Mean("amount")).to_sink(CollectSink())
    stream.aggregate(Price, product=Key(), value=Mean("price")).to_sink(CollectSink())
    env.execute()


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_windows_need_timestamps(key: Any) -> None:
    env, stream = keyed(key)
    stream.window(SECOND).aggregate(Total, product=Key(), value=WindowStart()).to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match="Windows in event time require records with timestamps"):
        env.execute()


def test_dicts_are_aggregated() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    totals = CollectSink[Total]()
    records = [{"product": "tea", "amount": 2}, {"product": "tea", "amount": 5}]
    stream = env.from_collection(records).key_by(lambda record: str(record["product"]))
    stream.aggregate(Total, product=Key(), value=Sum("amount")).to_sink(totals)
    env.execute()
    assert totals.results == [Total("tea", 2), Total("tea", 7)]


def test_sessions_merge() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    totals = CollectSink[Total]()
    sales = [Sale("tea", time, amount, None) for time, amount in ((0, 1), (1500, 2), (800, 4))]
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
    times = generator.with_max_out_of_order_time(timedelta(seconds=5)).build_as_process_function()
    by_product = env.from_collection(sales).process(times).key_by(BY_PRODUCT)
    sessions = by_product.window(WindowStrategy.session(timedelta(seconds=1)))
    sessions.aggregate(Total, product=Key(), value=Sum("amount")).to_sink(totals)
    env.execute()
    assert totals.results == [Total("tea", 7)]
