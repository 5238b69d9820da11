"""States of the subtask, which need no current key: access that works, and access that is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2.errors import UserFunctionError
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.extension.window.process_functions import windowed
from dsv2.functions import TwoInputBroadcastStreamProcessFunction
from dsv2.state import (
    ListStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    StateDeclarations,
    StateTtl,
    ValueStateDeclaration,
    aggregate_of,
)
from dsv2.watermark import WatermarkHandlingResult, new_builder
from tests.durations import ms
from tests.support import ENDED, Driver, broadcast_side, driven, one_input, two_inputs, two_output, watermark

RULES = StateDeclarations.map_state_builder("rules", str, int).build_broadcast()
COPIED = ListStateDeclaration("copied", str, RedistributionMode.IDENTICAL)
SHARED = StateDeclarations.list_state_builder("shared", str).redistribute_by(RedistributionStrategy.SPLIT).build()
W = new_builder("w").type_long().build()


def itself(record: Any) -> Any:
    return record


class Ruled(TwoInputBroadcastStreamProcessFunction[str, str, Any]):
    """Each callback without a key adds an element to all three states. Records and watermarks emit the states."""

    def __init__(self) -> None:
        self.rules: Any = None  # a handle that open returned

    def uses_states(self) -> Any:
        return [RULES, COPIED, SHARED]

    def declare_watermarks(self) -> Any:
        return [W]

    def add(self, what: str, ctx: Any) -> None:
        self.rules.put(what, self.rules.get(what, 0) + 1)
        assert ctx.state_manager.get_state(RULES).get(what) == self.rules.get(what)
        ctx.state_manager.get_state(COPIED).add(what)
        ctx.state_manager.get_state(SHARED).add(what)

    def emit_states(self, output: Any, ctx: Any) -> None:
        states = ctx.state_manager
        assert states.get_state(COPIED).get() == states.get_state(SHARED).get()
        output.collect((states.get_state(RULES).items(), states.get_state(COPIED).get()))

    def open(self, ctx: Any) -> None:
        self.rules = ctx.state_manager.get_state(RULES)
        self.add("open", ctx)

    def process_record_from_non_broadcast_input(self, record: str, output: Any, ctx: Any) -> None:
        self.emit_states(output, ctx)

    def process_record_from_broadcast_input(self, record: str, ctx: Any) -> None:
        self.add(record, ctx)

    def on_watermark_from_broadcast_input(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        self.add("watermark", ctx)
        self.emit_states(output, ctx)
        return WatermarkHandlingResult.POLL

    def end_non_broadcast_input(self, ctx: Any) -> None:
        self.add("end", ctx)

    def end_broadcast_input(self, ctx: Any) -> None:
        self.add("end", ctx)


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarting"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "non-keyed"])
def test_callbacks_without_a_key_may_use_them(keyed: bool, restart: bool) -> None:
    """Flink gives access through partitions only, so broadcasts before the first key are lost there."""
    driver = driven(
        lambda stream: (
            (stream.key_by(itself) if keyed else stream.shuffle())
            .connect_and_process(stream.broadcast(), Ruled())
            .with_uid("f")
        )
    )
    for channel, element in [(1, "a"), (1, "b"), (1, watermark(1)), (1, "a"), (1, ENDED), (0, "key"), (0, ENDED)]:
        if restart:
            driver.restart()
        driver.send(element, channel=channel)
    assert driver.sent_to("out") == [
        ([("open", 1), ("a", 1), ("b", 1), ("watermark", 1)], ["open", "a", "b", "watermark"]),
        (
            [("open", 1), ("a", 2), ("b", 1), ("watermark", 1), ("end", 1)],
            ["open", "a", "b", "watermark", "a", "end"],
        ),
        ENDED,
    ]


def test_partitions_see_the_same_state() -> None:
    handles: list[Any] = []

    def on_rule(record: Any, ctx: Any) -> None:
        handles.append(ctx.state_manager.get_state(RULES))
        ctx.apply_to_all_partitions(
            lambda output, partition: handles.extend(
                [
                    partition.state_manager.get_state(RULES),
                    partition.non_partitioned_context.state_manager.get_state(RULES),
                ]
            )
        )

    function = broadcast_side(uses_states=lambda: [RULES], process_record_from_broadcast_input=on_rule)
    driver = driven(lambda s: s.key_by(itself).connect_and_process(s.broadcast(), function).with_uid("f"))
    driver.send("key")
    driver.send("rule", channel=1)
    assert len(handles) == 3
    assert handles[0] is handles[1] is handles[2]


def add_end(ctx: Any) -> None:
    ctx.state_manager.get_state(SHARED).add("end")


def emit_shared(*args: Any) -> None:
    *outputs, ctx = args
    outputs[-1].collect(ctx.state_manager.get_state(SHARED).get())


def end(ctx: Any) -> None:
    add_end(ctx)
    ctx.apply_to_all_partitions(emit_shared)


KINDS: dict[str, Callable[[Any], Any]] = {
    "one input": lambda s: s.process(one_input(uses_states=lambda: [SHARED], end_input=end)),
    "two outputs": lambda s: s.process(two_output(uses_states=lambda: [SHARED], end_input=end)).second,
    "two inputs": lambda s: s.connect_and_process(
        s, two_inputs(uses_states=lambda: [SHARED], end_first_input=add_end, end_second_input=end)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "non-keyed"])
def test_functions_of_all_kinds_have_them(kind: str, keyed: bool) -> None:
    def build(stream: Any) -> Any:
        handle = KINDS[kind](stream.key_by(itself) if keyed else stream.shuffle())
        return handle.with_uid("f")

    driver = driven(build)
    driver.send("key", ENDED)
    ends = ["end"]
    if kind == "two inputs":
        driver.send(ENDED, channel=1)
        ends = ["end", "end"]
    assert driver.sent_to("out") == [ends, ENDED]


class Windowed(OneInputWindowStreamProcessFunction[str, list[str]]):
    """Emits a state of the subtask when a window fires."""

    def uses_states(self) -> Any:
        return [SHARED]

    def open(self, ctx: Any) -> None:
        ctx.state_manager.get_state(SHARED).add("open")

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(ctx.non_partitioned_context.state_manager.get_state(SHARED).get())


def test_window_functions_have_them() -> None:
    function = windowed(WindowStrategy.global_(), Windowed())
    driver = driven(lambda stream: stream.key_by(itself).process(function).with_uid("f"))
    driver.send("key", ENDED)
    assert driver.sent_to("out") == [["open"], ENDED]


KEYED = [
    ValueStateDeclaration("s", int),
    ListStateDeclaration("s", int),
    StateDeclarations.map_state("s", int, int),
    StateDeclarations.reducing_state("s", int, max),
    StateDeclarations.aggregating_state("s", int, aggregate_of(int, max, itself)),
    StateDeclarations.value_state("s", int, ttl=StateTtl(ms(1))),
]


def asking(declaration: Any, *declared: Any, ask: str = "get_state") -> Driver:
    """A function that accesses a state in a callback of the broadcast input."""

    def on_rule(record: Any, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("visited"))
        assert getattr(ctx.state_manager, ask)(declaration) is None

    function = broadcast_side(uses_states=lambda: declared, process_record_from_broadcast_input=on_rule)
    return driven(lambda s: s.key_by(itself).connect_and_process(s.broadcast(), function).with_uid("f"))


def failure_of(driver: Driver) -> UserFunctionError:
    with pytest.raises(UserFunctionError) as failed:
        driver.send("rule", channel=1)
    return failed.value


@pytest.mark.parametrize("ask", ["get_state", "get_state_optional"])
@pytest.mark.parametrize("declaration", KEYED, ids=str)
def test_keyed_state_is_refused(declaration: Any, ask: str) -> None:
    failed = failure_of(asking(declaration, declaration, ask=ask))
    assert (failed.cause_type, failed.callback, failed.record) == (
        "ContractError",
        "process_record_from_broadcast_input",
        "'rule'",
    )
    assert failed.cause_message == (
        f"{declaration} belongs to a key, but a NonPartitionedContext only has states of the subtask. Use "
        f"ctx.apply_to_all_partitions."
    )


@pytest.mark.parametrize("ask", ["get_state", "get_state_optional"])
def test_keyed_state_is_refused_even_with_a_current_key(ask: str) -> None:
    def process(record: Any, output: Any, ctx: Any) -> None:
        getattr(ctx.non_partitioned_context.state_manager, ask)(KEYED[0])

    function = one_input(uses_states=lambda: [KEYED[0]], process_record=process)
    driver = driven(lambda stream: stream.key_by(itself).process(function).with_uid("f"))
    with pytest.raises(UserFunctionError, match="belongs to a key"):
        driver.send("key")


def test_undeclared_state_is_refused() -> None:
    failed = failure_of(asking(RULES, SHARED))
    assert failed.cause_type == "UndeclaredStateError"
    assert failed.cause_message.startswith("BroadcastState 'rules' is not declared (declared: ListState 'shared')")
    assert failure_of(asking("rules", RULES)).cause_message.startswith(
        "get_state requires the declaration of the state"
    )


def test_get_state_optional_returns_declared_states_only() -> None:
    driver = asking(RULES, SHARED, ask="get_state_optional")
    driver.send("key")
    driver.send("rule", channel=1)
    assert driver.sent_to("out") == ["visited"]
    failed = failure_of(asking(RULES, RULES, ask="get_state_optional"))
    assert failed.cause_type == "AssertionError"  # it was found
