"""Sources that their downstream subtasks may read themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.functions import MapFunction
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from tests.spans import Spans
from tests.support import one_input, two_inputs

Build = Callable[[ExecutionEnvironment], Any]


def see() -> Any:
    return one_input(process_record=lambda record, output, ctx: None)


def numbers(env: ExecutionEnvironment) -> Any:
    return env.from_source(DataGeneratorSource(int, count=9), "numbers").with_uid("numbers")


def read_by(build: Build) -> dict[str, str]:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    build(env)
    plan = env.build_plan()
    return {plan.operators[source].uid: plan.operators[head].uid for source, head in plan.read_by.items()}


def splits(env: ExecutionEnvironment) -> None:
    env.from_source(Spans({"a": 9}), "spans").with_uid("spans").process(see()).with_uid("first").to_sink(CollectSink())


def with_stateless_functions_between(env: ExecutionEnvironment) -> None:
    numbers(env).map(str).filter(bool).process(see()).with_uid("first").process(see()).to_sink(CollectSink())


def beside_another_input(env: ExecutionEnvironment) -> None:
    others = numbers(env).with_uid("others").shuffle()
    numbers(env).connect_and_process(others, two_inputs()).with_uid("both").to_sink(CollectSink())


def beside_one_that_is_read_as_well(env: ExecutionEnvironment) -> None:
    others = numbers(env).with_uid("others")
    numbers(env).connect_and_process(others, two_inputs()).with_uid("both").to_sink(CollectSink())


def behind_others(env: ExecutionEnvironment) -> None:
    counted = numbers(env).with_uid("others").key_by(bool).process(see()).with_uid("counted").shuffle()
    numbers(env).connect_and_process(counted, two_inputs()).with_uid("both").to_sink(CollectSink())


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (splits, {"spans": "first"}),
        (with_stateless_functions_between, {"numbers": "first"}),
        (beside_another_input, {"numbers": "both"}),
        (beside_one_that_is_read_as_well, {"numbers": "both", "others": "both"}),
        (behind_others, {"numbers": "both"}),
    ],
)
def test_subtasks_may_read_their_only_source(build: Build, expected: dict[str, str]) -> None:
    assert read_by(build) == expected


def by_key(env: ExecutionEnvironment) -> None:
    numbers(env).key_by(bool).process(see()).to_sink(CollectSink())


def with_another_parallelism(env: ExecutionEnvironment) -> None:
    numbers(env).process(see()).with_parallelism(3).to_sink(CollectSink())


def to_two_chains(env: ExecutionEnvironment) -> None:
    both = numbers(env)
    both.process(see()).to_sink(CollectSink())
    both.process(see()).to_sink(CollectSink())


def to_a_sink_as_well(env: ExecutionEnvironment) -> None:
    mapped = numbers(env).map(str)
    mapped.process(see()).to_sink(CollectSink())
    mapped.to_sink(CollectSink())


def to_a_sink(env: ExecutionEnvironment) -> None:
    numbers(env).process(MapFunction(int)).to_sink(CollectSink())


def of_elements_that_are_with_the_driver(env: ExecutionEnvironment) -> None:
    env.from_collection([1, 2, 3]).process(see()).to_sink(CollectSink())


@pytest.mark.parametrize(
    "build",
    [
        by_key,
        with_another_parallelism,
        to_two_chains,
        to_a_sink_as_well,
        to_a_sink,
        of_elements_that_are_with_the_driver,
    ],
)
def test_subtasks_may_not_read_other_sources(build: Build) -> None:
    assert read_by(build) == {}
