"""Programs for changing tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

from dsv2.aggregates import Count, Key, Max, Sum
from dsv2.connectors.postgres import RowChange
from dsv2.model import Change, ChangeKind
from dsv2.tables import Table, no_key
from tests.conformance.harness import Pipeline, Program, Run


class Order(NamedTuple):
    """A version of an order."""

    number: int
    customer: str | None
    cents: int


class City(NamedTuple):
    """The city of a customer, or none."""

    customer: str
    name: str | None


class Delivery(NamedTuple):
    """An order with the city of its customer."""

    number: int
    city: str | None
    cents: int


class Top(NamedTuple):
    """The sum of the greatest orders of a customer."""

    customer: str
    cents: int


class Total(NamedTuple):
    """The orders of a city."""

    city: str
    orders: int
    cents: int
    greatest: int


ORDERS = [Order(n % 7, None if n % 5 == 0 else f"customer {n % 3}", n * n % 11) for n in range(30)]
CITIES = [City(f"customer {n % 3}", None if n in (4, 9) else f"city {n * n % 4}") for n in range(12)]
ROW_CHANGES = [
    RowChange("delete", (order.number,), None)
    if place % 4 == 3
    else RowChange("snapshot" if place < 5 else "update", (order.number,), order)
    for place, order in enumerate(ORDERS)
]
CHANGES = [Change(ChangeKind.DELETE, order) for order in ORDERS[:20]] + [
    Change(ChangeKind.INSERT, order) for order in (*ORDERS, *ORDERS)
]

CURRENT = {order.number: order for order in ORDERS}
CITY_OF = {city.customer: city.name for city in CITIES}
DELIVERIES = [Delivery(o.number, CITY_OF.get(o.customer or ""), o.cents) for o in CURRENT.values()]


def delivery(order: Order, city: City | None) -> Delivery:
    return Delivery(order.number, None if city is None else city.name, order.cents)


class TableOfPostgres(Program):
    """The rows of a ``PostgresSource``."""

    def build(self, p: Pipeline) -> None:
        table = Table.from_row_changes(p.source(ROW_CHANGES, 1), attrgetter("number"))
        p.collect(table.where(lambda order: order.cents > 1).changes())

    def check(self, run: Run) -> None:
        rows = {change.key: change.row for change in ROW_CHANGES}
        expect_table(run, "out", [row for row in rows.values() if row is not None and row.cents > 1])


class JoinedTables(Program):
    """Orders with the cities of their customers, which change, and what their sinks receive."""

    def build(self, p: Pipeline) -> None:
        orders = Table.from_upserts(p.source(ORDERS, 1), attrgetter("number"))
        cities = Table.from_upserts(p.source(CITIES, 1), attrgetter("customer"), is_deletion=lambda c: c.name is None)
        number = attrgetter("number")
        joined = orders.join(cities, delivery, on=attrgetter("customer"), key=number, join_type="left")
        p.collect(joined.changes(), "changes")
        p.collect(joined.upserts(), "upserts")
        grouped = joined.where(lambda row: row.city is not None).group_by(attrgetter("city"))
        totals = grouped.aggregate(Total, city=Key(), orders=Count(), cents=Sum("cents"), greatest=Max("cents"))
        p.collect(totals.changes(), "totals")
        p.collect(totals.suppress(None).changes(), "totals at the end")

    def check(self, run: Run) -> None:
        expect_table(run, "changes", DELIVERIES)
        rows: dict[int, Delivery] = {}
        for change in run.out("upserts"):
            assert change.kind is not ChangeKind.UPDATE_BEFORE
            if change.kind.adds:
                rows[change.record.number] = change.record
            else:
                del rows[change.record.number]
        assert sorted(rows.values()) == sorted(DELIVERIES)
        groups: dict[str, list[int]] = {}
        for row in DELIVERIES:
            if row.city is not None:
                groups.setdefault(row.city, []).append(row.cents)
        totals = [Total(city, len(cents), sum(cents), max(cents)) for city, cents in groups.items()]
        expect_table(run, "totals", totals)
        run.expect_all(*(Change(ChangeKind.INSERT, total) for total in totals), name="totals at the end")


class RowsMoreThanOnce(Program):
    """Rows that a table without a key has several times, and deletions that arrive before insertions."""

    def build(self, p: Pipeline) -> None:
        rows = Table.from_changes(p.source(CHANGES), no_key)
        p.collect(rows.map(customer_of, key=no_key).changes())
        p.collect(rows.changes(), "rows")

    def check(self, run: Run) -> None:
        left = Counter(ORDERS) + Counter(ORDERS[20:])
        for name, expected in (("rows", left), ("out", Counter(map(customer_of, left.elements())))):
            found: Counter[Any] = Counter()
            for change in run.out(name):
                found[change.record] += 1 if change.kind.adds else -1
            assert +found == expected
            assert -found == Counter()


class TableOfTop(Program):
    """The sum of the two greatest orders of each customer: a table of the changes that ``top_n`` emits."""

    def build(self, p: Pipeline) -> None:
        known = [order for order in ORDERS if order.customer is not None]
        top = p.source(known, 1).key_by(attrgetter("customer")).top_n(2, by="cents")
        table = Table.from_changes(top, attrgetter("number", "cents")).group_by(attrgetter("customer"))
        p.collect(table.aggregate(Top, customer=Key(), cents=Sum("cents")).changes())

    def check(self, run: Run) -> None:
        cents: dict[str, list[int]] = {}
        for order in ORDERS:
            if order.customer is not None:
                cents.setdefault(order.customer, []).append(order.cents)
        expect_table(run, "out", [Top(name, sum(sorted(found)[-2:])) for name, found in cents.items()])


class HeldBack(Program):
    """Changes that are held back in event time, and then cancel each other out."""

    def build(self, p: Pipeline) -> None:
        timed = p.timed([(n, order) for n, order in enumerate(ORDERS)], lambda pair: pair[0])
        upserts = timed.map(lambda pair: pair[1]).with_parallelism(1)
        orders = Table.from_upserts(upserts, attrgetter("number")).with_parallelism(1)
        held = orders.suppress(timedelta(milliseconds=10), time_type="event").with_parallelism(1)
        p.collect(held.changes(), "event time")
        p.collect(orders.suppress(timedelta(days=1)).changes(), "processing time")

    def check(self, run: Run) -> None:
        expect_table(run, "event time", list(CURRENT.values()))
        added = [change.record for change in run.out("event time") if change.kind.adds]
        for number, latest in CURRENT.items():
            versions = ORDERS[number::7]
            seen = [versions[1], versions[3]]  # at 10 and 24 ms after the first, which is 0, 7, 14, 21 and 28 ms old
            assert [order for order in added if order.number == number] == [*seen, *versions[4:]]
            assert versions[-1] == latest
        run.expect_all(*(Change(ChangeKind.INSERT, order) for order in CURRENT.values()), name="processing time")


def customer_of(order: Order) -> tuple[str | None]:
    return (order.customer,)


def expect_table(run: Run, name: str, rows: Sequence[Any], key: Callable[[Any], Any] = lambda row: row[0]) -> None:
    """Expect that these rows remain after the changes. Each change must follow from those before it."""
    found: dict[Any, Any] = {}
    for change in run.out(name):
        if change.kind.adds:
            assert found.setdefault(key(change.record), change.record) is change.record
        else:
            assert found.pop(key(change.record)) == change.record
    assert sorted(found.values()) == sorted(rows)


PROGRAMS = (TableOfPostgres(), JoinedTables(), RowsMoreThanOnce(), TableOfTop(), HeldBack())
