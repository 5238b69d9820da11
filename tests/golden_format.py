"""The parts of a checkpoint as bytes: a job's state, its program and the offsets of its sources.

``python -m tests.golden_format`` records them in ``tests/golden/format_VERSION.json``, once for each format version.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from dsv2 import ExecutionEnvironment
from dsv2.base.clock import Clock
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.program import ProgramDescription
from dsv2.extension.window import OneInputWindowStreamProcessFunction, TimeType, WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.runtime.serde.codec import FORMAT_VERSION
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.state import StateDeclaration, StateDeclarations
from runtime_spark.source.feeds import IndexedFeed, SplitFeed
from runtime_spark.source.frame_source import Planner, SparkOffset
from tests import ROOT
from tests.spans import Spans
from tests.support import Driver, KeptEntries, operator_named

GOLDEN = ROOT / "tests" / "golden"

Content = dict[str, Any]

COUNT = StateDeclarations.value_state("count", int, default=0)
SEEN = StateDeclarations.list_state("seen", str)
AMOUNTS = StateDeclarations.map_state("amounts", str, float)
LARGEST = StateDeclarations.reducing_state("largest", int, max)
BY_CLOCK = WindowStrategy.tumbling(timedelta(seconds=1), TimeType.PROCESSING)


@dataclass
class Note:
    """A user class, in a field."""

    text: str
    size: int | None


class Order(NamedTuple):
    """A record."""

    article: str
    number: int


class Keep(OneInputStreamProcessFunction[Order, Any]):
    """Keeps a value of each kind of state, and emits all of them."""

    def __init__(self) -> None:
        self.total = 0
        self.notes: dict[str, Note] = {}

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT, SEEN, AMOUNTS, LARGEST]

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        self.total += 1
        self.notes[record.article] = Note(record.article * 2, None if self.total % 2 else self.total)
        count, seen, amounts, largest = map(ctx.state_manager.get_state, self.uses_states())
        count.update(count.value() + 1)
        seen.add(f"{self.total}")
        amounts.put(record.article, record.number / 4)
        largest.add(record.number)
        ctx.processing_time_manager.register_timer(100 * self.total)
        kept = (count.value(), seen.get(), dict(amounts.items()), largest.get())
        output.collect((record, self.total, sorted(self.notes), kept))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((timestamp, ctx.state_manager.current_key))


class Sum(OneInputWindowStreamProcessFunction[Order, Any]):
    """Emits the numbers in a window."""

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect((ctx.state_manager.current_key, [order.number for order in window.get_all_records()]))


class After(NamedTuple):
    """Output of a job that continues from stored state."""

    kept: list[Any]
    windows: list[Any]


def article_of(order: Order) -> str:
    return order.article


def plan_of_job() -> Plan:
    """A source of each kind, keyed state with timers, and windows."""
    env = ExecutionEnvironment.get_instance("local")
    orders = env.from_source(CollectionSource(FIRST, records_per_batch=2), "orders").with_uid("orders")
    orders.key_by(article_of).process(Keep()).with_uid("keep").to_sink(CollectSink()).with_uid("kept")
    windows = orders.key_by(article_of).window(BY_CLOCK).process(Sum()).with_uid("windows")
    windows.to_sink(CollectSink()).with_uid("windowed")
    env.from_source(Spans({"x": 5, "y": 4}, limit=3), "spans").with_uid("spans").to_sink(CollectSink()).with_uid(
        "spanned"
    )
    return env.build_plan()


FIRST = [Order(article, number) for number, article in enumerate("bacbb")]
SECOND = [Order(article, number) for number, article in enumerate("cbd", start=10)]


def content() -> Content:
    """The bytes that the current code writes."""
    plan = plan_of_job()
    kept, windows, entries = _drivers(plan)
    for driver in (kept, windows):
        driver.open().send(*FIRST)
    states = {"keep": kept.subtask.snapshot(), "windows": windows.subtask.snapshot()}
    return {
        "states": {uid: state.hex() for uid, state in states.items()},
        "pages": [[name, number, data.hex()] for (name, number), data in sorted(entries.kept.items())],
        "program": recorded_program(plan),
        "offsets": {uid: _offsets(planner) for uid, planner in planners(plan).items()},
    }


def recorded_program(plan: Plan) -> Content:
    """The description of a program, with paths in this repository."""
    found: Content = json.loads(msgspec.json.encode(describe(plan)).decode().replace(f"{ROOT}/", ""))
    return found


def program_in(recorded: Content) -> ProgramDescription:
    """The program of a recording."""
    return msgspec.convert(recorded["program"], ProgramDescription)


def comparable(program: Content) -> Content:
    """The description without the parts that depend on the Python version and on line numbers."""
    plain = re.sub(r'"(python|digest|defined_at)": "[^"]*"', r'"\1": "..."', json.dumps(program))
    found: Content = json.loads(plain)
    return found


def after_restart(recorded: Content) -> After:
    """The job's output for further records, and as time passes, when it continues from ``recorded``."""
    kept, windows, entries = _drivers(plan_of_job())
    entries.kept = {(name, number): bytes.fromhex(data) for name, number, data in recorded["pages"]}
    for uid, driver in (("keep", kept), ("windows", windows)):
        driver.subtask.restore(bytes.fromhex(recorded["states"][uid]))
        driver.send(*SECOND)
        driver.pass_time(5000)
    return After(kept.sent_to("kept"), windows.sent_to("windowed"))


def planners(plan: Plan) -> dict[str, Planner]:
    """The planners of micro-batches, by the uid of the source."""
    orders, spans = operator_named(plan, "orders"), operator_named(plan, "spans")
    assert isinstance(orders.body, CollectionSource)
    assert isinstance(spans.body, Spans)
    clock = _StandingClock()
    return {
        "orders": IndexedFeed(orders.body).planner(orders, clock),
        "spans": SplitFeed(spans.body).planner(spans, clock),
    }


def _offsets(planner: Planner) -> list[SparkOffset]:
    """All offsets of a run that reaches its end."""
    found = [planner.initial()]
    while len(found) < 2 or found[-1] != found[-2]:
        found.append(json.loads(json.dumps(planner.latest(found[-1], only_available=False))))
    return found[:-1]


def _drivers(plan: Plan) -> tuple[Driver, Driver, KeptEntries]:
    """Both functions. The first one keeps its pages in map entries."""
    entries = KeptEntries()
    return Driver(plan, "keep", entries=entries), Driver(plan, "windows"), entries


class _StandingClock(Clock):
    def now_ms(self) -> int:
        return 1_000_000

    def wait(self, duration: timedelta) -> None:
        """Nothing waits."""


def record() -> None:
    """Write the file of this format version, which must not exist."""
    with (GOLDEN / f"format_{FORMAT_VERSION}.json").open("x") as file:
        json.dump(content(), file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    from tests import golden_format  # classes are stored under the name of their module, which must not be __main__

    golden_format.record()
