"""List states of functions on tables: savepoints shared with functions on single records, and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.arrow import ArrowCollector, ArrowContext, ArrowProcessFunction, schema_of
from dsv2.errors import ContractError, SchemaError, UndeclaredStateError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl
from dsv2.testing import ManualClock, OneInputHarness, Stop, TestSource
from tests.durations import ms


class Sale(NamedTuple):
    """Input."""

    product: str
    amount: int


class Item(NamedTuple):
    """A row of the state."""

    amount: int
    text: str | None
    parts: list[int]


class Report(NamedTuple):
    """Output: the amounts that are kept for the product."""

    product: str
    amounts: list[int]


PLAIN = StateDeclarations.list_state("items", Item)
LIVED = StateDeclarations.list_state("items", Item, ttl=StateTtl(timedelta(days=1)))
SHORT = StateDeclarations.list_state("items", Item, ttl=StateTtl(timedelta(milliseconds=5)))
SALES = [Sale(f"product {number * 7 % 11}", number * 13 % 50) for number in range(200)]


def item(amount: int) -> Item:
    return Item(amount, None if amount % 3 else f"text {amount}", [amount] * (amount % 4))


class OfRecords(OneInputStreamProcessFunction[Sale, Report]):
    """Keeps the last sales of a product."""

    def __init__(self, state: Any = PLAIN) -> None:
        self.state = state

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.state]

    def process_record(self, record: Sale, output: Any, ctx: Any) -> None:
        state = ctx.state_manager.get_state(self.state)
        state.add(item(record.amount))
        if len(state.get()) > 5:
            state.update(state.get()[2:])
        output.collect(Report(record.product, [one.amount for one in state.get()]))


class OfTables(ArrowProcessFunction[Sale, Report]):
    """The same on tables, one row at a time."""

    def __init__(self, state: Any = PLAIN) -> None:
        self.state = state

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.state]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Report], ctx: ArrowContext[Report]) -> None:
        state = ctx.keyed_state(self.state)
        for place in range(len(batch)):
            row = batch.slice(place, 1)
            (amount,) = row["amount"].to_pylist()
            state.append(row["product"], pa.Table.from_pylist([item(amount)._asdict()], schema_of(Item)))
            found = state.get(row["product"])
            if len(found.rows) > 5:
                state.put(row["product"], found.rows.slice(2), found.of[2:])
                found = state.get(row["product"])
            output.collect(Report(row["product"][0].as_py(), found.rows["amount"].to_pylist()))


def run(function: Any, *, start: Path | None = None, stop: int | None = None, parallelism: int = 2) -> Any:
    items = SALES if stop is None else [*SALES[:stop], Stop(), *SALES[stop:]]
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[7], clock=ManualClock()))
    sink = CollectSink[Any]()
    stream: Any = env.from_source(TestSource[Any](items), "in").with_uid("in")
    keyed = stream.key_by(attrgetter("product"))
    keyed.process(function).with_uid("f").with_parallelism(parallelism).to_sink(sink).with_uid("out")
    job = env.execute_async("sales", savepoint=start)
    job.await_termination()
    return sink.results, job


def counted(reports: list[Report]) -> Counter[tuple[str, tuple[int, ...]]]:
    return Counter((product, tuple(amounts)) for product, amounts in reports)


@pytest.mark.parametrize("state", [PLAIN, LIVED])
def test_savepoint_moves_lists_between_functions_on_records_and_on_tables(tmp_path: Path, state: Any) -> None:
    expected, _ = run(OfRecords(state))
    found: list[Report] = []
    start = None
    parts: Any = [(OfTables, 2), (OfTables, 3), (OfRecords, 1), (OfTables, 2), (OfRecords, 3)]
    for number, (kind, parallelism) in enumerate(parts):
        stop = None if number == 4 else 35 * (number + 1)
        results, job = run(kind(state), start=start, stop=stop, parallelism=parallelism)
        found += results
        if number < 4:
            start = tmp_path / str(number)
            job.savepoint(start)
    assert counted(found) == counted(expected)


def test_savepoint_shows_lists_of_tables_like_those_of_records(tmp_path: Path) -> None:
    shown = []
    for kind in (OfRecords, OfTables):
        _, job = run(kind(), stop=100)
        path = job.savepoint(tmp_path / kind.__name__)
        shown.append(
            sorted(Savepoint.open(path).state("f", "items").to_arrow().to_pylist(), key=lambda row: row["key"])
        )
    assert shown[0] == shown[1]
    assert len(shown[0]) == 11


def harness(function: Any) -> Any:
    return OneInputHarness(function, key=attrgetter("product"))


def test_rows_expire_one_by_one() -> None:
    one = harness(OfTables(SHORT))
    for wait in (3, 3, 1, 9):
        one.input.push(Sale("a", wait))
        one.advance_clock(ms(wait))
    one.input.push(Sale("a", 0))
    assert [amounts for _, amounts in one.output.records] == [[3], [3, 3], [3, 1], [3, 1, 9], [0]]


class Calls(ArrowProcessFunction[Sale, Report]):
    """Calls something with the state and the batch."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def uses_states(self) -> Collection[StateDeclaration]:
        return [PLAIN]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Report], ctx: ArrowContext[Report]) -> None:
        self.call(ctx.keyed_state(PLAIN), batch, ctx)


ONE = pa.Table.from_pylist([item(1)._asdict()], schema_of(Item))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda state, batch, ctx: state.append(batch["product"], batch), SchemaError, "no column 'text'"),
        (lambda state, batch, ctx: state.append(batch["product"], ONE.slice(1)), ContractError, "0 rows .* of 1 keys"),
        (lambda state, batch, ctx: state.put(batch["product"], ONE, np.array([1])), ContractError, "from 0 to 0"),
        (lambda state, batch, ctx: state.put(batch["product"], ONE, np.array([0, 0])), ContractError, "of 1 rows"),
        (lambda state, batch, ctx: ctx.keyed_state(LIVED), UndeclaredStateError, "declared: ListState 'items'"),
    ],
)
def test_wrong_use_is_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(UserFunctionError, match=f"{error.__name__}: .*{text}"):
        harness(Calls(call)).input.push(Sale("a", 1))


def test_rows_of_no_keys() -> None:
    found: list[Any] = []

    def call(state: Any, batch: pa.Table, ctx: Any) -> None:
        nothing = batch["product"].slice(0, 0)
        state.append(nothing, ONE.slice(1))
        state.put(nothing, ONE.slice(1), np.zeros(0, np.int64))
        state.remove(nothing)
        rows = state.get(nothing)
        found.append((rows.count, len(rows.rows), len(rows.of), list(state.tables())))

    harness(Calls(call)).input.push(Sale("a", 1))
    assert found == [(0, 0, 0, [])]
