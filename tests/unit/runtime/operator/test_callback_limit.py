"""Callbacks that block are interrupted and named. Many short callbacks are not."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobStatus
from dsv2.checks.arguments import as_choice
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.operator import callback_limit
from dsv2.sinks import CollectSink
from tests.durations import ms
from tests.support import local_environment, one_input, pass_on

FOREVER = 60.0  # far beyond every limit here


def sleeps(*args: Any) -> None:
    time.sleep(FOREVER)


def spins(*args: Any) -> None:
    end = time.monotonic() + FOREVER
    while time.monotonic() < end:
        pass


def calls_dsv2(*args: Any) -> None:
    end = time.monotonic() + FOREVER
    while time.monotonic() < end:
        as_choice(JobStatus, JobStatus.RUNNING, "status")


def waits(*args: Any) -> None:
    threading.Event().wait(FOREVER)


def tries_again(*args: Any) -> None:
    while True:
        try:
            time.sleep(FOREVER)
        except Exception:
            continue


REPORTED = threading.Event()


def until_reported(*args: Any) -> None:
    assert REPORTED.wait(FOREVER)


class Blocks(OneInputStreamProcessFunction[int, int]):
    """Blocks in one of its callbacks."""

    def __init__(self, callback: str, block: Callable[..., None] = sleeps) -> None:
        self.callback, self.block = callback, block

    def _may_block(self, callback: str) -> None:
        if callback == self.callback:
            self.block()

    def open(self, ctx: Any) -> None:
        self._may_block("open")

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record == 2:
            self._may_block("process_record")
        output.collect(record)

    def end_input(self, ctx: Any) -> None:
        self._may_block("end_input")

    def close(self) -> None:
        self._may_block("close")


def keyed(function: Any, timeout_ms: int = 200) -> ExecutionEnvironment:
    env = local_environment()
    env.set_callback_timeout(ms(timeout_ms))
    stream = env.from_collection([1, 2, 3]).key_by(lambda number: f"key {number}").process(function)
    stream.with_uid("blocks").to_sink(CollectSink())
    return env


@pytest.mark.parametrize("block", [sleeps, spins, calls_dsv2, waits, tries_again])
def test_blocking_callback_is_named_with_key_and_record(block: Callable[..., None]) -> None:
    with pytest.raises(UserFunctionError) as failed:
        keyed(Blocks("process_record", block)).execute()
    error = failed.value
    assert (error.operator, error.callback, error.subtask) == ("KeyedProcess (uid 'blocks')", "process_record", 0)
    assert (error.key, error.record) == ("'key 2'", "2")
    assert error.cause_type == "CallbackTimeout"
    assert error.cause_message == "the callback did not return within 200 ms"
    assert f"in {block.__name__}" in error.traceback_text  # where it blocks


@pytest.mark.parametrize("callback", ["open", "end_input", "close"])
def test_blocking_lifecycle_callback_is_named(callback: str) -> None:
    with pytest.raises(UserFunctionError) as failed:
        keyed(Blocks(callback)).execute()
    assert (failed.value.callback, failed.value.cause_type) == (callback, "CallbackTimeout")


def test_blocking_function_of_a_chain_is_named() -> None:
    env = local_environment()
    env.set_callback_timeout(ms(200))
    stream = env.from_collection([1, 2]).process(one_input(process_record=pass_on))
    stream.with_uid("first").process(Blocks("process_record")).with_uid("second").to_sink(CollectSink())
    with pytest.raises(UserFunctionError) as failed:
        env.execute()
    assert failed.value.operator == "Process (uid 'second')"


ELAPSED = [0.0]
"""The time that calls of ``slow`` have taken, in s."""


def slow(number: int) -> int:
    ELAPSED[0] += 0.1
    time.sleep(0.02)  # so that some calls are sampled
    return number


def test_limit_applies_to_each_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_limit, "time", SimpleNamespace(monotonic=lambda: ELAPSED[0]))
    for build in (
        lambda s: s.map(slow),
        lambda s: s.process(one_input(process_record=lambda r, o, c: o.collect(slow(r)))),
    ):
        env, sink = local_environment(), CollectSink[int]()
        env.set_callback_timeout(ms(200))
        build(env.from_collection(range(40))).to_sink(sink)  # type: ignore[no-untyped-call]
        env.execute()
        assert len(sink.results) == 40


def test_blocking_callback_in_another_thread_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_limit, "_SHORTEST_GRACE_SECONDS", 0.0)

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "in until_reported" in record.getMessage():
                REPORTED.set()

    logger, handler = logging.getLogger("dsv2.runtime.operator.callback_limit"), Seen()
    logger.addHandler(handler)
    try:
        thread = threading.Thread(target=keyed(Blocks("process_record", until_reported)).execute)
        thread.start()
        thread.join()
    finally:
        logger.removeHandler(handler)
    (message,) = (message for message in caplog.messages if "in until_reported" in message)
    assert message.startswith("A callback did not return within 200 ms and cannot be interrupted:")


@pytest.mark.parametrize("timeout", [ms(0), ms(-1), ms(1.5), 60_000, "1"])
def test_limit_must_be_a_duration(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout must be"):
        local_environment().set_callback_timeout(timeout)
