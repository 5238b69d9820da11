"""Declared aggregates continue in a checkpoint after the class of their results has changed."""

from __future__ import annotations

from dataclasses import astuple, fields, make_dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from dsv2.aggregates import Count, First, Key, Part
from dsv2.arrow.aggregates import ColumnAggregate
from dsv2.extension.window import WindowStrategy
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink
from tests.durations import ms
from tests.support import ENDED, Driver, KeptEntries, Signal, local_environment, operator_named


class Sale(NamedTuple):
    """A record."""

    product: int
    amount: int


PRODUCT = ("product", int)


def total(*columns: Any) -> Any:
    """A version of the class ``shop.Total``."""
    made = make_dataclass("Total", columns, frozen=True)
    made.__module__ = "shop"
    return made


VERSIONS = {  # not attributes: the job would use all of them
    "one": total(PRODUCT, ("first", int)),
    "two": total(PRODUCT, ("first", int), ("number", int, 0)),
    "optional": total(PRODUCT, ("first", int | None)),
    "without the key": total(("first", int)),
    "with the key": total(("first", int), ("product", int, -1)),
    "reordered": total(PRODUCT, ("number", int, 0), ("first", int, 0)),
}
PARTS: dict[str, Part] = {"product": Key(), "first": First("amount"), "number": Count()}


def product_of(sale: Sale) -> int:
    return sale.product


def driver(kind: Any, on_columns: bool, entries: KeptEntries | None, *, windowed: bool = True) -> Driver:
    env = local_environment()
    sales = env.from_collection(list[Sale](), "in").with_parallelism(2)
    keyed = sales.key_by(attrgetter("product") if on_columns else product_of)
    parts = {field.name: PARTS[field.name] for field in fields(kind)}
    aggregated: Any = keyed.window(WindowStrategy.tumbling(ms(50))) if windowed else keyed
    totals = aggregated.aggregate(kind, Sale, **parts)
    totals.with_uid("totals").with_parallelism(1).to_sink(CollectSink()).with_uid("out")
    plan = env.build_plan()
    assert isinstance(operator_named(plan, "totals").body, ColumnAggregate) is on_columns
    return Driver(plan, "totals", entries=entries).open()


def receive(to: Driver, amount: int, products: range) -> None:
    sales = [Sale(product, amount) for product in products]
    to.subtask.receive(0, RecordBatch(sales, [product % 100 for product in products]), [])
    to.subtask.flush()


def results(of: Driver) -> list[tuple[Any, ...]]:
    for channel in (0, 1):
        of.send(ENDED, channel=channel)
    return sorted(astuple(record) for record in of.sent_to("out") if not isinstance(record, Signal))


ON_COLUMNS = pytest.mark.parametrize("on_columns", [False, True], ids=["single records", "columns"])


@pytest.mark.parametrize("in_entries", [False, True], ids=["blob", "entries"])
@ON_COLUMNS
@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("one", "one", (3,)),
        ("one", "two", (3, 1)),  # the record after the change is counted
        ("two", "one", (3,)),
        ("two", "reordered", (2, 3)),
        ("one", "optional", (3,)),
    ],
)
def test_windows_continue(before: str, now: str, expected: tuple[Any, ...], on_columns: bool, in_entries: bool) -> None:
    products = range(25_000) if on_columns else range(200)  # keys are converted in portions of 10,000
    entries = KeptEntries() if in_entries else None
    first, second = (driver(VERSIONS[version], on_columns, entries) for version in (before, now))
    receive(first, 3, products)
    first.restart_in(second)
    receive(second, 5, products)
    second.restart()
    assert results(second) == [(product, *expected) for product in products]


@pytest.mark.parametrize("forms", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("now", ["one", "two"])
def test_windows_continue_from_a_savepoint(now: str, forms: tuple[bool, bool]) -> None:
    products = range(12_000)
    first, second = driver(VERSIONS["one"], forms[0], None), driver(VERSIONS[now], forms[1], None)
    receive(first, 3, products)
    assert sorted(first.subtask.head.keys()) == list(products)
    second.restart_from(first.rows())
    receive(second, 5, products)
    assert results(second) == [(product, *((3, 1) if now == "two" else (3,))) for product in products]


@ON_COLUMNS
def test_added_key_is_known_at_once(on_columns: bool) -> None:
    first, second = (
        driver(VERSIONS[version], on_columns, None, windowed=False) for version in ("without the key", "with the key")
    )
    receive(first, 3, range(5))
    first.restart_in(second)
    receive(second, 4, range(5))
    assert results(second) == [(3, product) for product in range(5)]
