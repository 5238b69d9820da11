"""Declared aggregates: what is refused, and whether they run on columns. Results: tests/property."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, FloatOperation, Inexact, localcontext
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, First, Key, Last, Max, Mean, Min, Sum, WindowEnd, WindowStart
from dsv2.errors import PlanError, SerializationError, UserFunctionError
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
    """A result with a field whose name is that of an accumulator of another one."""

    value: float | None
    _value__sum: int


class Anything(NamedTuple):
    """A result whose type is not declared."""

    key: object


SALES = [Sale("tea", 1, 3, None), Sale("milk", 2, 8, 0.5), Sale("tea", 3, 5, None)]
SECOND = WindowStrategy.tumbling(timedelta(seconds=1))
BY_PRODUCT = attrgetter("product")


def keyed(key: Any = BY_PRODUCT, sales: Any = SALES) -> tuple[ExecutionEnvironment, Any]:
    env = ExecutionEnvironment.get_instance(runtime="local")
    return env, env.from_collection(sales).key_by(key)


def results(key: Any, sales: Any, kind: Any, **parts: Any) -> list[Any]:
    env, stream = keyed(key, sales)
    found = CollectSink[Any]()
    stream.aggregate(kind, product=Key(), **parts).to_sink(found)
    env.execute()
    return found.results


def explained(env: ExecutionEnvironment, stream: Any) -> str:
    stream.to_sink(CollectSink[Any]())
    return str(env.explain())


def product_of(sale: Any) -> str:
    found: str = sale.product
    return found


def is_dear(sale: Sale) -> bool:
    return sale.amount > 5


def typed_product_of(sale: Sale) -> str:
    return sale.product


@pytest.mark.parametrize(
    ("kind", "parts", "text"),
    [
        (Total, {"product": Key()}, ".*Missing: 'value'; unknown: no other"),
        (Total, {"product": Key(), "value": Count(), "more": Count()}, ".*Missing: no field; unknown: 'more'"),
        (Total, {"product": Key(), "value": "sum"}, "value='sum' is not an aggregate"),
        (Total, {"product": Key(), "value": WindowEnd()}, "value is a bound of a window, but there is none"),
        (Total, {"product": Key(), "value": Sum("cost")}, "value aggregates 'cost', but Sale has the fields"),
        (Total, {"product": Key(), "value": Mean("amount")},
         "value of Total is int, but Mean.* is float. Declare the field as float"),
        (Price, {"product": Key(), "value": Mean("cost")}, "value aggregates 'cost', but Sale has the fields"),
        (Hidden, {"value": Mean("amount"), "_value__sum": Count()}, "state would have two fields 'value__sum'. Rename"),
        (int, {"value": Count()}, ".*must be a NamedTuple class or a dataclass, not <class 'int'>"),
        (Total, {"product": Key(), "value": Sum("product")},
         r"Sum\('product'\) is not possible: 'product' is str, which"),
        (Price, {"product": Key(), "value": Mean("product")}, r"Mean\('product'\) is not possible: 'product' is str"),
        (Total, {"product": Key(), "value": First("product")}, r"value of Total is int, but First\('product'\) is str"),
        (Total, {"product": Key(), "value": Max("price")},
         r"value of Total is int, but Max\('price'\) is float | None"),
        (Total, {"product": Count(), "value": Count()}, r"product of Total is str, but Count\(\) is int. Declare the"),
        (Total, {"product": Key(), "value": Key()},
         r"value of Total is int, but Key\(\) is str. Declare the field as str"),
        (Total, {"product": Key(1), "value": Count()}, r"Key\(1\) is not possible: the key is str and has one part"),
        (Total, {"product": Key(-2), "value": Count()}, r"Key\(-2\) is not possible: the key is str and has one part"),
    ],
)  # fmt: skip
def test_wrong_declarations_are_refused(kind: Any, parts: Any, text: str) -> None:
    for key in (BY_PRODUCT, typed_product_of):
        with pytest.raises(PlanError, match=rf"aggregate at .*test_aggregates.py:\d+: {text}"):
            keyed(key)[1].aggregate(kind, **parts)


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


def test_global_stream_has_no_key() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    with pytest.raises(PlanError, match=r"aggregate at .*: Key\(\) requires a keyed stream. Call key_by"):
        env.from_collection(SALES).global_().aggregate(Total, product=Key(), value=Count())


def test_windows_need_a_strategy() -> None:
    with pytest.raises(
        PlanError, match=r"window at .*test_aggregates.py:\d+ takes a WindowStrategy, such as .*, not 5"
    ):
        keyed()[1].window(5)


@pytest.mark.parametrize(
    ("key", "kind", "parts", "why"),
    [
        (product_of, Total, {"product": Key(), "value": Count()}, "the key selector is not an operator.attrgetter"),
        (BY_PRODUCT, Price, {"product": Key(), "value": Sum("amount")}, "is double, and what it aggregates is int64"),
        (attrgetter("time"), Anything, {"key": Key()}, "Field 'key' of Anything has type <class 'object'>"),
        (BY_PRODUCT, Price, {"product": Key(), "value": Max("price")}, None),
        (BY_PRODUCT, Total, {"product": Key(), "value": Count("price")}, None),
        (BY_PRODUCT, Price, {"product": Key(), "value": Mean("amount")}, None),
    ],
)
def test_explanation_says_whether_columns_are_aggregated(key: Any, kind: Any, parts: Any, why: str | None) -> None:
    env, stream = keyed(key)
    text = " ".join(explained(env, stream.aggregate(kind, **parts)).split())
    assert ("called with Arrow tables" in text) is (why is None)
    assert ("aggregates record by record instead of in columns" in text) is (why is not None)
    assert why is None or why in text


@pytest.mark.parametrize(
    ("kind", "parts", "why"),
    [
        (Total, {"product": Key(), "value": Sum("amount")}, None),
        (Price, {"product": Key(), "value": Sum("price")}, "depends on the order of its values"),
        (Total, {"product": Key(), "value": First("amount")}, "depends on the order of its values"),
        (Total, {"product": Key(), "value": Last("amount")}, None),
        (Total, {"product": Key(), "value": Last("amount", filter=is_dear)}, "a filter that is a function"),
    ],
)
def test_explanation_says_whether_sessions_are_aggregated_in_columns(kind: Any, parts: Any, why: str | None) -> None:
    env, stream = keyed()
    sessions = WindowStrategy.session(timedelta(milliseconds=5))
    text = " ".join(explained(env, stream.window(sessions).aggregate(kind, **parts)).split())
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
        WindowStrategy.session(timedelta(seconds=1), "processing"),
        WindowStrategy.count(2),
        WindowStrategy.tumbling(timedelta(seconds=1), "processing").with_early_firing(timedelta(seconds=1)),
        WindowStrategy.tumbling(timedelta(seconds=1)).with_allowed_lateness(timedelta(seconds=1)),
        SECOND.with_early_firing(timedelta(seconds=1)),
        WindowStrategy.session(timedelta(seconds=1)).with_allowed_lateness(timedelta(seconds=1)),
        WindowStrategy.session(lambda sale: 5),
        SECOND.with_timestamps("latest"),
        WindowStrategy.session(attrgetter("product")),
    ],
)
def test_other_windows_are_aggregated_record_by_record(strategy: WindowStrategy) -> None:
    env, stream = keyed()
    text = explained(env, stream.window(strategy).aggregate(Total, product=Key(), value=Count()))
    assert "aggregates record by record" in " ".join(text.split())


@pytest.mark.parametrize(("kind", "part"), [(Total, Sum("amount")), (Price, Mean("amount"))])
@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_sums_of_more_than_64_bits_are_refused(key: Any, kind: Any, part: Any) -> None:
    with pytest.raises(UserFunctionError, match="A sum exceeds 64 bits"):
        results(key, [Sale("a", 1, 1 << 62, None)] * 2, kind, value=part)


def test_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(UserFunctionError, match="A sum exceeds 64 bits: 9223372036854775808"):
        results(product_of, [Sale("a", 1, 1 << 63, None)], Price, value=Mean("amount"))


class Mixed(NamedTuple):
    """A result whose other fields have the names of the sum and the count of the mean."""

    product: str
    mean: float
    mean_sum: int
    mean_count: str


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_fields_may_have_any_names(key: Any) -> None:
    parts = {"mean": Mean("amount"), "mean_sum": Max("time"), "mean_count": First("product")}
    assert results(key, SALES, Mixed, **parts)[-1] == Mixed("tea", 4.0, 3, "tea")


def test_other_aggregates_require_another_class_of_results() -> None:
    env, stream = keyed()
    stream.aggregate(Price, product=Key(), value=Mean("amount")).to_sink(CollectSink())
    stream.aggregate(Price, product=Key(), value=Mean("price")).to_sink(CollectSink())
    with pytest.raises(SerializationError, match=r"Price\.aggregates is not the class .*another class of results"):
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


class Part(NamedTuple):
    """A key of two parts."""

    product: str
    time: int


def part_of(sale: Any) -> Part:
    return Part(sale.product, sale.time)


def untyped_part_of(sale: Any) -> Any:
    return Part(sale.product, sale.time)


@pytest.mark.parametrize("key", [attrgetter("product", "time"), part_of])
def test_parts_of_keys_are_checked(key: Any) -> None:
    for parts, text in [
        ({"product": Key(2), "value": Count()}, r"Key\(2\) is not possible: the key is .* and has 2 parts"),
        ({"product": Key(1), "value": Count()}, r"product of Total is str, but Key\(1\) is int"),
        ({"product": Key(), "value": Count()}, r"product of Total is str, but Key\(\) is .*[pP]a?rt|tuple"),
    ]:
        with pytest.raises(PlanError, match=text):
            keyed(key)[1].aggregate(Total, **parts)
    env, stream = keyed(key)
    found = CollectSink[Total]()
    stream.aggregate(Total, product=Key(0), value=Key(-1)).to_sink(found)
    env.execute()
    assert sorted(found.results) == [("milk", 2), ("tea", 1), ("tea", 3)]


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of, lambda sale: sale.product])
@pytest.mark.parametrize("index", [0, -1])
def test_key_that_is_no_tuple_has_one_part(key: Any, index: int) -> None:
    env, stream = keyed(key)
    found = CollectSink[Total]()
    stream.aggregate(Total, product=Key(index), value=Count()).to_sink(found)
    env.execute()
    assert sorted(found.results) == [("milk", 1), ("tea", 1), ("tea", 2)]


@pytest.mark.parametrize("key", [untyped_part_of, lambda sale: sale.product])
def test_missing_part_of_a_key_is_refused(key: Any) -> None:
    env, stream = keyed(key)
    stream.aggregate(Total, product=Key(2), value=Count()).to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match=r"SchemaError: Key\(2\) is not possible: the key .* has [12] part"):
        env.execute()


class Wide(NamedTuple):
    """A result of wider types."""

    product: object
    value: int | float | str


def test_wider_types_are_taken() -> None:
    for part in (Sum("amount"), Mean("amount"), First("product"), Max("price"), Count()):
        _, stream = keyed()
        stream.aggregate(Wide, product=Key(), value=part)


class Other(NamedTuple):
    """The fields of a sale in another order."""

    time: int
    amount: int
    product: str


class Narrow(NamedTuple):
    """A field of another type."""

    product: str
    amount: str


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
@pytest.mark.parametrize("declared", [True, False])
def test_fields_of_another_class_are_matched_by_name(key: Any, declared: bool) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream: Any = env.from_collection(SALES)
    if not declared:
        stream = stream.map(lambda sale: sale)
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).build_as_process_function()
    running, windows = CollectSink[Total](), CollectSink[Total]()
    stream.key_by(key).aggregate(Total, Other, product=Key(), value=Sum("amount")).to_sink(running)
    timed = stream.process(generator).key_by(key).window(SECOND)
    timed.aggregate(Total, Other, product=Key(), value=Sum("amount")).to_sink(windows)
    env.execute()
    assert sorted(running.results) == [("milk", 8), ("tea", 3), ("tea", 8)]
    assert sorted(windows.results) == [("milk", 8), ("tea", 8)]


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (Price, "the records are of Sale, which has no field 'value' of Price"),
        (Narrow, "the field 'amount' of Narrow is str, but the records are of Sale, where it is int"),
    ],
)
def test_records_of_a_class_that_does_not_fit_are_refused(records: Any, text: str) -> None:
    for key in (BY_PRODUCT, product_of):
        with pytest.raises(PlanError, match=text):
            keyed(key)[1].aggregate(Total, records, product=Key(), value=Count())


def test_other_fields_need_not_be_columns() -> None:
    class Dated(NamedTuple):
        product: str
        amount: int
        at: datetime
        cost: Decimal

    rows = [Dated("tea", 3, datetime(2024, 1, 1, tzinfo=UTC), Decimal("1e-30"))]
    for key in (BY_PRODUCT, product_of):
        env, stream = keyed(key, rows)
        found = CollectSink[Total]()
        total = stream.aggregate(Total, product=Key(), value=Sum("amount"))
        total.to_sink(found)
        assert ("called with Arrow tables" in str(env.explain())) is (key is BY_PRODUCT)
        env.execute()
        assert found.results == [Total("tea", 3)]


class Booking(NamedTuple):
    """A record with a decimal."""

    product: str
    amount: Decimal


class Balance(NamedTuple):
    """All aggregates of decimals."""

    product: str
    total: Decimal
    mean: float
    least: Decimal
    most: Decimal
    last: Decimal


def balances(amounts: list[str], key: Any) -> list[tuple[str, ...]]:
    env, stream = keyed(key, [Booking("a", Decimal(amount)) for amount in amounts])
    found = CollectSink[Balance]()
    parts = {"mean": Mean("amount"), "least": Min("amount"), "most": Max("amount"), "last": Last("amount")}
    balance = stream.aggregate(Balance, product=Key(), total=Sum("amount"), **parts)
    balance.to_sink(found)
    assert ("'amount' of Booking is a Decimal, whose digits" in " ".join(str(env.explain()).split())) is (
        key is BY_PRODUCT
    )
    env.execute()
    return [tuple(map(str, balance[1:])) for balance in found.results]


def test_decimals_do_not_depend_on_the_context() -> None:
    with localcontext(Context(prec=3, traps=[Inexact, FloatOperation])):
        assert balances(["1000.5", "0.25", "NaN"], product_of)[1][0] == "1000.75"


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_sum_of_too_many_digits_is_refused(key: Any) -> None:
    assert len(balances(["1e998", "1", "1e999"], key)[-1][0]) == 1000
    with pytest.raises(
        UserFunctionError, match=r"SchemaError: A sum has more than 1,000 digits: 1.000000000E\+1000 \+ 1"
    ):
        balances(["1e1000", "1"], key)


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
def test_numbers_of_other_classes_are_added(key: Any) -> None:
    cases: list[tuple[list[Any], int]] = [
        ([True, 2], 3),
        ([True, True], 2),
        ([np.int64(1 << 62), np.int64((1 << 62) - 1)], (1 << 63) - 1),
        ([np.int32(1 << 30)] * 4, 1 << 32),
    ]
    for amounts, total in cases:
        sales = [Sale("a", 1, amount, None) for amount in amounts]
        assert results(key, sales, Total, value=Sum("amount"))[-1].value == total
    sales = [Sale("a", 1, 1, price) for price in (np.float32(0.1), 0.2)]  # type: ignore[arg-type]
    assert results(key, sales, Price, value=Sum("price"))[-1].value == float(np.float32(0.1)) + 0.2
    sales = [Sale("a", 1, np.int64(1 << 62), None)] * 2  # type: ignore[arg-type]
    with pytest.raises(UserFunctionError, match="A sum exceeds 64 bits"):
        results(key, sales, Total, value=Sum("amount"))


@pytest.mark.parametrize("key", [BY_PRODUCT, product_of])
@pytest.mark.parametrize("part", [Sum("amount"), Max("amount"), First("amount"), Count()], ids=str)
@pytest.mark.parametrize(
    ("strategy", "late"),
    [
        (SECOND, 5),
        (WindowStrategy.sliding(timedelta(seconds=2), timedelta(seconds=1)), 4),
        (WindowStrategy.sliding(timedelta(milliseconds=500), timedelta(seconds=1)), 6),
    ],
    ids=["tumbling", "sliding", "with gaps"],
)
def test_late_records_are_counted(key: Any, part: Any, strategy: WindowStrategy, late: int) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    times = [0, 5_000, 1, 2, 3_100, 4_100, 3_900, 5_900, 5_001]
    sales = [Sale("tea", time, 1, None) for time in times]
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
    timed = (
        env.from_collection(sales)
        .with_parallelism(1)
        .process(generator.per_event_watermark().build_as_process_function())
    )
    total = timed.with_parallelism(1).key_by(key).window(strategy).aggregate(Total, product=Key(), value=part)
    total.with_uid("windows").with_parallelism(2).to_sink(CollectSink())
    result = env.execute()
    assert sum(subtask.late_records for subtask in result.progress.operators["windows"].subtasks) == late


@pytest.mark.parametrize("aggregate", [Min("amount"), Max("amount")])
@pytest.mark.parametrize("nan", ["NaN", "sNaN"])
def test_decimal_that_is_not_a_number_is_the_extremum(aggregate: Min | Max, nan: str) -> None:
    """Python refuses to compare it."""
    number, not_a_number = Decimal(3), Decimal(nan)
    assert aggregate.fold(not_a_number, number) is not_a_number
    assert aggregate.fold(number, not_a_number) is not_a_number
