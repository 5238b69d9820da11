"""A failure in user code names the operator, callback, subtask, key, record and the user's line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from dsv2.errors import CorruptDataError, InternalError, SerializationError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.report.short_repr import shorten
from dsv2.watermark import new_builder
from tests.support import (
    ENDED,
    driven,
    one_input,
    pass_on,
    two_output,
    watermark,
)

W = new_builder("w").type_long().build()


def fails(*args: Any) -> NoReturn:
    raise ValueError("on purpose")


def failure(action: Callable[[], object]) -> UserFunctionError:
    with pytest.raises(UserFunctionError) as caught:
        action()
    return caught.value


def test_message_has_all_details() -> None:
    function = one_input(process_record=fails)
    driver = driven(lambda numbers: numbers.key_by(lambda record: record["topic"]).process(function).with_uid("f"))
    text = str(failure(lambda: driver.send({"topic": "t"})))
    head, operator, callback, key, record, *traceback = text.splitlines()
    assert head == "ValueError: on purpose"
    assert operator.startswith(f"  operator: KeyedProcess (uid 'f') (subtask 0), defined at {__file__}:")
    assert [callback, key, record] == ["  callback: process_record", "  key:      't'", "  record:   {'topic': 't'}"]
    assert any("in fails" in line for line in traceback)


@pytest.mark.parametrize("bad", ["f", "g", "h"])
@pytest.mark.parametrize("callback", ["process_record", "on_watermark", "end_input"])
def test_failing_operator_of_a_chain_is_named(bad: str, callback: str) -> None:
    def part(uid: str) -> OneInputStreamProcessFunction[Any, Any]:
        own = {callback: fails} if uid == bad else {}
        return one_input(**{"declare_watermarks": lambda: [W], "process_record": pass_on_plus_one, **own})

    def pass_on_plus_one(record: Any, output: Any, ctx: Any) -> None:
        output.collect(record + 1)

    def build(numbers: Any) -> Any:
        for uid in "fgh":
            numbers = numbers.process(part(uid)).with_uid(uid)
        return numbers

    driver = driven(build)
    error = failure(lambda: driver.send(0, watermark(1), ENDED))
    assert (error.operator, error.callback) == (f"Process (uid '{bad}')", callback)
    assert error.record == (str("fgh".index(bad)) if callback == "process_record" else None)


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize(
    ("key", "cause"),
    [(fails, "ValueError"), (lambda record: None, "InvalidKeyError"), (lambda record: [record], "InvalidKeyError")],
    ids=["fails", "none", "unhashable"],
)
def test_key_selector_failure_is_not_blamed_on_the_function(chained: bool, key: Any, cause: str) -> None:
    """If chained, the key check of the upstream output has already called the selector once, successfully."""
    asked: list[Any] = []

    def select(record: Any) -> Any:
        asked.append(record)
        return record if len(asked) == 1 and chained else key(record)

    def build(numbers: Any) -> Any:
        keyed = numbers.key_by(select)
        if chained:
            keyed = numbers.key_by(str).process(one_input(process_record=pass_on), select).with_uid("head")
        return keyed.process(one_input(process_record=fails)).with_uid("f")

    driver = driven(build, "head" if chained else "f")
    error = failure(lambda: driver.send("7"))
    assert (error.operator, error.callback) == ("KeyedProcess (uid 'f')", "key selector")
    assert (error.cause_type, error.key, error.record) == (cause, None, "'7'")


@pytest.mark.parametrize("make", [one_input, two_output])
def test_key_of_the_previous_record_is_not_shown(make: Callable[..., Any]) -> None:
    def build(records: Any) -> Any:
        stream = records.key_by(lambda record: record["key"]).process(make()).with_uid("f")
        return stream if make is one_input else stream.first

    error = failure(lambda: driven(build).send({"key": "a"}, {"clef": "b"}))
    assert (error.callback, error.key, error.record) == ("key selector", None, "{'clef': 'b'}")


def test_failing_partition_is_named() -> None:
    def visit(output: Any, ctx: Any) -> None:
        output.collect(1 / (ctx.state_manager.current_key - 3))

    function = one_input(end_input=lambda ctx: ctx.apply_to_all_partitions(visit))
    driver = driven(lambda numbers: numbers.key_by(int).process(function).with_uid("f"))
    driver.send(1, 2, 3)
    error = failure(lambda: driver.send(ENDED))
    assert (error.callback, error.cause_type, error.key) == ("end_input", "ZeroDivisionError", "3")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError


def test_unprintable_values_do_not_hide_the_failure() -> None:
    class Key(str):
        def __repr__(self) -> str:
            raise RuntimeError

    def process(record: Any, output: Any, ctx: Any) -> None:
        raise record

    driver = driven(
        lambda numbers: numbers.key_by(lambda r: Key("k")).process(one_input(process_record=process)).with_uid("f")
    )
    error = failure(lambda: driver.send(UnprintableError()))
    assert error.cause_type == "UnprintableError"
    assert error.cause_message == "<the message is not available: __str__ raised RuntimeError>"
    assert error.record == "<UnprintableError whose __repr__ raised RuntimeError>"
    assert error.key is not None
    assert error.key.endswith("Key whose __repr__ raised RuntimeError>")


def test_long_records_are_shortened() -> None:
    assert shorten("a" * 198) == f"'{'a' * 198}'"
    assert shorten("a" * 199) == f"'{'a' * 199}… (201 characters)"
    driver = driven(lambda numbers: numbers.process(one_input(process_record=fails)).with_uid("f"))
    record = failure(lambda: driver.send(list(range(100_000)))).record
    assert record is not None
    assert record.startswith("[0, 1, 2")
    assert len(record) < 250


@pytest.mark.parametrize("error", [InternalError("ours"), CorruptDataError("ours"), SerializationError("ours")])
def test_own_errors_are_not_wrapped(error: Exception) -> None:
    def process(*args: Any) -> None:
        raise error

    driver = driven(lambda numbers: numbers.process(one_input(process_record=process)).with_uid("f"))
    with pytest.raises(type(error)) as caught:
        driver.send(1)
    assert caught.value is error


def leave(*args: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "build",
    [
        lambda numbers: numbers.process(one_input(process_record=leave)),
        lambda numbers: numbers.map(leave),
        lambda numbers: numbers.filter(leave),
    ],
)
def test_system_exit_is_a_failure(build: Callable[[Any], Any]) -> None:
    driver = driven(lambda numbers: build(numbers).with_uid("f"))
    failed = failure(lambda: driver.send(1))
    assert (failed.cause_type, failed.record) == ("SystemExit", "1")


class Hooked(OneInputStreamProcessFunction[Any, Any]):
    def __getstate__(self) -> Any:
        if getattr(self, "seen", 0) == 1:
            raise ValueError("on purpose")
        return vars(self)

    def __setstate__(self, state: Any) -> None:
        if state.get("seen") == 2:
            raise ValueError("on purpose")
        vars(self).update(state)

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.seen = record


@pytest.mark.parametrize(("record", "callback"), [(1, "__getstate__"), (2, "__setstate__")])
def test_pickle_hooks_are_callbacks(record: int, callback: str) -> None:
    driver = driven(lambda numbers: numbers.process(Hooked()).with_uid("f"))
    driver.send(record)
    error = failure(driver.restart)
    assert (error.operator, error.callback, error.cause_message) == ("Process (uid 'f')", callback, "on purpose")


def test_failure_survives_pickling() -> None:
    driver = driven(lambda numbers: numbers.process(one_input(process_record=fails)).with_uid("f"))
    error = failure(lambda: driver.send("a"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - as an executor sends it
    assert again.as_json() == error.as_json()
    assert str(again) == str(error)
