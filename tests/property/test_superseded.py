"""Values of watermarks that are not sent: what functions receive is the same as if all were sent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import (
    Collector,
    ExecutionEnvironment,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    TwoInputBroadcastStreamProcessFunction,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.graph import builder
from dsv2.graph.plan import Plan
from dsv2.local import LocalRuntime
from dsv2.runtime.exchange.control_log import STATUS, WATERMARK, Control, ControlLog
from dsv2.sinks import CollectSink
from dsv2.streams import WaitForBroadcast
from tests.profiles import examples

A = new_builder("a").type_long().combine_function_max().build()
B = new_builder("b").type_long().combine_function_min().combine_wait_for_all_channels(True).build()
ALIGNED = new_builder("aligned").type_long().combine_wait_for_all_channels(True).aligned().build()
LOCAL = new_builder("local").type_long().default_handling_strategy_ignore().build()
DECLARATIONS: dict[str, WatermarkDeclaration] = {one.identifier: one for one in (A, B, ALIGNED, LOCAL)}

Item = tuple[str, int]
"""An identifier and a value: a watermark. No identifier: a record that is passed on."""


class Emit(OneInputStreamProcessFunction[tuple[Item, ...], Item]):
    """Emits the watermarks and records that its records consist of."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return DECLARATIONS.values()

    def process_record(self, record: tuple[Item, ...], output: Collector[Item], ctx: PartitionedContext[Item]) -> None:
        for identifier, value in record:
            if not identifier:
                output.collect((identifier, value))
            else:
                watermark: Any = DECLARATIONS[identifier].new_watermark(value)
                ctx.non_partitioned_context.watermark_manager.emit_watermark(watermark)


class Pass(OneInputStreamProcessFunction[Any, Any]):
    """Passes records on, and leaves watermarks to the framework."""

    def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(record)


class Watch(Pass):
    """Emits what it receives, with the identifiers that it holds back."""

    def __init__(self, polled: str) -> None:
        self.polled = polled

    def on_watermark(
        self, watermark: Watermark, output: Collector[Any], ctx: NonPartitionedContext[Any]
    ) -> WatermarkHandlingResult:
        output.collect((ctx.task_info.index_of_this_subtask, watermark.identifier, watermark.value))
        polls = watermark.identifier == self.polled
        return WatermarkHandlingResult.POLL if polls else WatermarkHandlingResult.PEEK


def build(
    env: ExecutionEnvironment, items: list[tuple[Item, ...]], watchers: Collection[int], polled: str
) -> list[CollectSink[Any]]:
    """Five operators in a row, each behind an exchange. ``watchers`` receive the watermark; the second has a branch."""
    stream: Any = env.from_collection(items).shuffle().process(Emit())
    sinks = [CollectSink[Any](), CollectSink[Any]()]
    for number in range(5):
        function = Watch(polled) if number in watchers else Pass()
        stream = stream.key_by(repr).process(function).with_uid(f"{number}")
        if number == 1:
            stream.shuffle().process(Pass()).with_uid("branch").to_sink(sinks[1])
    stream.to_sink(sinks[0])
    return sinks


def results(items: list[tuple[Item, ...]], watchers: Collection[int], polled: str) -> list[list[Any]]:
    """The records of each sink. With one subtask of each operator there is only one order in which they can arrive."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=1))
    sinks = build(env, items, watchers, polled)
    env.execute()
    return [sink.results for sink in sinks]


ITEM = st.tuples(st.sampled_from(["", *DECLARATIONS]), st.integers(0, 5))
ITEMS = st.lists(st.lists(ITEM, max_size=8).map(tuple), max_size=8)


@examples(15)
@given(ITEMS, st.sets(st.integers(0, 4), max_size=2), st.sampled_from(["", "a", "b"]))
def test_functions_receive_the_same(items: list[tuple[Item, ...]], watchers: set[int], polled: str) -> None:
    with patch.object(builder, "with_superseded", lambda operators, edges, declarations: edges):
        everything = results(items, watchers, polled)
    assert results(items, watchers, polled) == everything


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from((WATERMARK, WATERMARK, STATUS)),
            st.sampled_from("xyz"),
            st.integers(0, 9),
        )
    ),
    st.frozensets(st.sampled_from("xyz")),
)
def test_the_last_value_before_each_record_is_sent(controls: list[Control], last_only: frozenset[str]) -> None:
    controls.sort(key=lambda control: control[0])
    kept = ControlLog(last_only).without_superseded(controls)
    others = [control for control in controls if control[1] != WATERMARK or control[2] not in last_only]
    assert [control for control in kept if control in others] == others
    superseded = {(c[0], c[2]): c for c in controls if c[1] == WATERMARK and c[2] in last_only}
    assert sorted(c for c in kept if c not in others) == sorted(superseded.values())


def plan_of(*watchers: int) -> Plan:
    env = ExecutionEnvironment.get_instance("local")
    build(env, [], watchers, "")
    return env.build_plan()


@pytest.mark.parametrize(
    ("watchers", "of_last_only"),
    [
        ((), {"0": {"a", "b", "local"}, "1": {"a", "b", "local"}, "4": {"a", "b", "local"}}),
        ((0,), {"0": set(), "1": {"a", "b", "local"}, "branch": {"a", "b", "local"}}),
        ((2,), {"0": {"local"}, "1": {"local"}, "2": set(), "3": {"a", "b", "local"}, "branch": {"a", "b", "local"}}),
    ],
)
def test_what_nothing_behind_an_exchange_receives(watchers: tuple[int, ...], of_last_only: dict[str, set[str]]) -> None:
    plan = plan_of(*watchers)
    found = {plan.operators[edge.target].uid: set(edge.last_only) for edge in plan.edges}
    assert {uid: found[uid] for uid in of_last_only} == of_last_only


def test_all_values_reach_sinks_and_chains() -> None:
    """Test harnesses show what a function sends to a sink."""
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    stream = env.from_collection([(("", 1),)]).shuffle().process(Emit()).process(Pass())
    stream.to_sink(CollectSink()).with_parallelism(1)
    plan = env.build_plan()
    assert [edge.last_only for edge in plan.edges if edge.source] == [frozenset()] * 2


def test_each_input_counts_for_itself() -> None:
    """An overridden callback is recognized although it looks like the original, and so is a wait."""

    class Main(TwoInputBroadcastStreamProcessFunction[Any, Any, Any]):
        def process_record_from_non_broadcast_input(self, record: Any, output: Any, ctx: Any) -> None: ...

        def process_record_from_broadcast_input(self, record: Any, ctx: Any) -> None: ...

    class Wrapped(Main):
        def on_watermark_from_broadcast_input(
            self, watermark: Watermark, output: Collector[Any], ctx: NonPartitionedContext[Any]
        ) -> WatermarkHandlingResult:
            return WatermarkHandlingResult.PEEK

    # As functools.wraps does to a decorated method.
    Wrapped.on_watermark_from_broadcast_input.__module__ = Main.on_watermark_from_broadcast_input.__module__

    def last_only(function: Main, wait: WaitForBroadcast | None = None) -> list[set[str]]:
        env = ExecutionEnvironment.get_instance("local")
        env.set_parallelism(2)
        emitted = env.from_collection([(("", 1),)]).shuffle().process(Emit())
        rules = emitted.shuffle().process(Pass()).broadcast()
        main = emitted.shuffle().connect_and_process(rules, function, wait_for_broadcast=wait).with_uid("both")
        main.to_sink(CollectSink())
        plan = env.build_plan()
        (both,) = (operator.id for operator in plan.operators if operator.uid == "both")
        return [{*edge.last_only} for edge in plan.edges_into[both]]

    everything = {"a", "b", "local"}
    assert last_only(Main()) == [everything, everything]
    assert last_only(Wrapped()) == [everything, set()]
    assert last_only(Main(), WaitForBroadcast(B)) == [everything, set()]
