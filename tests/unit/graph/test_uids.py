"""Automatic uids: what they depend on, what they do not depend on, and the warnings about them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import ConfigurationError, MissingUidWarning
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.extension.window.process_functions import reduced
from dsv2.functions import MapFunction, OneInputStreamProcessFunction
from dsv2.graph.plan import Operator, Plan
from dsv2.graph.state_detection import may_keep_state
from dsv2.graph.uids import check_uids
from dsv2.model import RecordBatch
from dsv2.sinks import FileSink, ParallelSink, PrintSink, SinkInfo
from dsv2.state import StateDeclarations
from tests.durations import ms

TOTAL = StateDeclarations.value_state("total", int)


class Stateless(OneInputStreamProcessFunction[Any, Any]):
    def __init__(self, limit: int = 0, names: tuple[str, ...] = ()) -> None:
        self.limit = limit
        self.names = names

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Sum(OneInputStreamProcessFunction[Any, Any]):
    def __init__(self, field: str = "", *states: Any) -> None:
        self.field = field
        self.states = states

    def uses_states(self) -> Any:
        return self.states or (TOTAL,)

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Greatest(Sum):
    pass


class Log(ParallelSink[Any]):
    def new_run(self, info: SinkInfo) -> RecordBatch[Any]:
        raise NotImplementedError

    def write(self, batch: Any) -> None: ...


def key(record: Any) -> Any:
    return record


def plan_of(build: Callable[[ExecutionEnvironment, Any], object]) -> Plan:
    """The plan that ``build`` makes from an environment and a stream with a uid."""
    env = ExecutionEnvironment.get_instance("local")
    build(env, env.from_collection([1]).with_uid("numbers"))
    return env.build_plan()


def uid_of(kind: type, build: Callable[[ExecutionEnvironment, Any], object]) -> str:
    (found,) = (operator.uid for operator in plan_of(build).operators if type(operator.body) is kind)
    return found


def add_sum(env: ExecutionEnvironment, stream: Any) -> Any:
    return stream.key_by(key).process(Sum())


SAME: dict[str, Callable[[ExecutionEnvironment, Any], object]] = {
    "other fields": lambda env, numbers: numbers.key_by(key).process(Sum("amount")),
    "another name": lambda env, numbers: add_sum(env, numbers).with_name("Summing"),
    "another parallelism": lambda env, numbers: add_sum(env, numbers).with_parallelism(3),
    "another key": lambda env, numbers: numbers.key_by(lambda record: record + 1).process(Sum()),
    "sinks before it": lambda env, numbers: [numbers.to_sink(PrintSink()), add_sum(env, numbers)],
    "an operator before it": lambda env, numbers: [numbers.key_by(key).process(Greatest()), add_sum(env, numbers)],
    "a source before it": lambda env, numbers: [env.from_collection([2]), add_sum(env, numbers)],
    "what keeps nothing upstream": lambda env, numbers: add_sum(env, numbers.map(str).process(Stateless(3))),
    "what follows": lambda env, numbers: add_sum(env, numbers).key_by(key).process(Greatest()),
}

DIFFERENT: dict[str, Callable[[ExecutionEnvironment, Any], object]] = {
    "another source": lambda env, numbers: add_sum(env, env.from_collection([1]).with_uid("others")),
    "something upstream that keeps state": lambda env, numbers: add_sum(env, numbers.key_by(key).process(Greatest())),
    "something upstream with a uid": lambda env, numbers: add_sum(env, numbers.map(str).with_uid("texts")),
    "another state": lambda env, numbers: numbers.key_by(key).process(
        Sum("", StateDeclarations.value_state("sum", int))
    ),
}


@pytest.mark.parametrize("change", SAME)
def test_automatic_uid_stays(change: str) -> None:
    assert uid_of(Sum, SAME[change]) == uid_of(Sum, add_sum)


@pytest.mark.parametrize("change", DIFFERENT)
def test_automatic_uid_changes(change: str) -> None:
    assert uid_of(Sum, DIFFERENT[change]) != uid_of(Sum, add_sum)


def test_swapped_operators_of_different_classes_keep_uids() -> None:
    def uids(*functions: type[Sum]) -> dict[type, str]:
        plan = plan_of(lambda env, numbers: [numbers.key_by(key).process(function()) for function in functions])
        return {type(operator.body): operator.uid for operator in plan.operators}

    assert uids(Sum, Greatest) == uids(Greatest, Sum)


def test_automatic_uid_has_the_name_of_its_class() -> None:
    plan = plan_of(
        lambda env, numbers: numbers.map(key).map(lambda record: record).process(Stateless()).to_sink(PrintSink())
    )
    names = [operator.uid.rpartition("-")[0] for operator in plan.operators]
    assert names == ["", "key", "MapFunction", "Stateless", "PrintSink"]


def test_uids_of_windows_depend_on_their_aggregation() -> None:
    plan = plan_of(
        lambda env, numbers: [
            numbers.key_by(key).window(WindowStrategy.tumbling(ms(size))).reduce(max) for size in (1, 2)
        ]
    )
    assert len({operator.uid for operator in plan.operators}) == 3
    assert not any(operator.twin for operator in plan.operators)


# --- Identical operators ----------------------------------------------------------------------------------------------


def refusal(build: Callable[[ExecutionEnvironment, Any], object]) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingUidWarning)
        try:
            check_uids(plan_of(build))
        except ConfigurationError as error:
            return str(error)
    return None


def test_identical_operators_are_refused_with_locations() -> None:
    text = refusal(lambda env, numbers: [add_sum(env, numbers), add_sum(env, numbers)])
    assert text is not None
    head, first, second, advice = text.splitlines()
    assert "only in their order" in head
    assert first.startswith("  - KeyedProcess (uid 'Sum-")
    assert first.count(f"{__file__}:") == second.count(f"{__file__}:") == 2
    assert "with_uid(...)" in advice


TWINS: dict[str, Callable[[ExecutionEnvironment, Any], object]] = {
    "of other fields": lambda env, numbers: [numbers.key_by(key).process(Sum(name)) for name in "ab"],
    "sources": lambda env, numbers: [env.from_collection([n]).to_sink(PrintSink()) for n in range(2)],
    "sinks that log": lambda env, numbers: [numbers.to_sink(Log()), numbers.to_sink(Log())],
    "behind two that keep nothing": lambda env, numbers: [
        add_sum(env, numbers.map(str)),
        add_sum(env, numbers.map(int)),
    ],
}
APART: dict[str, Callable[[ExecutionEnvironment, Any], object]] = {
    "one has a uid": lambda env, numbers: [add_sum(env, numbers), add_sum(env, numbers).with_uid("second")],
    "sources with names": lambda env, numbers: [env.from_collection([1], name).to_sink(PrintSink()) for name in "ab"],
    "what keeps nothing": lambda env, numbers: [numbers.map(str), numbers.map(str), numbers.process(Stateless())],
    "sinks": lambda env, numbers: [numbers.to_sink(PrintSink()), numbers.to_sink(PrintSink())],
    "files": lambda env, numbers: [numbers.to_sink(FileSink(name, schema="value int")) for name in "ab"],
    "other inputs": lambda env, numbers: add_sum(env, add_sum(env, numbers)),
}  # fmt: skip


@pytest.mark.parametrize("case", TWINS)
def test_identical_operators_are_refused(case: str) -> None:
    assert refusal(TWINS[case]) is not None


@pytest.mark.parametrize("case", APART)
def test_distinguishable_operators_are_accepted(case: str) -> None:
    assert refusal(APART[case]) is None


def test_identical_operators_still_have_different_uids() -> None:
    plan = plan_of(TWINS["of other fields"])
    first, second = (operator.uid for operator in plan.operators if operator.twin)
    assert second == f"{first}-2"


def test_given_uid_takes_precedence() -> None:
    taken = uid_of(Sum, add_sum)
    plan = plan_of(lambda env, numbers: [add_sum(env, numbers), numbers.map(str).with_uid(taken)])
    assert len({operator.uid for operator in plan.operators}) == 3


# --- Warnings ---------------------------------------------------------------------------------------------------------


def warned_of(build: Callable[[ExecutionEnvironment, Any], object]) -> list[tuple[str, str]]:
    plan = plan_of(build)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_uids(plan)
    assert all(warning.category is MissingUidWarning for warning in caught)
    return [(f"{warning.filename}:{warning.lineno}", str(warning.message)) for warning in caught]


def test_missing_uid_is_a_warning_at_the_line() -> None:
    (warning,) = warned_of(add_sum)
    place, text = warning
    file, _, line = place.rpartition(":")
    assert "process(Sum())" in Path(file).read_text().splitlines()[int(line) - 1]
    assert text.startswith("KeyedProcess (uid 'Sum-")
    assert "has state and no uid" in text


@pytest.mark.parametrize(
    "build",
    [
        lambda env, numbers: add_sum(env, numbers).with_uid("sum"),
        lambda env, numbers: numbers.map(str).process(Stateless()).to_sink(PrintSink()),
        lambda env, numbers: numbers.process(lambda record, output, ctx: None),
    ],
)
def test_other_operators_get_no_warning(build: Any) -> None:
    assert warned_of(build) == []


# --- Functions with state ---------------------------------------------------------------------------------------------


class WithList(Stateless):
    def __init__(self) -> None:
        self.seen: list[int] = []


class Counting(Stateless):
    count = 0

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.count += 1


class CountingInside(Stateless):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        def count() -> None:
            self.count = 1

        count()


class Setting(Stateless):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        setattr(self, "count", 1)  # noqa: B010


class WithOwnState(Stateless):
    def __getstate__(self) -> Any:
        return {}


class WithTimers(Stateless):
    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None: ...


class CallableObject:
    def __call__(self, record: Any, output: Any, ctx: Any) -> None: ...


def body_of(function: Any, *, keyed: bool = False) -> Any:
    def build(env: ExecutionEnvironment, numbers: Any) -> None:
        (numbers.key_by(key) if keyed else numbers).process(function)

    last: Operator = plan_of(build).operators[-1]
    return last.body


GENERATOR = EventTimeExtension.new_watermark_generator_builder(key)


@pytest.mark.parametrize(
    "function",
    [WithList(), Counting(), CountingInside(), Setting(), WithOwnState(), CallableObject()],
    ids=lambda function: type(function).__name__,
)
def test_functions_that_may_keep_state(function: Any) -> None:
    assert may_keep_state(body_of(function))


def test_timers_and_keyed_states_are_state() -> None:
    assert may_keep_state(body_of(WithTimers(), keyed=True))
    assert may_keep_state(body_of(Sum(), keyed=True))
    assert may_keep_state(body_of(reduced(WindowStrategy.tumbling(ms(1)), max), keyed=True))


@pytest.mark.parametrize(
    "function",
    [
        Stateless(3, ("a", "b")),
        MapFunction(key),
        lambda record, output, ctx: None,
        GENERATOR.periodic_watermark(timedelta(seconds=1)).build_as_process_function(),
    ],
    ids=["constants", "map", "lambda", "generator"],
)
def test_functions_without_state(function: Any) -> None:
    assert not may_keep_state(body_of(function))
