"""What an error tells about the error policy of the operator that has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, UserFunctionError
from dsv2.local import LocalRuntime

SET = "set an error policy for the operator: with_error_policy(ErrorPolicy().skip(ValueError)), or dead_letter"
COVER = "let the error policy of the operator cover this error: skip(ValueError), or dead_letter"
RAISE = "set a higher limit in the error policy of the operator, which has limit({})"


def failure_of(configure: Callable[[ExecutionEnvironment, Any], object]) -> UserFunctionError:
    """The error of a job that fails at its second and third record."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(fast=True))
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
