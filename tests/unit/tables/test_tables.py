"""Changing tables: what is emitted when, what survives a restart, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import ApproxCountDistinct, Count, CountDistinct, First, Key, Max, Min, Sum
from dsv2.connectors.kafka import KafkaSink
from dsv2.connectors.postgres import PostgresSink
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError, PlanError
from dsv2.local import LocalRuntime
from dsv2.model import Change, ChangeKind
from dsv2.sinks import CollectSink
from dsv2.tables import Table, no_key
from dsv2.testing import OneInputHarness, Stop, TestSource, TwoInputNonBroadcastHarness
from tests.durations import ms


class Order(NamedTuple):
    """A row."""

    number: int
    customer: str | None
    cents: float


class Total(NamedTuple):
    """The orders of a customer."""

    customer: str
    cents: float | None
    greatest: float | None


def number_of(order: Order) -> int:
    return order.number


def same_key(row: object) -> int:
    return 1


def added(row: Any) -> Change[Any]:
    return Change(ChangeKind.INSERT, row)


def removed(row: Any) -> Change[Any]:
    return Change(ChangeKind.DELETE, row)


def table_of(records: list[Any] | None = None) -> Table[Any, Any]:
    env = ExecutionEnvironment.get_instance(runtime="local")
    return Table.from_changes(env.from_collection(records or []), number_of)


def shown(changes: list[Change[Any]]) -> list[tuple[str, Any]]:
    return [(change.kind.value, change.record) for change in changes]


def one_input(stream: Any) -> OneInputHarness[Any, Any]:
    (ref,) = stream._node.inputs
    return OneInputHarness(stream._node.body, key=ref.key_selector)


ONE, OTHER = Order(1, "ada", 3), Order(1, "ben", 3)
NAN = float("nan")


def test_changes_of_a_key() -> None:
    harness = one_input(table_of().changes())
    harness.input.push(added(OTHER), removed(OTHER), added(ONE))
    harness.input.push(removed(ONE), added(OTHER))
    harness.input.push(added(ONE), removed(OTHER), removed(ONE))
    harness.input.push(added(ONE), removed(ONE))
    assert shown(harness.output.records) == [("+I", ONE), ("-U", ONE), ("+U", OTHER), ("-D", OTHER)]
    assert harness.keys == []


def test_insertion_of_the_new_row_before_the_deletion_of_the_old_one() -> None:
    harness = one_input(table_of().changes())
    for change in (added(ONE), added(OTHER)):
        harness.input.push(change)
        harness.restart()
    assert shown(harness.output.records) == [("+I", ONE), ("-U", ONE), ("+U", OTHER)]
    harness.input.push(removed(ONE))
    assert len(harness.output.records) == 3, "the row is the other one already"


@pytest.mark.parametrize("row", [Order(1, None, NAN), {"number": 1, "tags": [NAN, "a"]}])
def test_row_with_nan_is_found_after_a_restart(row: Any) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    harness = one_input(Table.from_changes(env.from_collection([added(row)]), same_key).changes())
    harness.input.push(added(row))
    harness.restart()
    harness.input.push(removed(row))
    assert [change.kind for change in harness.output.records] == ["+I", "-D"]
    assert harness.keys == []


def test_upserts_and_tombstones() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    stream = env.from_collection([ONE])
    table = Table.from_upserts(stream, number_of, is_deletion=lambda order: order.customer is None)
    harness = one_input(table)
    gone = Order(1, None, 0)
    harness.input.push(gone)
    for order in (ONE, ONE, OTHER, gone, ONE):
        harness.input.push(order)
    assert shown(harness.output.records) == [
        ("+I", ONE), ("-U", ONE), ("+U", OTHER), ("-D", OTHER), ("+I", ONE),
    ]  # fmt: skip


def test_streams_for_sinks() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1]))
    env.set_parallelism(2)
    upserts, latest = CollectSink[Any](), CollectSink[Any]()
    orders = [ONE, OTHER, Order(2, "ada", 0), Order(1, None, 0), ONE, Order(3, None, 0)]
    source = env.from_collection(orders).with_parallelism(1)
    table = Table.from_upserts(source, number_of, is_deletion=lambda order: order.customer is None)
    table.with_parallelism(1).upserts().to_sink(upserts).with_parallelism(1)
    table.latest().to_sink(latest).with_parallelism(1)
    env.execute()
    assert shown(upserts.results) == [
        ("+I", ONE), ("+U", OTHER), ("+I", orders[2]), ("-D", OTHER), ("+I", ONE),
    ]  # fmt: skip
    assert latest.results == [ONE, OTHER, orders[2], ONE]


def test_sinks_write_upserts() -> None:
    """As docs/tables.md shows."""
    change = removed(Total("ada", 1, 1))
    topic = KafkaSink[Change[Total]](
        "localhost:9092",
        "totals",
        key=lambda change: change.record.customer.encode(),
        value=lambda change: b"row" if change.kind.adds else None,
    )
    assert topic._encoder.message(change) == ("totals", None, {"key": b"ada"})
    PostgresSink[Change[Total]](
        "host=localhost", "totals", ["customer", "cents", "greatest"], row=lambda change: change.record,
        key=["customer"], deletes=lambda change: not change.kind.adds,
    )  # fmt: skip


def grouped(**parts: Any) -> Any:
    return table_of().group_by(attrgetter("customer")).aggregate(Total, **parts)


PARTS = {"customer": Key(), "cents": Sum("cents"), "greatest": Max("cents")}


def test_aggregates_take_rows_back() -> None:
    harness = one_input(grouped(**PARTS))
    big, nan = Order(2, "ada", 1e300), Order(3, "ada", NAN)
    for changes in ([added(Order(1, "ada", 0.1))], [added(big)], [removed(big)], [added(nan)], [removed(nan)]):
        harness.input.push(*changes)
        harness.restart()
    harness.input.push(removed(Order(1, "ada", 0.1)))
    totals = [change.record for change in harness.output.records if change.kind.adds]
    assert [total.cents for total in totals] == pytest.approx([0.1, 1e300, 0.1, NAN, 0.1], nan_ok=True, abs=0)
    assert harness.output.records[-1] == removed(Total("ada", 0.1, 0.1))
    assert harness.keys == []


def test_values_that_several_rows_have() -> None:
    harness = one_input(
        table_of()
        .group_by(attrgetter("customer"))
        .aggregate(Sums, customer=Key(), cents=Min("cents"), orders=CountDistinct("cents"))
    )
    rows = [Order(1, "ada", 3), Order(2, "ada", 3), Order(3, "ada", 1)]
    for change in (*map(added, rows), removed(rows[2]), removed(rows[0])):
        harness.input.push(change)
    found = [(change.record.cents, change.record.orders) for change in harness.output.records if change.kind.adds]
    assert found == [(3, 1), (1, 2), (3, 1)]


def test_deletion_before_its_insertion_in_a_group() -> None:
    harness = one_input(grouped(**PARTS))
    harness.input.push(removed(ONE))
    harness.input.push(added(Order(2, "ada", 5)))
    assert harness.output.records == [], "as many rows were deleted as inserted"
    harness.input.push(added(ONE))
    assert harness.output.records == [added(Total("ada", 5, 5))]


def test_groups_need_their_key_and_aggregates_a_way_back() -> None:
    with pytest.raises(PlanError, match=r"aggregate at .*test_tables.py:\d+: Total has no field with the key"):
        grouped(customer=Max("customer"), cents=Sum("cents"), greatest=Max("cents"))
    for part in (First("cents"), ApproxCountDistinct("cents")):
        with pytest.raises(PlanError, match=r"test_tables.py:\d+: greatest=.* cannot follow updates and deletions"):
            grouped(customer=Key(), cents=Sum("cents"), greatest=part)


def test_join_follows_both_sides_once_per_batch() -> None:
    orders = table_of()
    joined = orders.join(
        orders.map(lambda row: row, key=attrgetter("customer")),
        lambda order, other: (order.number, other and other.cents),
        on=attrgetter("customer"),
        key=lambda row: row[0],
        join_type="left",
    )
    first, second = joined._node.inputs
    body: Any = joined._node.body
    harness: TwoInputNonBroadcastHarness[Any, Any, Any] = TwoInputNonBroadcastHarness(
        body, first_key=first.key_selector, second_key=second.key_selector
    )
    harness.first_input.push(added(ONE), added(Order(2, None, 1)))
    harness.second_input.push(added(Order(7, "ada", 8)))
    harness.restart()
    harness.second_input.push(removed(Order(7, "ada", 8)), added(Order(7, "ada", 9)))
    harness.first_input.push(removed(ONE))
    assert shown(harness.output.records) == [
        ("+I", (1, None)), ("+I", (2, None)), ("+I", (1, 8)), ("-D", (1, None)), ("-D", (1, 8)), ("+I", (1, 9)),
        ("-D", (1, 9)),
    ]  # fmt: skip


def suppressed(**options: Any) -> OneInputHarness[Any, Any]:
    return one_input(table_of().suppress(options.pop("after", ms(10)), **options))


def test_changes_are_held_back_and_cancel_each_other_out() -> None:
    harness = suppressed()
    harness.input.push(added(ONE), added(Order(2, "ada", 1)))
    harness.advance_clock(ms(9))
    harness.input.push(removed(ONE), added(OTHER), removed(Order(2, "ada", 1)))
    assert harness.output.records == []
    harness.restart()
    harness.advance_clock(ms(1))
    assert harness.output.records == [added(OTHER)]
    harness.input.push(removed(OTHER))
    harness.end()
    assert harness.output.records == [added(OTHER), removed(OTHER)]


def test_changes_are_held_back_until_the_end_of_a_micro_batch() -> None:
    harness = suppressed(after=ms(0))
    harness.input.push(added(ONE))
    harness.input.push(removed(ONE))
    harness.input.push(added(OTHER))
    assert harness.output.records == []
    harness.restart()
    assert harness.output.records == [added(OTHER)]


def test_changes_are_held_back_in_event_time() -> None:
    harness = suppressed(time_type="event")
    harness.input.push(added(ONE), timestamp=100)
    harness.input.push_event_time(109)
    assert harness.output.records == []
    harness.input.push_event_time(110)
    assert harness.output.records == [added(ONE)]


def test_changes_are_held_back_until_the_end() -> None:
    harness = suppressed(after=None)
    harness.input.push(added(ONE))
    harness.restart()
    harness.input.push(removed(ONE), added(OTHER))
    harness.advance_clock(timedelta(days=1000))
    assert harness.output.records == []
    harness.end()
    assert harness.output.records == [added(OTHER)]


def test_limit_of_held_rows() -> None:
    harness = suppressed(max_rows=1)
    two = Order(2, "ada", 1)
    harness.input.push(added(ONE))
    harness.restart()
    harness.input.push(added(two))
    assert harness.output.records == [added(two)]
    harness.advance_clock(ms(10))
    harness.input.push(removed(two))
    assert harness.output.records == [added(two), added(ONE)]


def test_invalid_arguments_name_the_line() -> None:
    table = table_of()
    bag = table.map(lambda row: row, key=no_key)
    anything: Any = table
    for call, message in (
        (lambda: anything.where("open"), "where .*predicate must be a callable"),
        (lambda: anything.map(len, key=None), "map .*key must be a callable .* or no_key"),
        (lambda: anything.join(bag, min, on=len, key=len), "join .*the other table has no key"),
        (lambda: anything.join(table_of(), min, on=len, key=len), "join .*different environments"),
        (lambda: anything.join(table, len, on=len, key=len), r"join .*function must be a callable \(left, right\)"),
        (lambda: anything.join([], min, on=len, key=len), "join .*takes another Table"),
        (lambda: bag.upserts(), "upserts .*requires a table with a primary key"),
        (lambda: bag.suppress(ms(1)), "suppress .*requires a table with a primary key"),
        (lambda: Table.from_upserts(table._through, no_key), "from_upserts .*Pass a key"),
        (lambda: anything.group_by(1), "group_by .*selector must be a callable"),
    ):
        with pytest.raises(PlanError, match=message) as refused:
            call()
        assert "test_tables.py:" in str(refused.value)
    for options in ({"max_rows": 0}, {"time_type": "wall"}):
        with pytest.raises(ConfigurationError):
            anything.suppress(ms(1), **options)
    with pytest.raises(ConfigurationError, match="join_type"):
        anything.join(table, min, on=len, key=len, join_type="outer")


class Sums(NamedTuple):
    """Another result."""

    customer: str
    cents: float
    orders: int


def run_totals(folder: Path, parallelism: int, build: Callable[[Table[Any, Any]], Any], **options: Any) -> list[Any]:
    env, sink = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[Any]()
    items = [added(ONE), added(Order(2, "ada", 4)), Stop(), removed(ONE), added(OTHER)]
    changes = env.from_source(TestSource[Any](items)).with_uid("in").with_parallelism(1)
    table = build(Table.from_changes(changes, number_of))
    table.with_uid("f").with_parallelism(parallelism)
    table.changes().to_sink(sink).with_uid("out")
    env.execute("totals", checkpoint_location=folder, **options)
    return sink.results


def totals(table: Table[Any, Any]) -> Any:
    return table.group_by(attrgetter("customer")).aggregate(Total, **PARTS)


def test_groups_move_to_other_subtasks(tmp_path: Path) -> None:
    assert run_totals(tmp_path, 1, totals)[-1] == Change(ChangeKind.UPDATE_AFTER, Total("ada", 7, 4))
    found = shown(run_totals(tmp_path, 3, totals))
    assert sorted(found) == [
        ("+I", Total("ben", 3, 3)), ("+U", Total("ada", 4, 4)), ("-U", Total("ada", 7, 4)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda table: table.group_by(lambda o: o.customer).aggregate(Total, **PARTS), "key selector of input 0"),
        (
            lambda table: table.group_by(attrgetter("customer")).aggregate(
                Sums, customer=Key(), cents=Sum("cents"), orders=Count()
            ),
            "the content of its state was .*greatest=Max.* and is now .*orders=Count",
        ),
    ],
)
def test_changed_declarations_are_refused(tmp_path: Path, build: Any, reason: str) -> None:
    run_totals(tmp_path, 1, totals)
    with pytest.raises(IncompatibleCheckpointError, match=reason):
        run_totals(tmp_path, 1, build)


def test_changed_join_type_is_refused(tmp_path: Path) -> None:
    def joined(join_type: Any) -> Callable[[Table[Any, Any]], Any]:
        return lambda table: table.join(
            table, lambda left, right: left, on=number_of, key=number_of, join_type=join_type
        )

    run_totals(tmp_path, 1, joined("inner"))
    with pytest.raises(IncompatibleCheckpointError, match="left rows of the inner join"):
        run_totals(tmp_path, 1, joined("left"))


@pytest.mark.parametrize("time_type", ["processing", "event"])
def test_held_rows_move_to_other_subtasks(tmp_path: Path, time_type: Any) -> None:
    def held(table: Table[Any, Any]) -> Any:
        return table.suppress(timedelta(days=1), time_type=time_type, max_rows=1)

    first = run_totals(tmp_path, 1, held)
    assert first == [added(Order(2, "ada", 4))], "there was no room for it"
    assert run_totals(tmp_path, 3, held) == [added(OTHER)]
