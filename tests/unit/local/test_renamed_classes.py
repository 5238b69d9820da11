"""A job continues with renamed classes of its keys and states, and with a converted state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.errors import IncompatibleCheckpointError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations

COUNT, PER_BATCH, ARTICLES = 120, 60, 40


class Sale(NamedTuple):
    article: str
    amount: int


@dataclass(frozen=True)
class Sku:
    name: str


@dataclass
class Stock:
    sold: int
    note: str = ""


@dataclass(frozen=True)
class Article:
    """``Sku`` in the later program."""

    name: str


@dataclass
class Inventory:
    """``Stock`` in the later program."""

    sold: float
    returned: int = 0


def sale(index: int) -> Sale:
    return Sale(f"article {index % ARTICLES}", index)


def unreadable_from_the_second_batch_on(index: int) -> Sale:
    if index >= PER_BATCH:
        raise OSError("not readable yet")
    return sale(index)


class Sell(OneInputStreamProcessFunction[Sale, Any]):
    """Emits its states of each key."""

    def __init__(self, stock: Any, last: StateDeclaration, new_stock: Callable[[], Any]) -> None:
        self.stock = stock
        self.last = last
        self.new_stock = new_stock

    def uses_states(self) -> list[StateDeclaration]:
        return [self.stock, self.last]

    def process_record(self, record: Sale, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        stock, last = map(ctx.state_manager.get_state, (self.stock, self.last))
        held = stock.value() or self.new_stock()
        held.sold += record.amount
        stock.update(held)
        output.collect((record.article, replace(held), last.value()))
        last.update(f"sale {record.amount}" if self.last.version > 1 else record.amount)


def as_text(amount: int, version: int) -> str:
    return f"{amount} from version {version}"


EARLIER = (Sku, Stock, StateDeclarations.value_state("last", int))
LATER = (Article, Inventory, StateDeclarations.value_state("last", str, version=2, migrate=as_text))


def run(checkpoint: Path, program: Any, read: Callable[[int], Sale], *, is_registered: bool) -> list[Any]:
    key_class, stock_class, last = program
    env = ExecutionEnvironment.get_instance(runtime="local")
    if is_registered:
        for kind, former in ((Article, "Sku"), (Inventory, "Stock")):
            env.register_type(kind, formerly=f"shop.{former}")
    sink = CollectSink[Any]()
    sales = (
        env.from_source(DataGeneratorSource(read, count=COUNT, records_per_batch=PER_BATCH))
        .with_uid("sales")
        .with_parallelism(1)
    )
    keyed = sales.key_by(lambda record: key_class(record.article), version=1)
    stock = StateDeclarations.value_state("stock", stock_class)
    keyed.process(Sell(stock, last, lambda: stock_class(0))).with_uid("sell").with_parallelism(2).to_sink(sink)
    env.execute("changed", checkpoint_location=checkpoint)
    return sink.results


def test_job_continues_with_renamed_classes_and_a_converted_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if they were defined in a module that no longer has them.
    for kind in (Sku, Stock):
        monkeypatch.setattr(kind, "__module__", "shop")
        monkeypatch.delitem(globals(), kind.__name__)
    with pytest.raises(UserFunctionError, match="not readable yet"):
        run(tmp_path, EARLIER, unreadable_from_the_second_batch_on, is_registered=False)
    with pytest.raises(IncompatibleCheckpointError) as refused:
        run(tmp_path, LATER, sale, is_registered=False)
    assert "state 'stock': its type was shop.Stock and is now" in str(refused.value)
    expected = []
    for index in range(PER_BATCH, COUNT):
        before = [amount for amount in range(index) if amount % ARTICLES == index % ARTICLES]
        last = f"{before[-1]} from version 1" if before[-1] < PER_BATCH else f"sale {before[-1]}"
        expected.append((f"article {index % ARTICLES}", Inventory(sum(before) + index), last))
    results = run(tmp_path, LATER, sale, is_registered=True)
    assert sorted(results, key=repr) == sorted(expected, key=repr)
