"""Changing tables compared with SQL over the final tables, run by DuckDB."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from operator import attrgetter, itemgetter
from random import Random
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, CountDistinct, Key, Max, Mean, Min, Sum, Variance
from dsv2.arrow import schema_of
from dsv2.local import LocalRuntime
from dsv2.model import Change, ChangeKind
from dsv2.sinks import CollectSink
from dsv2.tables import Table, no_key
from dsv2.testing import ManualClock
from tests.profiles import examples
from tests.strategies import long_lists


class Order(NamedTuple):
    """A version of an order. Its number is the order of arrival."""

    number: int
    order: int
    customer: str | None
    cents: int | None
    weight: float | None
    is_deletion: bool


class Customer(NamedTuple):
    """A version of a customer."""

    number: int
    name: str
    city: str
    is_deletion: bool


class Bought(NamedTuple):
    """An order with the city of its customer."""

    order: int | None
    customer: str | None
    city: str | None


class Total(NamedTuple):
    """The aggregates of a city, or of a customer."""

    group: str | None
    orders: int
    cents: int | None
    mean: float | None
    least: float | None
    greatest: float | None
    distinct: int
    variance: float | None


NAMES = st.sampled_from("abc")
WEIGHTS = st.none() | st.sampled_from([0.1, 0.2, 1e300, -1e300, 3.0])
ORDERS = long_lists(
    st.tuples(st.integers(0, 4), st.none() | NAMES, st.none() | st.integers(-3, 3), WEIGHTS, st.booleans()), 24
).map(lambda rows: [Order(number, *row) for number, row in enumerate(rows)])
CUSTOMERS = long_lists(st.tuples(NAMES, st.sampled_from("xy"), st.booleans()), 12).map(
    lambda rows: [Customer(number, *row) for number, row in enumerate(rows)]
)
BATCHES = st.sampled_from([1, 3, 100])
HELD_BACK = st.sampled_from([None, {"after": None}, {"after": timedelta(0)}, {"after": timedelta(0), "max_rows": 1}])
PARALLELISMS = st.sampled_from([1, 3])
AGGREGATES = {
    "group": Key(),
    "orders": Count(),
    "cents": Sum("cents"),
    "mean": Mean("cents"),
    "least": Min("weight"),
    "greatest": Max("weight"),
    "distinct": CountDistinct("weight"),
    "variance": Variance("cents", population=True),
}
IN_SQL = "count(*), sum(cents), avg(cents), min(weight), max(weight), count(DISTINCT weight), round(var_pop(cents), 9)"
TABLES = """
    orders AS (
        SELECT * FROM changed_orders QUALIFY row_number() OVER (PARTITION BY "order" ORDER BY number DESC) = 1
        AND NOT is_deletion
    ), customers AS (
        SELECT * FROM changed_customers QUALIFY row_number() OVER (PARTITION BY name ORDER BY number DESC) = 1
        AND NOT is_deletion
    )
"""


def upserts(env: ExecutionEnvironment, records: Sequence[Any], key: str) -> Table[Any, Any]:
    stream = env.from_collection(records).with_parallelism(1)  # so that the versions of a row arrive in order
    return Table.from_upserts(stream, attrgetter(key), is_deletion=attrgetter("is_deletion")).with_uid(key)


def run(batch: int, parallelism: int, build: Callable[[ExecutionEnvironment], Any]) -> list[Change[Any]]:
    """Run a job that restarts after each micro-batch. ``build`` returns the stream of changes."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock()))
    env.set_parallelism(parallelism)
    sink = CollectSink[Any]()
    build(env).to_sink(sink)
    env.execute()
    return sink.results


def remaining(changes: Iterable[Change[Any]], key: Callable[[Any], Any]) -> list[Any]:
    """Apply changes of a table with a primary key. Each must change something, and follow from those before it."""
    rows: dict[Any, Any] = {}
    changed: dict[Any, ChangeKind] = {}
    for change in changes:
        place = key(change.record)
        if change.kind is ChangeKind.UPDATE_AFTER:
            assert changed.pop(place) is ChangeKind.UPDATE_BEFORE
        else:
            assert place not in changed
        if change.kind.adds:
            assert place not in rows
            rows[place] = change.record
        else:
            assert rows.pop(place) == change.record
            if change.kind is ChangeKind.UPDATE_BEFORE:
                changed[place] = change.kind
    assert not changed
    return list(rows.values())


def rounded(total: Total) -> Total:
    return total._replace(variance=None if total.variance is None else round(total.variance, 9))


def sql(query: str, orders: Sequence[Order], customers: Sequence[Customer] = ()) -> list[tuple[Any, ...]]:
    db = duckdb.connect()
    for name, kind, rows in (("orders", Order, orders), ("customers", Customer, customers)):
        columns: list[Any] = list(zip(*rows, strict=True)) or [[] for _ in kind._fields]
        db.register(f"changed_{name}", pa.table(columns, schema_of(kind)))
    return db.execute(f"WITH {TABLES} {query}").fetchall()


@examples(15)
@given(ORDERS, CUSTOMERS, st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]), BATCHES, PARALLELISMS)
def test_joins(orders: list[Order], customers: list[Customer], join_type: Any, batch: int, parallelism: int) -> None:
    def bought(order: Order | None, customer: Customer | None) -> Bought:
        return Bought(
            None if order is None else order.order,
            order.customer if order is not None else customer.name if customer is not None else None,
            None if customer is None else customer.city,
        )

    def key(row: Bought) -> tuple[bool, Any]:
        return (False, row.customer) if row.order is None else (True, row.order)

    def build(env: ExecutionEnvironment) -> Any:
        other = upserts(env, customers, "name")
        on = attrgetter("customer")
        joined: Any = upserts(env, orders, "order").join(other, bought, on=on, key=key, join_type=join_type)
        return joined.with_uid("join").changes().with_uid("changes")

    city = "NULL" if join_type in ("semi", "anti") else "city"
    customer = "customer" if join_type in ("semi", "anti") else "coalesce(customer, name)"
    expected = sql(
        f'SELECT "order", {customer}, {city} FROM orders {join_type} JOIN customers ON customer = name',
        orders,
        customers,
    )
    found = remaining(run(batch, parallelism, build), key)
    assert sorted(found, key=repr) == sorted((Bought(*row) for row in expected), key=repr)


@examples(15)
@given(ORDERS, CUSTOMERS, BATCHES, PARALLELISMS, HELD_BACK)
def test_aggregates_of_a_join(
    orders: list[Order], customers: list[Customer], batch: int, parallelism: int, held_back: dict[str, Any] | None
) -> None:
    class Shipped(NamedTuple):
        city: str
        cents: int | None
        weight: float | None

    def build(env: ExecutionEnvironment) -> Any:
        joined = (
            upserts(env, orders, "order")
            .where(lambda order: order.cents != 0)
            .join(
                upserts(env, customers, "name"),
                lambda order, customer: Shipped(customer.city, order.cents, order.weight),
                on=attrgetter("customer"),
                key=no_key,
            )
        )
        totals = joined.with_uid("join").group_by(attrgetter("city")).aggregate(Total, **AGGREGATES).with_uid("totals")
        return totals.changes() if held_back is None else totals.suppress(**held_back).with_uid("held").changes()

    expected = sql(
        f"SELECT city, {IN_SQL} FROM orders JOIN customers ON customer = name WHERE cents IS NULL OR cents <> 0 "
        "GROUP BY city",
        orders,
        customers,
    )
    found = remaining(run(batch, parallelism, build), attrgetter("group"))
    assert sorted(map(rounded, found)) == sorted(Total(*row) for row in expected)


@examples(15)
@given(ORDERS, BATCHES, PARALLELISMS)
def test_groups_with_null(orders: list[Order], batch: int, parallelism: int) -> None:
    """Rows without a customer are a group, in a table with this primary key."""

    def build(env: ExecutionEnvironment) -> Any:
        grouped = upserts(env, orders, "order").group_by(attrgetter("customer"))
        totals = grouped.aggregate(Total, **AGGREGATES).with_uid("totals")
        return totals.where(lambda total: total.orders > 1).changes()

    expected = sql(f"SELECT customer, {IN_SQL} FROM orders GROUP BY customer HAVING count(*) > 1", orders)
    found = remaining(run(batch, parallelism, build), attrgetter("group"))
    assert sorted(map(rounded, found), key=repr) == sorted((Total(*row) for row in expected), key=repr)


@examples(15)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 2)), max_size=12), st.data())
def test_changes_in_any_order(rows: list[tuple[str, int | None]], data: st.DataObject) -> None:
    """Deletions that overtake their insertions, and rows that the table has several times."""
    deleted = [row for row in rows if data.draw(st.booleans())]
    changes = [Change(ChangeKind.INSERT, row) for row in rows] + [Change(ChangeKind.DELETE, row) for row in deleted]
    data.draw(st.randoms(use_true_random=False), "order").shuffle(changes)
    batch, parallelism = data.draw(BATCHES), data.draw(PARALLELISMS)
    left = Counter(rows)
    left.subtract(deleted)

    net = Counter[Any]()
    for change in run(
        batch, parallelism, lambda env: Table.from_changes(env.from_collection(changes), no_key).changes()
    ):
        net[change.record] += 1 if change.kind.adds else -1
        assert net[change.record] >= 0
    assert +net == +left


@examples(15)
@given(st.data(), st.sampled_from(["inner", "left", "full", "semi", "anti"]), BATCHES, PARALLELISMS)
def test_joins_of_rows_that_tables_have_several_times(
    data: st.DataObject, join_type: Any, batch: int, parallelism: int
) -> None:
    """Both tables have equal rows and several rows of a key, and deletions overtake insertions."""
    pairs = st.lists(st.tuples(st.none() | st.integers(0, 1), st.sampled_from("ab")), max_size=8)
    kept, changes = [data.draw(pairs) for _ in "lr"], list[list[Change[Any]]]()
    for rows in kept:
        gone = data.draw(pairs)
        changed = [Change(ChangeKind.INSERT, row) for row in rows + gone]
        changed += [Change(ChangeKind.DELETE, row) for row in gone]
        data.draw(st.randoms(use_true_random=False)).shuffle(changed)
        changes.append(changed)

    def build(env: ExecutionEnvironment) -> Any:
        left, right = (
            Table.from_changes(env.from_collection(changed).with_uid(uid), itemgetter(0))
            for uid, changed in zip("lr", changes, strict=True)
        )
        joined: Any = left.join(right, lambda *pair: pair, on=itemgetter(0), key=no_key, join_type=join_type)
        return joined.with_uid("join").changes()

    columns = "l.k, l.v" if join_type in ("semi", "anti") else "l.k, l.v, r.k, r.v"
    db = duckdb.connect()
    db.execute("CREATE TABLE l (k int, v text); CREATE TABLE r (k int, v text)")
    for name, rows in zip("lr", kept, strict=True):
        for row in rows:
            db.execute(f"INSERT INTO {name} VALUES (?, ?)", row)
    # A row whose value is not null is there; None stands for a missing partner.
    expected = Counter(
        (row[:2] if row[1] else None, row[2:] if row[2:] and row[3] else None)
        for row in db.execute(f"SELECT {columns} FROM l {join_type} JOIN r ON l.k = r.k").fetchall()
    )
    net = Counter[Any]()
    for change in run(batch, parallelism, build):
        net[change.record] += 1 if change.kind.adds else -1
    assert net - expected == expected - net == Counter()
    assert min(net.values(), default=0) >= 0


@examples(15)
@given(ORDERS.filter(bool), BATCHES, st.randoms(use_true_random=False))
def test_exact_sums_of_floats(orders: list[Order], batch: int, random: Random) -> None:
    """Sums after deletions are those of the rows that remain, and not those with rounding errors of rows that left."""
    weights = [order.weight for order in orders if order.weight is not None]
    kept = [weight for weight in weights if random.random() < 0.5]
    gone = list(weights)
    for weight in kept:
        gone.remove(weight)
    changes = [Change(ChangeKind.INSERT, (weight,)) for weight in weights]
    changes += [Change(ChangeKind.DELETE, (weight,)) for weight in gone]
    random.shuffle(changes)

    class Sums(NamedTuple):
        everything: int
        total: float
        rows: int

    class Weight(NamedTuple):
        weight: float

    def build(env: ExecutionEnvironment) -> Any:
        table = Table.from_changes(env.from_collection(changes), no_key).map(lambda row: Weight(*row), key=no_key)
        sums = table.group_by(lambda row: 0)
        return sums.aggregate(Sums, everything=Key(), total=Sum("weight"), rows=Count()).changes()

    exact = [Sums(0, math.fsum(kept), len(kept))] if kept else []
    assert remaining(run(batch, 1, build), attrgetter("everything")) == exact
