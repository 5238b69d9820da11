"""Keyed state in columns as bytes: states, panes and timers in blobs and in pages, and the program of their job.

``python -m tests.golden_columns`` records them in ``tests/golden/columns_VERSION.json``, once for each format version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, First, Key, Max, Mean, Sum
from dsv2.arrow import ArrowCollector, ArrowContext, ArrowEventTimeProcessFunction, schema_of
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.graph import Plan
from dsv2.runtime.serde.codec import FORMAT_VERSION
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl
from tests.durations import ms
from tests.golden_format import GOLDEN, Content, recorded_program
from tests.support import Driver, KeptEntries

FILE = GOLDEN / f"columns_{FORMAT_VERSION}.json"


class Order(NamedTuple):
    """A record."""

    article: str
    shop: int
    time: int
    amount: int
    price: float | None


class Seen(NamedTuple):
    """A value with a column of each type."""

    is_large: bool
    small: int
    large: int
    price: float | None
    text: str
    data: bytes | None
    day: date
    at: datetime
    cost: Decimal
    numbers: list[int]
    texts: list[str] | None


class Lately(NamedTuple):
    """A value that expires."""

    amount: int


class Running(NamedTuple):
    """Running aggregates by article and shop."""

    article: str
    shop: int
    orders: int
    mean: float
    first: float | None


class Window(NamedTuple):
    """Aggregates of a shop in a window."""

    shop: int
    amount: int
    mean: float
    price: float | None


class Report(NamedTuple):
    """The state of an article, as a function reports it."""

    article: str
    what: str
    number: int | None


SEEN = StateDeclarations.value_state("seen", Seen)
LATELY = StateDeclarations.value_state("lately", Lately, ttl=StateTtl(timedelta(seconds=5)))
FIRST = [
    Order("tea", 1, 10, 3, 0.5),
    Order("milk", -(1 << 40), 25, 1 << 50, None),
    Order("", 2, 40, -7, -0.0),
    Order("tea", 2, 55, 300, None),
    Order("käse", 1, 60, 70_000, 1e300),
]
MANY = [Order(f"article {number}", 1, 5, number * number, None) for number in range(1000)]
SECOND = [Order("tea", 1, 75, 1, 0.25), Order("milk", 2, 130, 2, None), Order("new", 1, 210, 5, 2.0)]


class Keep(ArrowEventTimeProcessFunction[Order, Report]):
    """Keeps a column of each type and timers. Emits what it knew, and keys whose timers fire."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [SEEN, LATELY]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Report], ctx: ArrowContext[Report]) -> None:
        seen, lately, keys = ctx.keyed_state(SEEN), ctx.keyed_state(LATELY), batch["article"]
        known, sums = seen.get(keys).to_pylist(), lately.get(keys)["amount"].to_pylist()
        for article, value, amount in zip(keys.to_pylist(), known, sums, strict=True):
            output.collect(Report(article, repr(list(value.values())), amount))
        values = pa.Table.from_pylist([_seen(order)._asdict() for order in batch.to_pylist()], schema_of(Seen))
        seen.update(keys, values)
        lately.aggregate(keys, {"amount": batch["amount"]}, {"amount": "sum"})
        ctx.event_timers.register(keys, pa.array([time + 100 for time in batch["time"].to_pylist()]))
        ctx.processing_timers.register(keys, 1000)

    def on_event_timers(self, timers: pa.Table, output: ArrowCollector[Report], ctx: ArrowContext[Report]) -> None:
        self._report("event", timers, output)

    def on_processing_timers(self, timers: pa.Table, output: ArrowCollector[Report], ctx: ArrowContext[Report]) -> None:
        self._report("processing", timers, output)

    def _report(self, what: str, timers: pa.Table, output: ArrowCollector[Report]) -> None:
        for timer in timers.to_pylist():
            output.collect(Report(timer["article"], what, timer["timestamp"]))


def _seen(order: dict[str, Any]) -> Seen:
    amount, article = order["amount"], order["article"]
    return Seen(
        amount > 100,
        amount % 10,
        amount * 1000,
        order["price"],
        article * 2,
        None if amount < 0 else article.encode(),
        date(1969, 12, 30) + timedelta(days=amount % 5),
        datetime(2024, 1, 1) + timedelta(microseconds=amount % 1000),
        Decimal(amount % 1000) / 8,
        list(range(amount % 4)),
        None if amount % 2 else [article, "ß"],
    )


class After(NamedTuple):
    """Output of a job that continues from stored state."""

    kept: list[Any]
    in_blob: list[Any]
    running: list[Any]
    windows: list[Any]


def plan_of_job() -> Plan:
    """States of all types, running aggregates, and windows. Keys are texts, pairs and numbers."""
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(1)
    orders = env.from_collection(FIRST, "orders").with_uid("orders")
    times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).per_event_watermark()

    def timed(uid: str) -> Any:
        return orders.process(times.build_as_process_function()).with_uid(f"times of {uid}")

    kept = timed("keep").key_by(attrgetter("article")).process(Keep()).with_uid("keep")
    running = orders.key_by(attrgetter("article", "shop")).aggregate(
        Running, article=Key(0), shop=Key(1), orders=Count(), mean=Mean("amount"), first=First("price")
    )
    tens = timed("windows").key_by(attrgetter("shop")).window(WindowStrategy.tumbling(ms(100)))
    windows = tens.aggregate(Window, shop=Key(), amount=Sum("amount"), mean=Mean("amount"), price=Max("price"))
    for uid, stream in (("keep", kept), ("running", running.with_uid("running")), ("windows", windows)):
        stream.with_uid(uid).to_sink(CollectSink()).with_uid(f"{uid} out")
    return env.build_plan()


def content() -> Content:
    """The bytes that the current code writes."""
    plan = plan_of_job()
    drivers, entries = _drivers(plan)
    for driver in drivers.values():
        _send(driver.open(), FIRST)
    states = {name: driver.subtask.snapshot().hex() for name, driver in drivers.items()}
    many = KeptEntries()
    driver = Driver(plan, "times of keep", entries=many).open()
    _send(driver, MANY)
    driver.subtask.snapshot()
    return {
        "states": states,
        "digests of many pages": [[name, number, _digest(data)] for (name, number), data in sorted(many.kept.items())],
        "pages": [[name, number, data.hex()] for (name, number), data in sorted(entries.kept.items())],
        "program": recorded_program(plan),
    }


def after_restart(recorded: Content) -> After:
    """The job's output for further records, and as time passes, when it continues from ``recorded``."""
    drivers, entries = _drivers(plan_of_job())
    entries.kept = {(name, number): bytes.fromhex(data) for name, number, data in recorded["pages"]}
    for name, driver in drivers.items():
        driver.subtask.restore(bytes.fromhex(recorded["states"][name]))
        _send(driver, SECOND)
        driver.pass_time(5000)
    uids = ("keep", "keep", "running", "windows")
    return After(*(driver.sent_to(f"{uid} out") for uid, driver in zip(uids, drivers.values(), strict=True)))


def _send(driver: Driver, orders: Sequence[Order]) -> None:
    driver.send(*orders)
    driver.subtask.complete()
    driver.subtask.flush()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _drivers(plan: Plan) -> tuple[dict[str, Driver], KeptEntries]:
    """The functions. The first one keeps its pages in map entries."""
    entries = KeptEntries()
    drivers = {
        "keep": Driver(plan, "times of keep", entries=entries),
        "keep in blob": Driver(plan, "times of keep"),
        "running": Driver(plan, "running"),
        "windows": Driver(plan, "times of windows"),
    }
    return drivers, entries


def record() -> None:
    """Write the file of this format version, which must not exist."""
    with FILE.open("x") as file:
        json.dump(content(), file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    from tests import golden_columns  # classes are stored under the name of their module, which must not be __main__

    golden_columns.record()
