"""Tracebacks that users see: one message, and their own frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dsv2
from dsv2 import Dsv2Error, ExecutionEnvironment
from dsv2.checks.tracebacks import short_traceback
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.testing import OneInputHarness

OURS = str(Path(dsv2.__file__).parent)


def fail_on_purpose(record: Any) -> Any:
    raise ValueError("on purpose")


class One(OneInputStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)


class Fails(One):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(fail_on_purpose(record))


class HasNoState:
    def __init__(self) -> None:
        self.number = 1

    def __getstate__(self) -> Any:
        return fail_on_purpose(self)


class KeepsIt(One):
    def open(self, ctx: Any) -> None:
        self.kept = HasNoState()


class Yields(One):
    def process_record(self, record: Any, output: Any, ctx: Any) -> Any:
        yield record


class Sends(One):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect([lambda: record])


PROGRAMS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "a callback fails": (lambda s: s.process(Fails()), True),
    "map fails": (lambda s: s.map(fail_on_purpose), True),
    "a key selector fails": (lambda s: s.key_by(fail_on_purpose).process(One()), True),
    "a field is no state": (lambda s: s.process(KeepsIt()), False),
    "a record cannot be sent": (lambda s: s.process(Sends()), False),
    "the plan is refused": (lambda s: s.process(Yields()), False),
}
programs = pytest.mark.parametrize(("build", "fails_in_user_code"), PROGRAMS.values(), ids=PROGRAMS)


def failure_of(build: Callable[[Any], Any]) -> Dsv2Error:
    env = ExecutionEnvironment.get_instance(runtime="local")
    build(env.from_collection([1])).to_sink(CollectSink())
    with pytest.raises(Dsv2Error) as failed:
        env.execute()
    return failed.value


def check(error: Dsv2Error, *, in_user_code: bool) -> None:
    text = "".join(traceback.format_exception(error))
    assert text.count("Traceback (most recent call last)") == 1
    assert text.count(f'File "{OURS}') == 1
    assert ("in fail_on_purpose\n" in text) == in_user_code
    marks = "~^ "  # the lines below lines of code, of which each version of Python prints others
    assert sum(1 for line in text.splitlines() if line.strip(marks)) <= 20


@programs
def test_one_message_and_the_users_frames(build: Callable[[Any], Any], fails_in_user_code: bool) -> None:
    check(failure_of(build), in_user_code=fails_in_user_code)


@programs
def test_environment_variable_shows_all_frames(
    build: Callable[[Any], Any], fails_in_user_code: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSV2_FULL_TRACEBACKS", "1")
    text = "".join(traceback.format_exception(failure_of(build)))
    assert text.count(f'File "{OURS}') > 2
    assert ("in fail_on_purpose\n" in text) == fails_in_user_code


def test_harness_shows_the_users_frames() -> None:
    harness = OneInputHarness[Any, Any](Fails())
    with pytest.raises(UserFunctionError) as failed:
        harness.input.push(1)
    check(failed.value, in_user_code=True)
    assert isinstance(failed.value.cause, ValueError)


def test_failed_job_raises_the_same_error_each_time() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1]).process(Fails()).to_sink(CollectSink())
    job = env.execute_async()
    texts = []
    for wait in (job.result, job.await_termination, job.result):
        with pytest.raises(Dsv2Error) as failed:
            wait()
        texts.append("".join(traceback.format_exception(failed.value)).count("in fail_on_purpose\n"))
    assert texts == [1, 1, 1]


def test_error_that_is_its_own_cause() -> None:
    @short_traceback
    def call() -> None:
        try:
            raise ConfigurationError("the cause")
        except ConfigurationError as error:
            raise error from error

    with pytest.raises(ConfigurationError, match="the cause"):
        call()
