"""Callables and callbacks with a wrong signature are refused when they are passed, or when the plan is built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment, OutputTag
from dsv2.base.callables import takes
from dsv2.errors import ConfigurationError, PlanError, StateDeclarationError
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import JoinFunction, JoinMode, join
from dsv2.extension.window import (
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    WindowStrategy,
)
from dsv2.extension.window.process_functions import aggregated, reduced
from dsv2.functions import OneInputStreamProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.state import AggregateFunction, StateDeclarations, aggregate_of
from tests.durations import ms

TEN = WindowStrategy.tumbling(ms(10))


class Point(NamedTuple):
    x: int
    y: int = 0


class Caller:
    def __call__(self, one: int, other: int) -> int:
        return one + other

    def method(self, one: int) -> int:
        return one


@pytest.mark.parametrize(
    ("function", "counts"),
    [
        (lambda: 1, {0}),
        (lambda one, other=1: 1, {1, 2}),
        (lambda *args: 1, {0, 1, 2, 3}),
        (lambda one, *, other: 1, set()),
        (lambda one, *, other=1, **more: 1, {1}),
        (partial(lambda one, other: 1, 5), {1}),
        (Point, {1, 2}),
        (Caller(), {2}),
        (Caller().method, {1}),
        (abs, {1}),
        (max, {0, 1, 2, 3}),  # it has no signature
        (str, {0, 1, 2, 3}),
        (7, set()),
        (None, set()),
    ],
)
def test_arguments_that_a_callable_accepts(function: object, counts: set[int]) -> None:
    assert {count for count in range(4) if takes(function, count)} == counts


def total(**wrong: Any) -> Any:
    right: dict[str, Any] = {
        "create_accumulator": int,
        "add": lambda value, total: total + value,
        "get_result": str,
        "merge": lambda one, other: one + other,
    }
    return aggregate_of(**{**right, **wrong})


any_join: Any = join


def pair(left: Any, right: Any, output: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("give", "error", "said"),
    [
        (
            lambda f: total(create_accumulator=lambda record: 0),
            ConfigurationError,
            "create_accumulator must be a callable (),",
        ),
        (
            lambda f: total(add=f),
            ConfigurationError,
            "aggregate_of: add must be a callable (value, accumulator), not <",
        ),
        (
            lambda f: total(get_result=lambda: 1),
            ConfigurationError,
            "get_result must be a callable (accumulator), not <",
        ),
        (
            lambda f: total(merge=f),
            ConfigurationError,
            "merge must be a callable (accumulator, accumulator), not <",
        ),
        (
            lambda f: aggregated(TEN, total(), f),
            PlanError,
            ": emit must be a callable (result, window, ctx) -> rec",
        ),
        (lambda f: reduced(TEN, f), PlanError, " takes a callable (record, record) -> record, not <function"),
        (
            lambda f: reduced(TEN, max, f),
            PlanError,
            ": emit must be a callable (result, window, ctx) -> record, not <",
        ),
        (lambda f: join(f), ConfigurationError, "or a callable (left, right, output, ctx), not <function"),
        (
            lambda f: any_join(f, JoinMode.interval(ms(0), ms(5))),
            ConfigurationError,
            "or a callable (left, right, output, ctx), not <func",
        ),
        (
            lambda f: any_join(f, JoinMode.window(TEN)),
            ConfigurationError,
            "or a callable (left, right, output, ctx), not <function",
        ),
        (
            lambda f: any_join(pair, JoinMode.interval(ms(0), ms(5)), on_late_left=f),
            ConfigurationError,
            "on_late_left must be a callable (record, output, ctx), not <function",
        ),
        (
            lambda f: any_join(pair, JoinMode.window(TEN), on_late_right=f),
            ConfigurationError,
            "on_late_right must be a callable (record, output, ctx), not <function",
        ),
        (
            lambda f: EventTimeExtension.new_watermark_generator_builder(lambda: 1),  # type: ignore[arg-type, misc]
            ConfigurationError,
            "extract_timestamp must be a callable (record) -> ms, not <function",
        ),
        (
            lambda f: StateDeclarations.reducing_state("s", int, f),
            StateDeclarationError,
            "ReducingState 's': reduce must be a callable (value, value) -> value, not <function",
        ),
    ],
)
def test_callable_with_wrong_signature_is_refused(
    give: Callable[[Any], object], error: type[PlanError], said: str
) -> None:
    with pytest.raises(error) as refused:
        give(lambda record: record)
    assert said in str(refused.value)


class One(OneInputStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class WithoutContext(One):
    def end_input(self) -> None: ...  # type: ignore[override]


class OfTimers(OneInputEventTimeStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...
    def on_event_timer(self, output: Any, ctx: Any) -> None: ...  # type: ignore[override]


class WithCollector(TwoInputBroadcastStreamProcessFunction[Any, Any, Any]):
    def process_record_from_non_broadcast_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_broadcast_input(  # type: ignore[override]
        self, record: Any, output: Any, ctx: Any
    ) -> None: ...


class OfWindows(OneInputWindowStreamProcessFunction[Any, Any]):
    def on_trigger(self, output: Any, ctx: Any) -> None: ...  # type: ignore[override]


class OfTwoInWindows(TwoInputNonBroadcastWindowStreamProcessFunction[Any, Any, Any]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None: ...
    def on_late_record2(self, record: Any) -> None: ...  # type: ignore[override]


class Pair(JoinFunction[Any, Any, Any]):
    def process_record(self, left: Any, right: Any, output: Any) -> None: ...  # type: ignore[override]


class Total(AggregateFunction[Any, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator

    def get_result(self) -> int:  # type: ignore[override]
        return 0


class HasTotal(One):
    def uses_states(self) -> Any:
        return [StateDeclarations.aggregating_state("total", int, Total())]


# The pipeline, and the error message after the location.
REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda s: s.non_keyed.process(WithoutContext()), "WithoutContext.end_input must accept the arguments (ctx)"),
    (lambda s: s.keyed.process(OfTimers()),
     "OfTimers.on_event_timer must accept the arguments (timestamp, output, ctx)"),
    (lambda s: s.keyed.connect_and_process(s.broadcast, WithCollector()),
     "WithCollector.process_record_from_broadcast_input must accept the arguments (record, ctx)"),
    (lambda s: s.keyed.window(TEN).process(OfWindows()),
     "OfWindows.on_trigger must accept the arguments (output, ctx, window)"),
    (lambda s: s.keyed.window(TEN).with_late_output(OutputTag("late", int)).process(OfWindows()),
     "OfWindows.on_trigger must accept the arguments (output, ctx, window)"),
    (lambda s: s.keyed.window(TEN).connect_and_process(s.other_keyed, OfTwoInWindows()),
     "OfTwoInWindows.on_late_record2 must accept the arguments (record, output, ctx)"),
    (lambda s: s.keyed.connect_and_process(s.other_keyed, join(Pair())),
     "Pair.process_record must accept the arguments (left, right, output, ctx)"),
    (lambda s: s.keyed.window(TEN).aggregate(Total()), "Total.get_result must accept the arguments (accumulator)"),
    (lambda s: s.keyed.process(HasTotal()), "Total.get_result must accept the arguments (accumulator)"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "said"), REFUSED, ids=lambda part: part if isinstance(part, str) else "")
def test_callback_with_wrong_signature_is_refused(
    env: ExecutionEnvironment, s: Any, build: Callable[[Any], Any], said: str
) -> None:
    build(s)
    with pytest.raises(PlanError) as refused:
        env.build_plan()
    assert f" at {__file__}:{build.__code__.co_firstlineno}: {said}, but it is defined as " in str(refused.value)


def test_error_shows_the_definition(env: ExecutionEnvironment, s: Any) -> None:
    s.non_keyed.process(WithoutContext()).with_uid("bad")
    with pytest.raises(PlanError, match=r"it is defined as end_input\(self\)\.$"):
        env.build_plan()


class Lenient(One):
    """Accepts more arguments than it is given, in every way that Python has."""

    def process_record(self, *args: Any, **more: Any) -> None: ...
    def end_input(self, ctx: Any, why: str = "") -> None: ...

    @staticmethod
    def on_processing_timer(timestamp: int, output: Any, ctx: Any) -> None: ...

    def _on_watermark(self) -> None: ...

    on_watermark: Any = lambda self, *args: None


def test_additional_parameters_are_accepted(env: ExecutionEnvironment, s: Any) -> None:
    s.keyed.process(Lenient())
    assert env.build_plan()
