"""Warnings of ``execute``: those that ``explain`` lists, at the user's lines."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import CollectSink, ExecutionEnvironment, Trigger, new_builder
from dsv2.errors import Dsv2Warning, PlanWarning, UnreadStreamWarning
from dsv2.sources import DataGeneratorSource
from dsv2.streams import WaitForBroadcast
from dsv2.views.explain import Severity
from tests.support import broadcast_side, one_input, two_inputs

COMPLETE = new_builder("complete").type_bool().per_key(int).build()
READY = new_builder("ready").type_long().build()
BARRIER = new_builder("day").type_long().barrier().build()


def endless(env: ExecutionEnvironment) -> Any:
    return env.from_source(DataGeneratorSource(int, records_per_batch=3))


def waits_for_endless_side(env: ExecutionEnvironment) -> Any:
    side: Any = broadcast_side()
    few: Any = env.from_collection([1, 2])
    return few.connect_and_process(endless(env).broadcast(), side, wait_for_broadcast=WaitForBroadcast())


def barrier_from_one_input(env: ExecutionEnvironment) -> Any:
    first: Any = env.from_collection([1]).process(one_input(declare_watermarks=lambda: [BARRIER]))
    both: Any = two_inputs(on_watermark_from_first_input=lambda *args: None)
    return first.connect_and_process(endless(env), both)


def per_key(key: Callable[[Any], Any]) -> Callable[[ExecutionEnvironment], Any]:
    def build(env: ExecutionEnvironment) -> Any:
        declared: Any = env.from_collection([1]).process(one_input(declare_watermarks=lambda: [COMPLETE]))
        return key(declared).process(one_input(on_key_watermark=lambda *args: None))

    return build


def plain_to_key_callback(env: ExecutionEnvironment) -> Any:
    declared: Any = env.from_collection([1]).process(one_input(declare_watermarks=lambda: [READY]))
    return declared.key_by(abs).process(one_input(on_watermark=lambda *args: None, on_key_watermark=lambda *args: None))


def per_key_to_plain_callback(env: ExecutionEnvironment) -> Any:
    declared: Any = env.from_collection([1]).process(one_input(declare_watermarks=lambda: [COMPLETE]))
    return declared.key_by(abs).process(one_input(on_watermark=lambda *args: None))


def said_by(env: ExecutionEnvironment) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.execute_async(trigger=Trigger.available_now()).stop()
    return [one for one in caught if issubclass(one.category, Dsv2Warning)]


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (waits_for_endless_side, "broadcast-wait-never-ends"),
        (barrier_from_one_input, "barrier-never-sent"),
        (per_key(lambda stream: stream), "handler-never-called"),
        (per_key(lambda stream: stream.key_by(abs)), None),
        (plain_to_key_callback, "handler-never-called"),
        (per_key_to_plain_callback, "handler-never-called"),
    ],
)
def test_execute_warns_of_what_explain_warns_of(build: Callable[[ExecutionEnvironment], Any], code: str | None) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    build(env).with_uid("here").to_sink(CollectSink())
    view = env.explain().view
    (location,) = (one.location for one in view.operators if one.uid == "here")
    said = said_by(env)
    listed = [finding for finding in view.findings if finding.severity is Severity.WARNING]
    assert [finding.code for finding in listed] == ([] if code is None else [code])
    assert [one.category for one in said] == [PlanWarning] * len(listed)
    for finding, one in zip(listed, said, strict=True):
        assert f"{one.filename}:{one.lineno}" == location
        assert str(one.message).startswith(f"[{code}] ")
        assert str(one.message).endswith(f"{finding.message} {finding.advice}")


def test_unread_stream_is_a_plan_warning_of_its_own_class() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1]).map(abs)
    assert [one.category for one in said_by(env)] == [UnreadStreamWarning]
    assert issubclass(UnreadStreamWarning, PlanWarning)


def test_a_kind_of_warning_can_be_ignored_or_made_an_error() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    per_key(lambda stream: stream)(env).to_sink(CollectSink())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PlanWarning, match="key_by"):
            env.execute()
        warnings.filterwarnings("ignore", r"\[handler-never-called\]", PlanWarning)
        env.execute()


def test_a_start_does_not_load_the_drawing_of_plans() -> None:
    program = """
import sys, dsv2
assert not any(name.startswith("dsv2.plan_view") for name in sys.modules)
env = dsv2.ExecutionEnvironment.get_instance(runtime="local")
env.from_collection([1]).to_sink(dsv2.CollectSink())
env.execute()
assert "dsv2.plan_view.findings" in sys.modules
print([name for name in sys.modules if name.startswith("dsv2.views.explain")])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_callback_whose_watermarks_are_all_addressed_to_others_is_only_a_note() -> None:
    addressed = new_builder("ready").type_long().deliver_to("other").build()
    env = ExecutionEnvironment.get_instance(runtime="local")
    declared: Any = env.from_collection([1]).process(one_input(declare_watermarks=lambda: [addressed]))
    for uid in ("here", "other"):
        declared.process(one_input(on_watermark=lambda *args: None)).with_uid(uid).to_sink(CollectSink())
    view = env.explain().view
    found = [(one.code, one.severity, view.operators[one.operators[0]].uid) for one in view.findings]
    assert found == [("handler-never-called", Severity.NOTE, "here")]
    assert said_by(env) == []
