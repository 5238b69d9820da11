"""Functions on tables with keyed state: savepoints shared with functions on single records, rescaling, and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import make_dataclass
from datetime import timedelta
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.arrow import ArrowCollector, ArrowContext, ArrowProcessFunction, schema_of
from dsv2.errors import (
    ConfigurationError,
    ContractError,
    IncompatibleCheckpointError,
    SchemaError,
    StateDeclarationError,
    UserFunctionError,
)
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl
from dsv2.testing import ManualClock, OneInputHarness, Stop, TestSource
from tests.durations import ms
from tests.support import Driver, KeptEntries


class Sale(NamedTuple):
    """Input."""

    product: str
    amount: int


class Sold(NamedTuple):
    """The state, and part of the output."""

    sold: int
    largest: int


class Report(NamedTuple):
    """Output."""

    product: str
    sold: int
    largest: int


SOLD = StateDeclarations.value_state("sold", Sold)
SALES = [Sale(f"product {number * 7 % 11}", number * 13 % 50) for number in range(300)]


class OfRecords(OneInputStreamProcessFunction[Sale, Report]):
    """Sums, record by record."""

    def __init__(self, state: Any = SOLD) -> None:
        self.state = state

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.state]

    def process_record(self, record: Sale, output: Any, ctx: Any) -> None:
        state = ctx.state_manager.get_state(self.state)
        before = state.value() or Sold(0, 0)
        after = Sold(before.sold + 1, max(before.largest, record.amount))
        state.update(after)
        ctx.processing_time_manager.register_timer(1000)
        output.collect(Report(record.product, *after))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(Report(ctx.state_manager.current_key, -1, timestamp))


class OfTables(ArrowProcessFunction[Sale, Report]):
    """The same on tables."""

    def __init__(self, state: Any = SOLD) -> None:
        self.state = state

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.state]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Report], ctx: ArrowContext[Report]) -> None:
        added = {"sold": pa.array([1] * batch.num_rows), "largest": batch["amount"]}
        how = {"sold": "sum", "largest": "max"}
        after = ctx.keyed_state(self.state).accumulate(batch["product"], added, how)
        ctx.processing_timers.register(batch["product"], 1000)
        output.collect_batch(pa.table([batch["product"], *after.columns], schema_of(Report)))

    def on_processing_timers(self, timers: pa.Table, output: ArrowCollector[Report], ctx: ArrowContext[Report]) -> None:
        count = pa.array([-1] * timers.num_rows)
        output.collect_batch(pa.table([timers["product"], count, timers["timestamp"]], schema_of(Report)))


def run(
    function: Any, *, start: Path | None = None, stop: int | None = None, parallelism: int = 2
) -> tuple[list[Report], Any]:
    """Run until ``stop`` records have been read."""
    items = SALES if stop is None else [*SALES[:stop], Stop(), *SALES[stop:]]
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[7], clock=ManualClock()))
    sink = CollectSink[Any]()
    stream: Any = env.from_source(TestSource[Any](items), "in").with_uid("in")
    keyed = stream.key_by(attrgetter("product"))
    keyed.process(function).with_uid("f").with_parallelism(parallelism).to_sink(sink).with_uid("out")
    job = env.execute_async("sales", savepoint=start)
    job.await_termination()
    return sink.results, job


@pytest.mark.parametrize("state", [SOLD, StateDeclarations.value_state("sold", Sold, ttl=StateTtl(timedelta(days=1)))])
def test_savepoint_moves_state_between_functions_on_records_and_on_tables(tmp_path: Path, state: Any) -> None:
    expected, _ = run(OfRecords(state))
    found: list[Report] = []
    start = None
    parts: Any = [(OfTables, 2), (OfTables, 3), (OfRecords, 1), (OfTables, 2), (OfRecords, 3)]
    for number, (kind, parallelism) in enumerate(parts):
        stop = None if number == 4 else 50 * (number + 1)
        results, job = run(kind(state), start=start, stop=stop, parallelism=parallelism)
        found += results
        if number < 4:
            start = tmp_path / str(number)
            job.savepoint(start)
    assert Counter(found) == Counter(expected)


def test_savepoint_shows_state_of_tables_like_that_of_records(tmp_path: Path) -> None:
    shown = []
    for kind in (OfRecords, OfTables):
        _, job = run(kind(), stop=100)
        path = job.savepoint(tmp_path / kind.__name__)
        rows = Savepoint.open(path).state("f", "sold").to_arrow().to_pylist()
        shown.append(sorted((row["key"], row["value"]["sold"], row["value"]["largest"]) for row in rows))
    assert shown[0] == shown[1]
    assert len(shown[0]) == 11


def harness(function: Any, **options: Any) -> Any:
    return OneInputHarness(function, key=attrgetter("product"), **options)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5)])
def test_state_moves_with_its_keys(before: int, after: int) -> None:
    from dsv2.runtime.state.key_groups import subtask_of

    products = [f"product {number}" for number in range(40)]

    def of(index: int, parallelism: int) -> list[str]:
        return [product for product in products if subtask_of(product, 128, parallelism) == index]

    snapshots = []
    for index in range(before):
        one = harness(OfTables(), parallelism=before, subtask=index)
        one.input.push(*(Sale(product, 5) for product in of(index, before)))
        snapshots.append(one.snapshot())
    for index in range(after):
        one = harness(OfTables(), parallelism=after, subtask=index, rescaled=snapshots)
        one.input.push(*(Sale(product, 3) for product in of(index, after)))
        assert sorted(one.output.records) == sorted(Report(product, 2, 5) for product in of(index, after))
        one.output.clear()
        one.advance_clock(ms(1000))
        assert sorted(one.output.records) == sorted(Report(product, -1, 1000) for product in of(index, after))


class Calls(ArrowProcessFunction[Sale, Report]):
    """Calls something with the state and the batch."""

    def __init__(self, call: Callable[[Any, Any, Any], object], state: Any = SOLD) -> None:
        self.call = call
        self.state = state

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.state]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Report], ctx: ArrowContext[Report]) -> None:
        self.call(ctx.keyed_state(self.state), batch, ctx)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda state, batch, ctx: state.get(pa.array(list("wxyz"))),
            ContractError,
            "belongs to another subtask",
        ),
        (lambda state, batch, ctx: state.get("a"), ContractError, "Keys are Arrow arrays or numpy arrays, not str"),
        (lambda state, batch, ctx: state.get([]), ContractError, "Keys are an array"),
        (lambda state, batch, ctx: state.update(batch["product"], {"sum": 1}), SchemaError, "has no field 'sum'"),
        (
            lambda state, batch, ctx: state.update(batch["product"], {"sold": "x"}),
            SchemaError,
            "'sold' of Sold, which is int64, contains a value that does",
        ),
        (
            lambda state, batch, ctx: state.update(batch["product"], {"sold": 1}),
            SchemaError,
            "'largest' of Sold",
        ),
        (
            lambda state, batch, ctx: state.update(batch["product"], {"sold": pa.array([1, 2]), "largest": 1}),
            SchemaError,
            "has 2 rows, the keys 1",
        ),
        (
            lambda state, batch, ctx: state.aggregate(batch["product"], {"sold": 1}, {"sold": "mean"}),
            ConfigurationError,
            "cannot be aggregated with 'mean'",
        ),
        (
            lambda state, batch, ctx: state.aggregate(batch["product"], {"sold": 1}, {"largest": "sum"}),
            ConfigurationError,
            "differ",
        ),
        (
            lambda state, batch, ctx: [
                state.update(batch["product"], {"sold": 1 << 62, "largest": 0}),
                state.aggregate(batch["product"], {"sold": 1 << 62}, {"sold": "sum"}),
            ],
            SchemaError,
            "exceeds 64 bits",
        ),
        (lambda state, batch, ctx: ctx.event_timers.register(batch["product"], [None]), ContractError, "whole numbers"),
    ],
)
def test_wrong_use_is_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(UserFunctionError, match=f"{error.__name__}: .*{text}"):
        harness(Calls(call), parallelism=2, subtask=1).input.push(Sale("product 1", 1))


def test_array_of_keys_may_change_between_calls() -> None:
    found: list[Any] = []

    def call(state: Any, batch: pa.Table, ctx: Any) -> None:
        keys = np.array(["x", "y"])
        state.update(keys, {"sold": pa.array([10, 20]), "largest": 0})
        keys[:] = "y"
        found.append(state.get(keys)["sold"].to_pylist())

    harness(Calls(call)).input.push(Sale("a", 1))
    assert found == [[20, 20]]


def order(*fields: Any) -> Any:
    """A version of the class ``shop.Order``."""
    kind = make_dataclass("Order", fields)
    kind.__module__, kind.__qualname__ = "shop", "Order"
    return kind


def driver_of(kind: type, entries: KeptEntries | None, **options: Any) -> tuple[Driver, Any]:
    """A driver of a function whose state has values of ``kind``, and the state."""
    state: Any = StateDeclarations.value_state("orders", kind, **options)
    env = ExecutionEnvironment.get_instance("local")
    keyed = env.from_collection(list[Sale](), "in").key_by(attrgetter("product"))
    kept = keyed.process(Calls(lambda *_: None, state)).with_uid("keep").with_parallelism(1)
    kept.to_sink(CollectSink()).with_uid("out")
    return Driver(env.build_plan("job"), "keep", entries=entries), state


def state_in(driver: Driver, state: Any) -> Any:
    return driver.subtask.head.visit("a", lambda ctx: ctx.keyed_state(state))


@pytest.mark.parametrize("in_map", [False, True])
@pytest.mark.parametrize(
    ("after", "options", "expected"),
    [
        (order(("text", str), ("number", int)), {}, [{"text": "x", "number": 1}, {"text": "x", "number": 2}]),
        (order(("number", int), ("more", str, "new")), {},
         [{"number": 1, "more": "new"}, {"number": 2, "more": "new"}]),
        (order(("number", int)),
         {"version": 2, "migrate": lambda old, version: order(("number", int))(old.number * 10)},
         [{"number": 10}, {"number": 20}]),
    ],
)  # fmt: skip
def test_classes_of_values_may_change(in_map: bool, after: Any, options: Any, expected: Any) -> None:
    entries = KeptEntries() if in_map else None
    keys = pa.array(["a", "b"])
    driver, state = driver_of(order(("number", int), ("text", str)), entries)
    driver.open()
    state_in(driver, state).update(keys, {"number": pa.array([1, 2]), "text": "x"})
    blob = driver.subtask.snapshot()
    for _ in range(2):
        driver, state = driver_of(after, entries, **options)
        driver.subtask.restore(blob)
        assert state_in(driver, state).get(keys).to_pylist() == expected
        blob = driver.subtask.snapshot()


def test_state_of_other_kinds_is_refused_when_the_plan_is_built() -> None:
    with pytest.raises(StateDeclarationError, match="MapState 'map' cannot have columns"):
        harness(OfTables(StateDeclarations.map_state("map", str, int)))
    with pytest.raises(SchemaError, match="int has no columns"):
        harness(OfTables(StateDeclarations.value_state("number", int)))


def test_checkpoint_of_the_other_kind_of_function_is_refused() -> None:
    def of_same_name(kind: type) -> Any:
        return type("Same", (kind,), {"__module__": __name__})()

    for first, second, text in ((OfRecords, OfTables, "single records"), (OfTables, OfRecords, "tables")):
        one = harness(of_same_name(first))
        one.input.push(Sale("a", 1))
        with pytest.raises(IncompatibleCheckpointError, match=f"a function on {text}, .*Take a savepoint"):
            harness(of_same_name(second), snapshot=one.snapshot())


class Amounts(NamedTuple):
    """A state of decimals."""

    total: Decimal
    least: Decimal | None


AMOUNTS = StateDeclarations.value_state("amounts", Amounts, default=Amounts(Decimal(0), None))


def test_sums_of_decimals_are_exact() -> None:
    found: list[Any] = []
    large, small = Decimal("12345678901234567890.123456789012345678"), Decimal("0.000000000000000001")

    def call(state: Any, batch: pa.Table, ctx: Any) -> None:
        keys, how = pa.array(["a", "a", "b"]), {"total": "sum", "least": "min"}
        amounts = pa.array([large, small, small])
        state.aggregate(keys, {"total": amounts, "least": amounts}, how)
        found.extend(state.accumulate(keys, {"total": amounts}, {"total": "sum"})["total"].to_pylist())
        found.extend(state.get(keys)["least"].to_pylist())

    harness(Calls(call, AMOUNTS)).input.push(Sale("a", 1))
    twice = Decimal("24691357802469135780.246913578024691357")
    assert found == [twice, Decimal("24691357802469135780.246913578024691358"), 2 * small, small, small, small]


@pytest.mark.parametrize("how", ["aggregate", "accumulate"])
def test_sum_of_decimals_that_does_not_fit_is_refused(how: str) -> None:
    def call(state: Any, batch: pa.Table, ctx: Any) -> None:
        getattr(state, how)(batch["product"], {"total": Decimal("9e19")}, {"total": "sum"})

    own = harness(Calls(call, AMOUNTS))
    own.input.push(Sale("a", 1))
    with pytest.raises(
        UserFunctionError, match=r"SchemaError: A sum, which is decimal128.* contains a value that does not"
    ):
        own.input.push(Sale("a", 1))


class Shop(NamedTuple):
    """A record with two texts."""

    product: str
    shop: str
    amount: int


def keys_of(select: Callable[[pa.Table], Any], key: Any, parallelism: int) -> int:
    """Run a function that passes ``select(batch)`` as keys."""

    class OfShops(ArrowProcessFunction[Shop, Shop]):
        def uses_states(self) -> Collection[StateDeclaration]:
            return [SOLD]

        def process_batch(self, batch: pa.Table, output: ArrowCollector[Shop], ctx: ArrowContext[Shop]) -> None:
            ctx.keyed_state(SOLD).update(select(batch), {"sold": 1, "largest": 1})
            output.collect_batch(batch)

    env, sink = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[Shop]()
    env.set_parallelism(parallelism)
    shops = [Shop(f"p{number}", f"s{number % 5}", number) for number in range(50)]
    env.from_collection(shops).key_by(key).process(OfShops()).to_sink(sink)
    env.execute()
    return len(sink.results)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(
    ("key", "select", "said"),
    [
        ("product", lambda batch: batch["shop"], "the column 'shop' was passed as keys, but .* by 'product'"),
        ("product", lambda batch: batch["shop"].chunk(0), "the column 'shop' was passed"),
        ("product", lambda batch: batch["amount"], "a column of int64 instead of string was passed"),
        ("product", lambda batch: [batch["product"], batch["shop"]], "2 instead of 1 columns were passed"),
        ("shop", lambda batch: batch["product"], "the column 'product' was passed"),
        (
            ("product", "shop"),
            lambda batch: [batch["shop"], batch["product"]],
            "the column 'shop' was passed as keys, but .* by 'product', 'shop'",
        ),
        (("product", "shop"), lambda batch: batch["product"], "1 instead of 2 columns were passed"),
    ],
)
def test_columns_that_are_no_keys_are_refused(parallelism: int, key: Any, select: Any, said: str) -> None:
    names = (key,) if isinstance(key, str) else key
    with pytest.raises(UserFunctionError, match=f"ContractError: .*{said}"):
        keys_of(select, attrgetter(*names), parallelism)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_columns_that_are_keys_are_taken(parallelism: int) -> None:
    assert keys_of(lambda batch: batch["product"], attrgetter("product"), parallelism) == 50
    assert keys_of(lambda batch: batch.slice(1)["product"], attrgetter("product"), parallelism) == 50
    assert keys_of(lambda batch: batch["product"].dictionary_encode(), attrgetter("product"), parallelism) == 50
    by_both = attrgetter("shop", "product")
    assert keys_of(lambda batch: [batch["shop"], batch["product"]], by_both, parallelism) == 50
    assert keys_of(lambda batch: batch["shop"], lambda shop: shop.shop, parallelism) == 50
