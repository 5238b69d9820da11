"""Inputs that change places do not get each other's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment, OutputTag, Trigger
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.differences import differences
from dsv2.errors import IncompatibleCheckpointError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, join
from dsv2.extension.window import TwoInputNonBroadcastWindowStreamProcessFunction, WindowStrategy
from dsv2.extension.window.process_functions import windowed
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import Stop, TestSource
from tests.durations import ms
from tests.support import local_environment

FIRST, SECOND = (StateDeclarations.list_state(name, int) for name in ("first", "second"))
RULES = StateDeclarations.map_state_builder("rules", int, int).build_broadcast()
LATE = OutputTag("late", int)


class OfTwo(TwoInputNonBroadcastStreamProcessFunction[int, int, tuple[str, int]]):
    """Keeps the records of each input in a state of its own."""

    def uses_states(self) -> list[StateDeclaration]:
        return [FIRST, SECOND]

    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None:
        self._keep(FIRST, record, output, ctx)

    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None:
        self._keep(SECOND, record, output, ctx)

    def _keep(self, state: Any, record: int, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(state).add(record)
        output.collect((state.name, sum(ctx.state_manager.get_state(state).get())))


class Forwarding(TwoInputNonBroadcastStreamProcessFunction[int, int, int]):
    """Keeps nothing."""

    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)


class Rules(TwoInputBroadcastStreamProcessFunction[int, int, int]):
    def uses_states(self) -> list[StateDeclaration]:
        return [RULES]

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None: ...


class OfWindow(TwoInputNonBroadcastWindowStreamProcessFunction[int, int, int]):
    def on_trigger(self, output: Any, ctx: Any, window_ctx: Any) -> None: ...


class Two(OneInputStreamProcessFunction[int, int]):
    """Has a side output."""

    def __init__(self, tag: OutputTag[int] = LATE) -> None:
        self.tag = tag

    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [self.tag]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)


def itself(number: int) -> int:
    return number


def zero(number: int) -> int:
    return 0


def pair(left: int, right: int, output: Any, ctx: Any) -> None:
    output.collect((left, right))


def enriched(left: int, right: int | None, output: Any, ctx: Any) -> None:
    output.collect((left, right))


def small(number: int) -> bool:
    return number < 100


def large(number: int) -> bool:
    return number >= 100


class Streams(NamedTuple):
    """The streams that a program may connect."""

    numbers: Any
    orders: Any
    payments: Any


Program = Callable[[Streams], Any]


def streams(env: ExecutionEnvironment) -> Streams:
    source = env.from_source(TestSource[int]([1])).with_uid("source")
    numbers = source.process(EventTimeExtension.new_watermark_generator_builder(itself).build_as_process_function())
    numbers = numbers.with_uid("numbers")
    return Streams(numbers, numbers.filter(small).with_uid("orders"), numbers.filter(large).with_uid("payments"))


def found(before: Program, after: Program) -> list[str]:
    """Return what is not carried from one program to the other one."""
    described = []
    for program in (before, after):
        env = local_environment()
        connected = program(streams(env))
        connected.with_uid("join").to_sink(CollectSink()).with_uid("out")
        described.append(describe(env.build_plan("job")))
    return [str(difference) for difference in differences(*described) if not difference.carried]


def connected(left: Any, right: Any, function: Any = None) -> Any:
    return left.key_by(zero).connect_and_process(right.key_by(zero), function or OfTwo())


def mapped(stream: Any, uid: str) -> Any:
    return stream.map(itself).with_uid(uid)


def other(streams: Streams, predicate: Any, uid: str) -> Any:
    return streams.numbers.filter(predicate).with_uid(uid)


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "function with states": OfTwo,
    "join": lambda: join(pair),
    "interval join": lambda: join(pair, JoinMode.interval(lower=ms(-5), upper=ms(5))),
    "temporal join": lambda: join(enriched, JoinMode.temporal()),
    "windows": lambda: windowed(WindowStrategy.tumbling(ms(10)), OfWindow()),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_exchanged_inputs_are_refused(function: Callable[[], Any]) -> None:
    (said,) = found(
        lambda s: connected(s.orders, s.payments, function()), lambda s: connected(s.payments, s.orders, function())
    )
    assert "operator 'join' (defined at" in said
    assert "input 0 came from 'orders' and now comes from 'payments', as input 1 did" in said
    assert "keep the inputs in their former order" in said


def side_outputs(s: Streams, *, exchanged: bool = False, tag: OutputTag[int] = LATE) -> Any:
    divided = s.numbers.process(Two(tag)).with_uid("divided")
    both = divided, divided.side_output(tag)
    return connected(*(both[::-1] if exchanged else both))


def in_a_row(first: str, second: str, third: str) -> Program:
    """Joins three streams in two operators. The first one is found by its uid ``inner``."""

    def program(s: Streams) -> Any:
        by_uid = {"orders": s.orders, "payments": s.payments, "refunds": other(s, large, "refunds")}
        inner = connected(by_uid[first], by_uid[second]).with_uid("inner").map(zero).with_uid("inner map")
        return connected(inner, by_uid[third])

    return program


EXCHANGED: dict[str, tuple[Program, Program]] = {
    "maps inserted": (lambda s: connected(s.orders, s.payments),
     lambda s: connected(mapped(s.payments, "a"), mapped(s.orders, "b"))),
    "one uid changed": (lambda s: connected(s.orders, s.payments),
     lambda s: connected(s.payments, other(s, small, "all orders"))),
    "the other uid changed": (lambda s: connected(s.orders, s.payments),
     lambda s: connected(other(s, large, "all payments"), s.orders)),
    "before unions": (lambda s: connected(s.orders.union(other(s, small, "more")), s.payments),
     lambda s: connected(s.payments, other(s, small, "more").union(s.orders))),
    "side output": (side_outputs, lambda s: side_outputs(s, exchanged=True)),
    "one input is the stream of the other one": (lambda s: connected(s.numbers, s.payments),
     lambda s: connected(s.payments, s.numbers)),
    "rescaled": (lambda s: connected(s.orders, s.payments),
     lambda s: connected(s.payments, s.orders).with_parallelism(2)),
    "broadcast": (lambda s: s.orders.connect_and_process(s.payments.broadcast(), Rules()),
     lambda s: s.payments.connect_and_process(s.orders.broadcast(), Rules())),
    "three streams, outer": (in_a_row("orders", "payments", "refunds"), in_a_row("orders", "refunds", "payments")),
    "three streams, inner": (in_a_row("orders", "payments", "refunds"), in_a_row("payments", "orders", "refunds")),
    "three streams, in turn": (in_a_row("orders", "payments", "refunds"), in_a_row("payments", "refunds", "orders")),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), EXCHANGED.values(), ids=EXCHANGED)
def test_exchange_is_noticed_among_other_changes(before: Program, after: Program) -> None:
    assert any("each other's state" in said for said in found(before, after))


def test_inputs_that_nothing_identifies_are_refused() -> None:
    def renamed(s: Streams) -> Any:
        return connected(other(s, large, "a"), other(s, small, "b"))

    (said,) = found(lambda s: connected(s.orders, s.payments), renamed)
    assert "its inputs came from 'orders', 'payments', and nothing of that is before any of them now" in said
    assert "keep the uid of an operator before one of them for this start" in said


def test_key_selectors_of_a_self_join_do_not_change_places() -> None:
    def joined(left: Any, right: Any) -> Program:
        return lambda s: s.numbers.key_by(left).connect_and_process(s.numbers.key_by(right), OfTwo())

    assert found(joined(itself, zero), joined(zero, itself))
    assert not found(joined(itself, zero), joined(itself, zero))


def same(s: Streams) -> Any:
    return connected(s.orders, s.payments)


ALLOWED: dict[str, tuple[Program, Program]] = {
    "nothing": (same, same),
    "function without state": (lambda s: connected(s.orders, s.payments, Forwarding()),
     lambda s: connected(s.payments, s.orders, Forwarding())),
    "order of a union": (lambda s: s.orders.union(s.payments), lambda s: s.payments.union(s.orders)),
    "maps inserted": (same, lambda s: connected(mapped(s.orders, "a"), mapped(s.payments, "b"))),
    "maps removed": (lambda s: connected(mapped(s.orders, "a"), mapped(s.payments, "b")), same),
    "one uid changed": (same, lambda s: connected(s.orders, other(s, large, "all payments"))),
    "map moved to the other input": (lambda s: connected(mapped(s.orders, "map"), s.payments),
     lambda s: connected(s.orders, mapped(s.payments, "map"))),
    "order of a union before it": (lambda s: connected(s.orders.union(other(s, small, "more")), s.payments),
     lambda s: connected(other(s, small, "more").union(s.orders), s.payments)),
    "side output renamed": (side_outputs, lambda s: side_outputs(s, tag=OutputTag("very late", int))),
    "stream joined with itself": (lambda s: connected(s.orders, s.orders),
     lambda s: connected(other(s, small, "all orders"), other(s, small, "all orders too"))),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), ALLOWED.values(), ids=ALLOWED)
def test_inputs_that_keep_their_places_may_change(before: Program, after: Program) -> None:
    assert found(before, after) == []


# --- Jobs -------------------------------------------------------------------------------------------------------------


def run(program: Program, items: Sequence[Any], **options: Any) -> tuple[list[Any], Any]:
    env = local_environment()
    numbers = env.from_source(TestSource[int](items)).with_uid("numbers")
    of = Streams(numbers, numbers.filter(small).with_uid("orders"), numbers.filter(large).with_uid("payments"))
    sink = CollectSink[Any]()
    program(of).with_uid("join").to_sink(sink).with_uid("out")
    job = env.execute_async("pairs", trigger=Trigger.available_now(), **options)
    job.await_termination()
    return sink.results, job


def test_restart_joins_no_record_with_one_of_its_own_side(tmp_path: Path) -> None:
    items: list[Any] = [1, 2, 101, Stop(), 3, 102]

    def joined(s: Streams) -> Any:
        return connected(s.orders, s.payments, join(pair))

    def swapped(s: Streams) -> Any:
        return connected(s.payments, s.orders, join(pair))

    first, job = run(joined, items, checkpoint_location=tmp_path / "checkpoint")
    savepoint = job.savepoint(tmp_path / "savepoint")
    starts: list[dict[str, Any]] = [
        {"checkpoint_location": tmp_path / "checkpoint"},
        {"savepoint": savepoint, "as_new_job": True},
    ]
    for options in starts:
        with pytest.raises(IncompatibleCheckpointError, match="input 0 came from 'orders'"):
            run(swapped, items, **options)
    for options in starts:
        rest, _ = run(joined, items, **options)
        assert sorted([*first, *rest]) == [(order, payment) for order in (1, 2, 3) for payment in (101, 102)]
