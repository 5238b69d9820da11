"""The lifecycle of a function, and what each callback may do: open, records, end of input, close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv2.errors import UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from tests.support import ENDED, STARTED, Driver, driven, local_environment, one_input, unpacked


def fails(*args: Any) -> None:
    raise ValueError("on purpose")


def logging(log: list[str], name: str, **callbacks: Callable[..., Any]) -> OneInputStreamProcessFunction[Any, Any]:
    """Forwards its input and logs each call of the other callbacks."""
    noted = {what: (lambda *args, what=what: log.append(f"{what} {name}")) for what in ("open", "end_input", "close")}
    return one_input(**{**noted, "process_record": lambda record, output, ctx: output.collect(record), **callbacks})


def chain_of_three(log: list[str], **callbacks: Callable[..., Any]) -> Driver:
    """f, g and h in one subtask, not yet opened. ``callbacks`` are for g."""
    env = local_environment()
    stream = env.from_collection([1]).process(logging(log, "f")).with_uid("f")
    stream = stream.process(logging(log, "g", **callbacks)).process(logging(log, "h"))
    stream.to_sink(CollectSink()).with_uid("out")
    return Driver(env.build_plan(), "f")


def test_open_runs_upstream_and_end_runs_downstream() -> None:
    log: list[str] = []
    driver = chain_of_three(log)
    driver.open()
    driver.send(1, ENDED)
    assert log[:3] == ["open h", "open g", "open f"]
    assert log[3:6] == ["end_input f", "end_input g", "end_input h"]
    assert log[6:] == ["close h", "close g", "close f"]
    assert driver.subtask.ended
    assert driver.sent_to("out") == [1, ENDED]


def test_open_sends_a_start_signal() -> None:
    driver = driven(lambda numbers: numbers.process(one_input()).with_uid("f"))
    driver.subtask.flush()
    assert [unpacked(frame.batch.records, frame.controls) for frame in driver.frames] == [[STARTED]]


def test_failure_closes_the_chain_once() -> None:
    log: list[str] = []
    driver = chain_of_three(log, process_record=fails).open()
    with pytest.raises(UserFunctionError, match="on purpose"):
        driver.send(1)
    assert log[3:] == ["close h", "close g", "close f"]


def test_failure_in_open_closes_what_was_opened() -> None:
    log: list[str] = []
    with pytest.raises(UserFunctionError, match="on purpose"):
        chain_of_three(log, open=fails).open()
    assert log == ["open h", "close h", "close g"]


def test_failure_in_close_does_not_stop_the_others() -> None:
    log: list[str] = []
    driver = chain_of_three(log, close=fails).open()
    with pytest.raises(UserFunctionError, match="callback: close"):
        driver.send(ENDED)
    assert log[-2:] == ["close h", "close f"]


def test_first_failure_is_raised_if_close_fails_too() -> None:
    def fails_first(*args: Any) -> None:
        raise KeyError("first")

    driver = chain_of_three([], process_record=fails_first, close=fails).open()
    with pytest.raises(UserFunctionError, match="KeyError: 'first'"):
        driver.send(1)


def test_keyboard_interrupt_passes_unchanged() -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    log: list[str] = []
    driver = chain_of_three(log, process_record=interrupted).open()
    with pytest.raises(KeyboardInterrupt):
        driver.send(1)
    assert log[3:] == ["close h", "close g", "close f"]


def test_restarted_subtask_is_not_opened_again() -> None:
    """Flink opens it again, with the initial values of its fields."""
    log: list[str] = []
    driver = chain_of_three(log).open()
    driver.restart()
    driver.send(1, ENDED)
    assert log.count("open f") == log.count("close f") == 1
    driver.restart()
    assert driver.subtask.ended
    assert log.count("close f") == 1


def test_failing_gauge_is_named() -> None:
    def registers(ctx: Any) -> None:
        ctx.metric_group.gauge("size", fails)

    driver = driven(lambda numbers: numbers.process(one_input(open=registers)).with_uid("f"))
    with pytest.raises(UserFunctionError, match="callback: gauge 'size'"):
        driver.subtask.progress()
