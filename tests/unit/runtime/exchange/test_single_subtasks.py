"""Operators with one subtask each share it, whatever is between them. Keys are checked as by an exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import ErrorPolicy
from dsv2.errors import UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange import key_check
from dsv2.sinks import CollectSink
from tests.support import Driver, local_environment, one_input, two_inputs


def passing() -> OneInputStreamProcessFunction[Any, Any]:
    return one_input(process_record=lambda record, output, ctx: output.collect(record))


def plan_of(build: Callable[[Any], Any], parallelism: int = 1) -> Plan:
    """``build`` gets the stream after the operator "head"."""
    env = local_environment(parallelism=parallelism)
    head = env.from_collection(list[Any](), "in").process(passing()).with_uid("head")
    build(head).to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


def chains(plan: Plan) -> dict[str, list[str]]:
    return {plan.operators[head].uid: [operator.uid for operator in chain] for head, chain in plan.chains.items()}


def keyed(stream: Any, uid: str = "next") -> Any:
    return stream.key_by(len).process(passing()).with_uid(uid)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (keyed, {"head": ["head", "next"]}),
        (lambda head: head.shuffle().process(passing()).with_uid("next"), {"head": ["head", "next"]}),
        (lambda head: head.global_().process(passing()).with_uid("next"), {"head": ["head", "next"]}),
        (lambda head: keyed(keyed(head), "last"), {"head": ["head", "next", "last"]}),
        (lambda head: keyed(keyed(head).with_parallelism(2), "last"),
         {"head": ["head"], "next": ["next"], "last": ["last"]}),
        (lambda head: head.key_by(len).connect_and_process(keyed(head).key_by(len), two_inputs()).with_uid("joined"),
         {"head": ["head"], "next": ["next"], "joined": ["joined"]}),
    ],
    ids=["keyed", "shuffled", "global", "twice", "more subtasks", "two receivers"],
)  # fmt: skip
def test_chains_of_single_subtasks(build: Callable[[Any], Any], expected: dict[str, list[str]]) -> None:
    assert chains(plan_of(build)) == expected


def test_several_subtasks_exchange_records() -> None:
    assert chains(plan_of(keyed, parallelism=2)) == {"head": ["head"], "next": ["next"]}


def sent(records: RecordBatch[Any], policy: ErrorPolicy | None = None, *, remembers: bool = True) -> list[Any]:
    """Return the output for ``records`` of the operator after "head", which ignores keys."""

    def build(head: Any) -> Any:
        take = one_input(process_record=lambda record, output, ctx: output.collect(record["key"]))
        take.dsv2_remember_keys = remembers
        stream = head.key_by(lambda record: record["key"]).process(take).with_uid("next")
        return stream if policy is None else stream.with_error_policy(policy)

    driver = Driver(plan_of(build), "head").open()
    driver.subtask.receive(0, records, [])
    driver.subtask.flush()
    return [record for frame in driver.frames for record in frame.batch.records]


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("timestamps", [None, [1, 2]], ids=["plain", "stamped"])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"key": None}, "InvalidKeyError: The assigned key must not be None"),
        ({"key": [1]}, "InvalidKeyError: The key [1] is not hashable: unhashable type: 'list'."),
        ({"key": frozenset()}, "InvalidKeyError: A key of type frozenset cannot be assigned to a subtask"),
        ({"key": float("nan")}, "InvalidKeyError: NaN cannot be a key"),
        ({"clef": 1}, "KeyError: 'key'"),
    ],
    ids=["none", "unhashable", "unsupported", "nan", "missing"],
)
def test_invalid_key_is_an_error_of_the_key_selector(
    bad: dict[str, Any], message: str, timestamps: list[int | None] | None, remembers: bool
) -> None:
    with pytest.raises(UserFunctionError) as caught:
        sent(RecordBatch([{"key": 1}, bad], timestamps), remembers=remembers)
    error = caught.value
    assert str(error).startswith(message)
    assert (error.callback, error.record) == ("key selector", repr(bad))
    assert "(uid 'next')" in error.operator


def test_valid_keys_pass() -> None:
    keys = [1, "a", 1.0, True, (1, "x"), 1]
    assert sent(RecordBatch([{"key": key} for key in keys])) == keys


def test_checked_keys_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_check, "_CHECKED_KEYS", 3)
    keys = [*range(10), *range(10)]
    assert sent(RecordBatch([{"key": key} for key in keys])) == keys


def test_error_policy_of_the_receiver_covers_its_keys() -> None:
    records = RecordBatch([{"key": 1}, {"key": None}, {"clef": 2}, {"key": 3}])
    assert sent(records, ErrorPolicy().skip(Exception)) == [1, 3]
