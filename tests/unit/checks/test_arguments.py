"""Durations, choices and numbers that users pass: accepted values and error messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode, Trigger
from dsv2.checks.arguments import as_choice, as_milliseconds, as_seconds, check_whole_number
from dsv2.connectors.formats import MessagePart, SubjectNameStrategy
from dsv2.connectors.kafka import DeliveryGuarantee, OnOffsetsOutOfRange, SplitAssignment
from dsv2.connectors.postgres import IfSlotExists
from dsv2.errors import ConfigurationError, PlanError, StateDeclarationError
from dsv2.extension.join import JoinMode, JoinType, OnSnapshotTimeout, join
from dsv2.extension.window import TimestampCombiner, TimeType, WindowStrategy
from dsv2.functions import FunctionInput
from dsv2.jobs import OnChange
from dsv2.model import MainOutput
from dsv2.sinks import FileSink, FileSinkFormat
from dsv2.sources import CollectionSource, DataGeneratorSource
from dsv2.state import (
    RedistributionMode,
    RedistributionStrategy,
    StateDeclarations,
    StateTtl,
    TtlTimeCharacteristic,
    TtlUpdate,
)
from dsv2.views.explain import ChannelFormat, ExplanationFormat
from dsv2.watermark import WatermarkHandlingStrategy, WhenExceeded, new_builder
from runtime_spark import SparkRuntime, StateLayout
from tests.durations import ms
from tests.unit.project.test_public_api import FOR_USERS

CHOICES: tuple[type[Enum], ...] = (
    ChannelFormat, DeliveryGuarantee, ExplanationFormat, FileSinkFormat, FunctionInput, IfSlotExists, JoinType,
    MainOutput, MessagePart, OnChange, OnOffsetsOutOfRange, OnSnapshotTimeout, RedistributionMode,
    RedistributionStrategy, RuntimeExecutionMode,
    SplitAssignment, StateLayout, SubjectNameStrategy, TimestampCombiner, TimeType, TtlTimeCharacteristic, TtlUpdate,
    WatermarkHandlingStrategy, WhenExceeded,
)  # fmt: skip


def pair(left: Any, right: Any, output: Any, ctx: Any) -> None: ...


@given(st.integers(-(10**15), 10**15))
def test_duration_in_milliseconds(milliseconds: int) -> None:
    assert as_milliseconds(timedelta(milliseconds=milliseconds), "size") == milliseconds


@pytest.mark.parametrize(
    ("duration", "at_least", "message"),
    [
        (5, None, "size must be a datetime.timedelta, such as timedelta(seconds=5), not 5."),
        (True, None, "size must be a datetime.timedelta, such as timedelta(seconds=5), not True."),
        (None, None, "size must be a datetime.timedelta, such as timedelta(seconds=5), not None."),
        (timedelta(microseconds=1500), None, "size must be a whole number of milliseconds, not 1.5 ms."),
        (timedelta(0), 1, "size must be at least 1 ms, not 0 ms."),
        (timedelta(seconds=-5), 0, "size must be 0 or more, not -5000 ms."),
    ],
)
def test_invalid_duration(duration: Any, at_least: int | None, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        as_milliseconds(duration, "size", at_least=at_least)
    assert str(refused.value) == message


def test_longest_duration_means_for_ever() -> None:
    assert as_milliseconds(timedelta.max, "out_of_order", at_least=0) == 86_399_999_999_999_999


@pytest.mark.parametrize("timeout", [5, 0.5, timedelta(seconds=-1), "1s"])
def test_invalid_timeout(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"timeout must be a datetime\.timedelta of 0 or more, or None, not"):
        as_seconds(timeout, "timeout")


def test_timeout_with_a_fraction_of_a_millisecond() -> None:
    assert as_seconds(timedelta(microseconds=1500), "timeout") == 0.0015
    assert as_seconds(None, "timeout") is None


@pytest.mark.parametrize("kind", CHOICES, ids=lambda kind: kind.__name__)
def test_choice_is_a_member_or_its_string(kind: type[Enum]) -> None:
    for member in kind:
        assert member.value == member.name.lower().replace("_", "-")
        assert as_choice(kind, member, "it") is as_choice(kind, member.value, "it") is member


@pytest.mark.parametrize("wrong", ["INNER", "outer", 1, None, ["inner"], TimeType.EVENT])
def test_unknown_choice_is_refused_with_the_values(wrong: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        as_choice(JoinType, wrong, "join_type")
    assert str(refused.value) == (
        "join_type must be one of 'inner', 'left', 'right', 'full', 'semi', 'anti', or a member of JoinType, "
        f"not {wrong!r}."
    )


@pytest.mark.parametrize("wrong", [0, True, 1.0, "1", None])
def test_invalid_whole_number(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"count must be a whole number of at least 1, not "):
        check_whole_number(wrong, "count")


# Each call with a member and with its string. The results are equal.
BOTH_WAYS: dict[str, Callable[[Any], Any]] = {
    "EVENT": lambda way: WindowStrategy.tumbling(ms(5), way(TimeType.EVENT)),
    "PROCESSING": lambda way: WindowStrategy.session(ms(5), way(TimeType.PROCESSING)),
    "timestamps": lambda way: WindowStrategy.count(3).with_timestamps(way(TimestampCombiner.LATEST)),
    "early": lambda way: WindowStrategy.count(3).with_early_firing(ms(5), way(TimeType.EVENT)),
    "ttl": lambda way: StateTtl(ms(5), way(TtlUpdate.ON_READ_AND_WRITE)),
    "ttl time": lambda way: StateTtl(ms(5), time_characteristic=way(TtlTimeCharacteristic.EVENT_TIME)),
    "mode": lambda way: (
        StateDeclarations.list_state_builder("s", int).redistribute_with_mode(way(RedistributionMode.IDENTICAL)).build()
    ),
    "strategy": lambda way: (
        StateDeclarations.list_state_builder("s", int).redistribute_by(way(RedistributionStrategy.UNION)).build()
    ),
    "handling": lambda way: (
        new_builder("w").type_long().default_handling_strategy(way(WatermarkHandlingStrategy.IGNORE)).build()
    ),
    "barrier": lambda way: (
        new_builder("w").type_long().barrier(timeout=ms(5), when_exceeded=way(WhenExceeded.PROCEED)).build()
    ),
    "format": lambda way: FileSink[Any]("out", format=way(FileSinkFormat.CSV), schema="n int").format,
    "join": lambda way: join(pair, join_type=way(JoinType.INNER)).state_layout,  # type: ignore[attr-defined]
    "interval join": lambda way: join(pair, JoinMode.interval(ms(0), ms(5)), way(JoinType.FULL)).state_layout,  # type: ignore[attr-defined]
    "time of an interval": lambda way: JoinMode.interval(ms(0), ms(5), way(TimeType.PROCESSING)),
    "temporal join": lambda way: JoinMode.temporal(on_snapshot_timeout=way(OnSnapshotTimeout.FAIL)),
}


@pytest.mark.parametrize("call", BOTH_WAYS.values(), ids=BOTH_WAYS)
def test_strings_equal_their_members(call: Callable[[Any], Any]) -> None:
    assert call(lambda member: member) == call(lambda member: member.value)


def test_execution_mode_as_a_string() -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.set_execution_mode("batch")
    assert env.execution_mode is RuntimeExecutionMode.BATCH


# Untyped because a type checker would refuse all calls below.
ttl: Any = StateTtl
declarations: Any = StateDeclarations
trigger: Any = Trigger
file_sink: Any = FileSink
spark_runtime: Any = SparkRuntime
generator_source: Any = DataGeneratorSource
collection_source: Any = CollectionSource
any_join: Any = join


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ttl(5), StateDeclarationError),
        (lambda: ttl(ms(5), "sometimes"), StateDeclarationError),
        (lambda: declarations.list_state_builder("s", int).redistribute_by("even"), StateDeclarationError),
        (lambda: trigger.processing_time(1_000), ConfigurationError),
        (lambda: file_sink("out", format="delta", schema="n int"), ConfigurationError),
        (lambda: spark_runtime(None, state_layout="tree"), ConfigurationError),
        (lambda: spark_runtime(None, partitions="2"), ConfigurationError),
        (lambda: generator_source(str, count="3"), ConfigurationError),
        (lambda: generator_source(str, records_per_second="fast"), ConfigurationError),
        (lambda: generator_source(5), ConfigurationError),
        (lambda: collection_source([1], records_per_batch=1.5), ConfigurationError),
        (lambda: collection_source(5), ConfigurationError),
        (lambda: any_join(pair, join_type="left"), ConfigurationError),
        (lambda: any_join(pair, join_type="outer"), ConfigurationError),
        (lambda: join(pair, JoinMode.temporal(60_000)), ConfigurationError),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_raise_plan_errors(call: Any, error: type[PlanError]) -> None:
    with pytest.raises(error):
        call()


# --- The whole API ----------------------------------------------------------------------------------------------------

PUBLIC = [*FOR_USERS, "dsv2.connectors.files", "dsv2.testing", "dsv2.local", "runtime_spark"]
each_module = pytest.mark.parametrize("module", PUBLIC)

# Points in time, and fields of values that users do not create, or only with timedeltas.
IN_MILLISECONDS = {
    "arrival_ms",
    "behind_ms",
    "blocked_since_ms",
    "duration_ms",
    "expires_after_ms",
    "idle_after_ms",
    "interval_ms",
    "max_drift_ms",
    "moved_at_ms",
    "now_ms",
    "started_at_ms",
    "target_batch_ms",
    "timeout_ms",
    "ttl_ms",
    "until_ms",
    "user_time_ms",
    "values_moved_at_ms",
}
UNITS = ("_ms", "_seconds", "_millis")
SPANS = ("timeout", "interval", "gap", "lateness", "idleness", "drift", "duration", "out_of_order")


def parameters_of(module: str) -> list[tuple[str, inspect.Parameter]]:
    """Each parameter of each public function, constructor and method, with its location."""
    exported = {name: getattr(import_module(module), name) for name in import_module(module).__all__}
    members = [member for name, value in exported.items() for member in members_of(name, value)]
    return [(where, found) for where, member in members for found in inspect.signature(member).parameters.values()]


def members_of(name: str, value: Any) -> list[tuple[str, Any]]:
    if inspect.isfunction(value):
        return [(name, value)]
    if not inspect.isclass(value) or issubclass(value, Enum) or getattr(value, "_is_protocol", False):
        return []
    public = {key: getattr(value, key) for key in vars(value) if key == "__init__" or not key.startswith("_")}
    foreign = {key for base in value.__mro__[1:] if base.__module__.startswith("opentelemetry.") for key in vars(base)}
    own = {key: member for key, member in public.items() if key == "__init__" or key not in foreign}
    return [(f"{name}.{key}", member) for key, member in own.items() if inspect.isfunction(member)]


@each_module
def test_durations_are_timedeltas(module: str) -> None:
    wrong = [
        f"{where}({parameter.name}: {parameter.annotation})"
        for where, parameter in parameters_of(module)
        if (parameter.name.endswith(UNITS) and parameter.name not in IN_MILLISECONDS)
        or (
            (parameter.name in SPANS or parameter.name.endswith(tuple(f"_{span}" for span in SPANS)))
            and "timedelta" not in str(parameter.annotation)
            and not parameter.name.startswith("on_")
        )
    ]
    assert wrong == []


@each_module
def test_no_function_accepts_arbitrary_keywords(module: str) -> None:
    """A function with arbitrary keywords would accept misspelled ones. Typed ones, aggregates and joins are checked."""
    keywords = [(where, one) for where, one in parameters_of(module) if one.kind is inspect.Parameter.VAR_KEYWORD]
    untyped = [where for where, one in keywords if not str(one.annotation).startswith("Unpack[")]
    assert [where for where in untyped if where != "join" and not where.endswith(".aggregate")] == []


def test_every_choice_accepts_strings() -> None:
    answers = {"JobStatus", "Place", "Processing", "Severity", "TriggerResult", "WatermarkHandlingResult", "ChangeKind"}
    functions = {"NumericWatermarkCombinationFunction", "BoolWatermarkCombinationFunction"}
    by_method = functions | {"GeneralCombinationFunction", "WatermarkDelivery"}
    exported = [getattr(import_module(module), name) for module in PUBLIC for name in import_module(module).__all__]
    enums = {value.__name__ for value in exported if inspect.isclass(value) and issubclass(value, Enum)}
    assert enums - answers - by_method == {kind.__name__ for kind in CHOICES}
