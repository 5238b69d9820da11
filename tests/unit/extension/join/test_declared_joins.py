"""Joins with declared results: checks of the declaration, and the choice between columns and single records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from dsv2 import Collector, CollectSink, ExecutionEnvironment, PartitionedContext, RuntimeContext
from dsv2.aggregates import WindowEnd, WindowStart
from dsv2.errors import ConfigurationError, PlanError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, Left, Right, WindowJoinFunction, join
from dsv2.extension.window import WindowStrategy
from dsv2.extension.window.contexts import WindowContext
from dsv2.state import StateTtl
from tests.durations import ms


class Order(NamedTuple):
    """A left record."""

    customer: str
    time: int
    amount: int


class Visit(NamedTuple):
    """A right record."""

    customer: str
    time: int
    page: str


class Both(NamedTuple):
    """A result."""

    customer: str
    amount: int
    page: str


class Maybe(NamedTuple):
    """A result without one of the sides."""

    customer: str | None
    amount: int | None
    page: str | None
    start: int
    end: int


class Only(NamedTuple):
    """A result without the right side."""

    customer: str
    amount: int


class Wide(NamedTuple):
    """A result with another type."""

    customer: str
    amount: float
    page: str


class Timed(NamedTuple):
    """A result with a field of both sides."""

    time: int


ORDERS = [Order("ada", 1, 10), Order("ben", 2, 20), Order("ada", 13, 30)]
VISITS = [Visit("ada", 3, "x"), Visit("eve", 4, "y"), Visit("ada", 5, "z")]
TUMBLING = WindowStrategy.tumbling(ms(10))
WINDOW = JoinMode.window(TUMBLING)
INTERVAL = JoinMode.interval(ms(-5), ms(5))
OF_CUSTOMER = attrgetter("customer")
any_join: Any = join  # each of its overloads accepts one type


def timed(env: ExecutionEnvironment, records: Iterable[Any]) -> Any:
    times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
    return env.from_collection(list(records)).process(times.build_as_process_function())


def joined(function: Any, left_key: Callable[[Any], Any] = OF_CUSTOMER, right_key: Any = OF_CUSTOMER) -> Any:
    env = ExecutionEnvironment.get_instance(runtime="local")
    left, right = timed(env, ORDERS).key_by(left_key), timed(env, VISITS).key_by(right_key)
    sink = CollectSink[Any]()
    result = left.connect_and_process(right, function)
    result.to_sink(sink)
    text = " ".join(str(env.explain()).split())
    env.execute()
    return sorted(sink.results, key=repr), text


def test_fields_are_those_of_the_same_name_and_the_common_key() -> None:
    results, text = joined(join(Both))
    assert results == sorted(
        (Both("ada", amount, page) for amount in (10, 30) for page in "xz"),
        key=repr,
    )
    assert "joins record by record" not in text


@pytest.mark.parametrize("on_columns", [False, True])
def test_window_of_a_pair_is_declared(on_columns: bool) -> None:
    late: Any = {} if on_columns else {"on_late_left": lambda record, output, ctx: None}
    results, text = joined(any_join(Maybe, WINDOW, "full", start=WindowStart(), end=WindowEnd(), **late))
    assert results == [
        Maybe("ada", 10, "x", 0, 10),
        Maybe("ada", 10, "z", 0, 10),
        Maybe("ada", 30, None, 10, 20),
        Maybe("ben", 20, None, 0, 10),
        Maybe("eve", None, "y", 0, 10),
    ]
    assert ("joins record by record" in text) is not on_columns


@pytest.mark.parametrize(
    ("join_type", "expected"), [("semi", [Only("ada", 10)]), ("anti", [Only("ada", 30), Only("ben", 20)])]
)
def test_existence_joins_have_left_fields_only(join_type: Any, expected: list[Only]) -> None:
    assert joined(any_join(Only, INTERVAL, join_type))[0] == expected


class Bounds(WindowJoinFunction[Order, Visit, tuple[int, int, str]]):
    """Emits the bounds of the window, and the page."""

    def process_record_in_window(
        self,
        left: Order,
        right: Visit,
        window: WindowContext,
        output: Collector[tuple[int, int, str]],
        ctx: RuntimeContext,
    ) -> None:
        output.collect((window.start_time, window.end_time, right.page))


def test_function_receives_the_window() -> None:
    assert joined(join(Bounds(), WINDOW))[0] == [(0, 10, "x"), (0, 10, "z")]
    assert joined(join(Bounds(), JoinMode.window(TUMBLING, running=True)))[0] == [(0, 10, "x"), (0, 10, "z")]
    with pytest.raises(ConfigurationError, match=r"Bounds is a WindowJoinFunction: use JoinMode.window"):
        join(Bounds(), INTERVAL)


@pytest.mark.parametrize(
    ("left_key", "options", "mode", "reason"),
    [
        (lambda record: record.customer, {"customer": Left("customer")}, INTERVAL, "not an operator.attrgetter"),
        (OF_CUSTOMER, {"on_late_left": lambda record, output, ctx: None}, INTERVAL, "late records are passed to"),
        (OF_CUSTOMER, {}, JoinMode.interval(ms(-5), ms(5), "processing"), "the interval is in processing time"),
        (OF_CUSTOMER, {"row_key": OF_CUSTOMER}, JoinMode.temporal(), "a key has several rows"),
        (OF_CUSTOMER, {}, JoinMode.versioned(StateTtl(ms(5))), "versions have a time to live"),
        (OF_CUSTOMER, {"is_deletion": bool}, JoinMode.versioned(), "deletions are found by a callable"),
        (OF_CUSTOMER, {}, JoinMode.window(TUMBLING, running=True), "the join is running"),
        (OF_CUSTOMER, {}, JoinMode.window(WindowStrategy.session(ms(5))), "not tumbling or sliding windows"),
        (OF_CUSTOMER, {}, JoinMode.window(TUMBLING.with_allowed_lateness(ms(1))), "allowed lateness"),
        (OF_CUSTOMER, {}, JoinMode.window(TUMBLING.with_early_firing(timedelta(hours=1))), "early firing"),
    ],
)
def test_explain_names_the_reason_for_single_records(left_key: Any, options: Any, mode: Any, reason: str) -> None:
    _, text = joined(any_join(Both, mode, **options), left_key)
    assert "joins record by record instead of on columns" in text
    assert reason in text


def key_only(record: Both, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
    output.collect(ctx.state_manager.current_key)


def test_result_can_stay_keyed() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    left, right = (env.from_collection(records).key_by(OF_CUSTOMER) for records in (ORDERS, VISITS))
    sink = CollectSink[Any]()
    kept = left.connect_and_process(right, join(Both), OF_CUSTOMER)
    kept.process(key_only).to_sink(sink)
    assert "the result stays keyed" in " ".join(str(env.explain()).split())
    env.execute()
    assert sink.results == ["ada"] * 4


def test_other_types_are_joined_record_by_record() -> None:
    results, text = joined(join(Wide))
    assert len(results) == 4
    assert "'amount' of Wide is double, and 'amount' is int64" in text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (join(Only, page=Left("page")), r"Only has no field 'page'\."),
        (join(Maybe), r"'start' of Maybe is not declared, and no side has a field of this name\. Declare it"),
        (
            join(Both, page=Left("page")),
            r"page is Left\(field='page'\), but Order has the fields customer, time, amount",
        ),
        (join(Both, amount=Right("page")), r"amount of Both is int, but Right\(field='page'\) is str"),
        (any_join(Both, amount="amount"), r"amount='amount' is not a field of a side\. Use Left"),
        (join(Both, amount=WindowStart()), r"amount is a bound of a window, but the join has none"),
        (join(Both, INTERVAL, JoinType.LEFT), r"page of Both is Right.*None without a partner in LEFT joins"),
        (join(Both, INTERVAL, "semi"), r"'page' of Both is not declared, and no side has"),
        (join(Both, INTERVAL, "anti", page=Right("page")), r"which ANTI joins leave out"),
    ],
)
def test_wrong_declaration_is_refused(function: Any, message: str) -> None:
    with pytest.raises(PlanError, match=rf"join at .*test_declared_joins\.py:\d+: .*{message}"):
        joined(function)


def test_interval_ends_with_a_field_on_columns_only() -> None:
    mode = JoinMode.interval(ms(0), "amount")
    assert joined(any_join(Both, mode))[0] == [Both("ada", 10, "x"), Both("ada", 10, "z")]
    with pytest.raises(ConfigurationError, match=r"joined on columns only\. Pass a class of results"):
        any_join(lambda left, right, output, ctx: None, mode)
    for field, reason in {"customer": "'customer' of Order is not an int", "end": "Order has no field 'end'"}.items():
        with pytest.raises(PlanError, match=rf"on columns only, which is not possible here: {reason}"):
            joined(join(Both, JoinMode.interval(ms(0), field)))


def test_field_of_both_sides_is_ambiguous() -> None:
    with pytest.raises(PlanError, match=r"'time' of Timed is not declared, and it may come from both sides"):
        joined(join(Timed))


def test_arguments_of_declared_joins_are_refused_for_functions() -> None:
    def nothing(left: Any, right: Any, output: Any, ctx: Any) -> None: ...

    for argument in ({"page": Left("page")}, {"left_records": Order}):
        with pytest.raises(ConfigurationError, match="except with a class of results"):
            any_join(nothing, **argument)


def test_declared_join_requires_keys() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    left, right = env.from_collection(ORDERS), env.from_collection(VISITS)
    with pytest.raises(PlanError, match="A join requires two keyed streams"):
        left.connect_and_process(right, join(Both, left_records=Order, customer=Left("customer")))
