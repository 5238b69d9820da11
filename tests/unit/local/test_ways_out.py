"""The advice of errors, by the error policy of the operator that has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, OutputTag
from dsv2.errors import UserFunctionError
from dsv2.local import LocalRuntime

SET = "set an error policy for the operator: with_error_policy(ErrorPolicy().skip(ValueError)), or dead_letter"
COVER = "let the error policy of the operator cover this error: skip(ValueError), or dead_letter"
RAISE = "set a higher limit in the error policy of the operator, which has limit({})"


def failure_of(configure: Callable[[ExecutionEnvironment, Any], object]) -> UserFunctionError:
    """The error of a job that fails at its second and third record."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
    configure(env, result := env.from_collection(["1", "two", "three"]).map(int))
    result.to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as failed:
        env.execute()
    return failed.value


def with_policy(policy: ErrorPolicy) -> Callable[[ExecutionEnvironment, Any], object]:
    return lambda env, result: result.with_error_policy(policy)


@pytest.mark.parametrize(
    ("configure", "told"),
    [
        (lambda env, result: None, SET),
        (with_policy(ErrorPolicy()), SET),
        (with_policy(ErrorPolicy().skip(KeyError)), COVER),
        (with_policy(ErrorPolicy().fail(ValueError).skip()), COVER),
        (with_policy(ErrorPolicy().skip().limit(total=0)), RAISE.format("total=0")),
        (
            with_policy(ErrorPolicy().skip().limit(total=9, per_micro_batch=1)),
            RAISE.format("total=9, per_micro_batch=1"),
        ),
        (lambda env, result: env.set_error_policy(ErrorPolicy().skip().limit(total=1)), RAISE.format("total=1")),
    ],
    ids=["none", "empty", "another error", "fails first", "total", "per micro-batch", "default of the environment"],
)
def test_present_policy_decides_what_is_proposed(configure: Any, told: str) -> None:
    failure = failure_of(configure)
    lines = [line.strip() for line in str(failure).splitlines()]
    assert [line for line in lines if "policy" in line and line.startswith("- ")] == [f"- {told}"]


def test_exceeded_limit_is_known_in_other_processes() -> None:
    failure = failure_of(with_policy(ErrorPolicy().skip().limit(total=0)))
    assert failure.exceeds_limit
    assert UserFunctionError.from_json(failure.as_json()).exceeds_limit
    assert not failure_of(with_policy(ErrorPolicy())).exceeds_limit


def misspelt(record: Any) -> Any:
    return recrod  # type: ignore[name-defined]  # noqa: F821


def unfinished(record: Any) -> Any:
    raise NotImplementedError


def emits_undeclared(record: Any, output: Any, ctx: Any) -> None:
    ctx.output(OutputTag("other", int), 1)


def float_timestamp(record: Any, output: Any, ctx: Any) -> None:
    output.collect_and_overwrite_timestamp(record, 1.5)


@pytest.mark.parametrize(
    "build",
    [
        lambda numbers: numbers.map(misspelt),
        lambda numbers: numbers.map(unfinished),
        lambda numbers: numbers.process(emits_undeclared),
        lambda numbers: numbers.process(float_timestamp),
    ],
)
@pytest.mark.parametrize("policy", [None, ErrorPolicy().skip(KeyError)])
@pytest.mark.parametrize("trace", [False, True])
def test_mistakes_of_the_program_are_never_to_be_skipped(build: Any, policy: Any, trace: bool) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
    result = build(env.from_collection([1]))
    if policy is not None:
        result.with_error_policy(policy)
    result.to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as failed:
        env.execute(trace_records=trace)
    text = str(failed.value)
    assert "skip" not in text.partition("callback:")[2]
    assert text.endswith("To continue, fix the program, and start it again: it processes the same records.")


def test_key_that_only_one_record_lacks_may_be_skipped() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
    env.from_collection([1]).key_by(lambda n: None).process(float_timestamp).to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match=r"skip\(InvalidKeyError\)"):
        env.execute()
