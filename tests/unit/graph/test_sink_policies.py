"""Error policies of sinks: records that do not fit are skipped or set aside, the others are written."""

from __future__ import annotations

from typing import Any

import pytest

from dsv2 import CollectSink, DeadLetter, ErrorPolicy, ExecutionEnvironment, JobError
from dsv2.connectors.kafka.encoder import MessageEncoder
from dsv2.errors import PlanError, UserFunctionError
from dsv2.graph import OperatorKind
from dsv2.sinks import ForeachBatchSink
from tests.support import local_environment

LETTERS = ErrorPolicy().dead_letter(ValueError)


class Positive(CollectSink[int]):
    """Accepts positive numbers."""

    def check_record(self, record: int) -> None:
        if record == 99:
            raise JobError("The server does not answer.")
        if record <= 0:
            raise ValueError(f"not positive: {record}")


def environment() -> ExecutionEnvironment:
    return local_environment(2)


@pytest.mark.parametrize("keyed", [True, False])
def test_good_records_are_written(keyed: bool) -> None:
    env, sink, letters = environment(), Positive(), CollectSink[DeadLetter[int]]()
    numbers = env.from_collection([3, -1, 4, 0, 5])
    stream: Any = numbers.key_by(lambda number: number) if keyed else numbers
    configured = stream.to_sink(sink).with_uid("out").with_error_policy(LETTERS)
    configured.dead_letters(int).to_sink(letters)
    progress = env.execute().progress.operators
    assert sorted(sink.results) == [3, 4, 5]
    assert sorted((letter.operator, letter.callback, letter.record) for letter in letters.results) == [
        ("out check", "check_record", -1),
        ("out check", "check_record", 0),
    ]
    assert progress["out check"].counters == {"errors_dead_lettered": 2}


def test_skipped_records_are_counted_and_limited() -> None:
    env, sink = environment(), Positive()
    env.from_collection([1, -1, -2]).to_sink(sink).with_error_policy(ErrorPolicy().skip().limit(total=2))
    env.execute()
    assert sink.results == [1]
    env.from_collection([-1, -2, -3] * 2).to_sink(sink).with_error_policy(ErrorPolicy().skip().limit(total=2))
    with pytest.raises(UserFunctionError, match=r"not positive: .* allows 2 failures in total") as failed:
        env.execute()
    assert failed.value.callback == "check_record"
    assert failed.value.location.startswith(__file__)


def test_unavailable_server_fails_the_job() -> None:
    env = environment()
    env.from_collection([99]).to_sink(Positive()).with_error_policy(ErrorPolicy().skip())
    with pytest.raises(UserFunctionError, match="The server does not answer"):
        env.execute()


def test_sink_without_policy_has_no_check() -> None:
    env, sink = environment(), Positive()
    env.set_error_policy(ErrorPolicy().skip())  # only for functions
    env.from_collection([1, -1]).to_sink(sink)
    assert [operator.kind for operator in env.build_plan().operators] == [OperatorKind.SOURCE, OperatorKind.SINK]
    env.execute()
    assert sorted(sink.results) == [-1, 1]


def test_policy_does_not_change_automatic_uids() -> None:
    def uid_of_sink(policy: ErrorPolicy) -> str:
        env = environment()
        env.from_collection([1]).with_uid("in").to_sink(Positive()).with_error_policy(policy)
        return env.build_plan().operators[-1].uid

    assert uid_of_sink(ErrorPolicy()) == uid_of_sink(ErrorPolicy().skip())


def test_plan_is_built_again_without_another_check() -> None:
    env = environment()
    env.from_collection([1]).to_sink(Positive()).with_error_policy(ErrorPolicy().skip())
    assert len(env.build_plan().operators) == len(env.build_plan().operators) == 3


@pytest.mark.parametrize(
    ("policy", "sink", "reads", "told"),
    [
        (ErrorPolicy().skip(), ForeachBatchSink(print), False, "ForeachBatchSink cannot have an error policy"),
        (ErrorPolicy().skip(), CollectSink(), False, "CollectSink cannot have an error policy"),
        (ErrorPolicy().skip(), Positive(), True, "emits no dead letters"),
        (ErrorPolicy(), Positive(), True, "emits no dead letters"),
    ],
)
def test_policies_that_a_sink_cannot_have(policy: ErrorPolicy, sink: Any, reads: bool, told: str) -> None:
    env = environment()
    configured = env.from_collection([1]).to_sink(sink).with_error_policy(policy)
    if reads:
        configured.dead_letters(int).to_sink(CollectSink())
    with pytest.raises(PlanError, match=f"Sink at {__file__}:.*{told}"):
        env.build_plan()


@pytest.mark.parametrize(
    ("parts", "error", "told"),
    [
        ({"topic": lambda record: None}, TypeError, "The topic of the message must not be NoneType"),
        ({"value": lambda record: 1 // 0}, ZeroDivisionError, "division"),
        ({"value": str}, TypeError, "The value of the message must not be str: 'x'"),
        ({"key": lambda record: 5}, TypeError, "The key of the message must not be int: 5"),
        ({"headers": lambda record: [("a", "b")]}, TypeError, "The value of a header of the message must not be str"),
        ({"partition": lambda record: -1}, ValueError, "The partition is -1"),
        ({"value": lambda record: b"x" * 11}, ValueError, "has 11 bytes, but the option message.max.bytes is 10"),
    ],
)
def test_messages_are_checked(parts: dict[str, Any], error: type[Exception], told: str) -> None:
    good: dict[str, Any] = {"topic": "t", "value": str.encode, "key": None, "headers": None, "partition": None}
    MessageEncoder[str](**good).check("x", 10)
    with pytest.raises(error, match=told):
        MessageEncoder[str](**good | parts).check("x", 10)
