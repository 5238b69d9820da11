"""The state of a subtask as rows, and subtasks restored from them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from dsv2.errors import CorruptDataError
from dsv2.extension.window import TimeType, WindowStrategy
from dsv2.extension.window.process_functions import windowed
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state import row_loader
from dsv2.runtime.state.row_routing import RowRouter
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.sinks import CollectSink
from dsv2.state import RedistributionStrategy, StateDeclarations, StateTtl
from tests.durations import ms
from tests.support import Driver, KeptEntries, local_environment, operator_named
from tests.windows import StatefulWindowRecorder, WindowDriver, WindowRecorder

COUNT = StateDeclarations.value_state("count", int, default=0)
RECENT = StateDeclarations.list_state("recent", int, ttl=StateTtl(ms(10)))
SPLIT = StateDeclarations.list_state_builder("split", int).redistribute_by(RedistributionStrategy.SPLIT).build()


class Remembering(OneInputStreamProcessFunction[int, Any]):
    """Has state of every kind. A key of nine is only seen."""

    def __init__(self) -> None:
        self.seen = 0

    def uses_states(self) -> Any:
        return [COUNT, RECENT, SPLIT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.seen += 1
        ctx.metric_group.counter("records").inc()
        states = ctx.state_manager
        states.get_state(SPLIT).add(record)
        if record != 9:
            states.get_state(COUNT).update(states.get_state(COUNT).value() + 1)
            states.get_state(RECENT).add(record)
            ctx.processing_time_manager.register_timer(record)
        output.collect((record, states.get_state(COUNT).value(), states.get_state(RECENT).get(), self.seen))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("timer", ctx.state_manager.current_key, timestamp))


def driver(in_map: bool = False) -> Driver:
    env = local_environment()
    stream = env.from_collection(list[int](), "in").key_by(abs)
    stream.process(Remembering()).with_uid("f").to_sink(CollectSink()).with_uid("out")
    return Driver(env.build_plan(), "f", entries=KeptEntries() if in_map else None)


@pytest.fixture(params=[row_loader._ROWS_BETWEEN_SNAPSHOTS, 3], ids=["at once", "in pieces"], autouse=True)
def rows_between_snapshots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored pages are written in between if there are many rows."""
    monkeypatch.setattr(row_loader, "_ROWS_BETWEEN_SNAPSHOTS", request.param)


@pytest.mark.parametrize("in_map", [False, True])
@pytest.mark.parametrize("in_order", [True, False])
def test_subtask_continues_from_its_rows(in_map: bool, in_order: bool) -> None:
    restarted, steady = driver(in_map).open(), driver(in_map).open()
    for each in (restarted, steady):
        each.send(*range(1, 100))
    rows = restarted.rows()
    assert {row.kind for _, row in rows} == set(RowKind) - {
        RowKind.ENTRY,
        RowKind.PANE,
        RowKind.IN_PANE,
        RowKind.REPLAY,
    }
    restarted.restart_from(rows if in_order else reversed(rows))
    assert sorted(restarted.rows()) == sorted(rows)
    for each in (restarted, steady):
        each.send(5, 9, 200)
        each.pass_time(50)
        each.send(3)
    assert restarted.sent_to("out") == steady.sent_to("out")
    assert replace(restarted.progress("f"), user_ns=0) == replace(steady.progress("f"), user_ns=0)


STRATEGIES = {
    "tumbling": WindowStrategy.tumbling(ms(10), TimeType.EVENT).with_allowed_lateness(ms(20)),
    "sliding": WindowStrategy.sliding(ms(20), ms(5)),
    "session": WindowStrategy.session(ms(2)),
    "early": WindowStrategy.tumbling(ms(10)).with_early_firing(ms(3), TimeType.EVENT),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_windows_continue_from_their_rows(strategy: str) -> None:
    function = WindowRecorder if strategy == "session" else StatefulWindowRecorder  # sessions have no states
    restarted, steady = (WindowDriver(windowed(STRATEGIES[strategy], function())) for _ in range(2))
    for time in range(0, 60, 3):
        for each in (restarted, steady):
            each.records([f"{letter}{time}" for letter in "abc"], [time, time + 1, time - 5 if time > 5 else time])
            each.event_time(time - 2)
        restarted.restart_from_rows()
    for each in (restarted, steady):
        each.end()
    assert Counter(restarted.stamped()) == Counter(steady.stamped())  # keys of a window may fire in another order
    assert len(steady.stamped()) > 10


def test_rows_of_undeclared_states_are_dropped() -> None:
    subtask = driver().open()
    subtask.send(1)
    rows = subtask.rows()
    subtask.restart_from([*rows, *(("f", row._replace(state="gone")) for _, row in rows if row.kind is RowKind.KEYED)])
    assert sorted(subtask.rows()) == sorted(rows)


def test_operator_without_rows_is_opened() -> None:
    subtask = driver()
    subtask.restart_from([])
    subtask.send(1)
    assert subtask.sent_to("out") == [*driver().open().sent_to("out"), (1, 1, [1], 1)]


def test_row_without_value_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="f, subtask 0: a row has no value"):
        driver().restart_from([("f", StateRow(0, RowKind.PART, "fields", None, None))])
    with pytest.raises(CorruptDataError, match=r"f'.*, subtask 0: a row has no value"):
        driver().restart_from([("f", StateRow(0, RowKind.KEYED, "count", None, None))])


def test_row_without_key_is_refused() -> None:
    env = local_environment()
    env.from_collection([1]).key_by(abs).process(Remembering()).with_uid("f").to_sink(CollectSink())
    router = RowRouter(operator_named(env.build_plan(), "f"), Codec(TypeRegistry()))
    with pytest.raises(CorruptDataError, match=r"Keyed state of KeyedProcess \(uid 'f'\), .*: a row has no key"):
        router.subtasks_of(0, RowKind.KEYED, None)
    assert router.subtasks_of(0, RowKind.PART, None) == range(1)
