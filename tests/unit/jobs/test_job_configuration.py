"""The configuration of a job, as the dashboard and the checkpoint show it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dsv2 import CollectSink, RuntimeExecutionMode, Trigger
from dsv2.graph import Plan
from dsv2.jobs.configuration import configuration_of
from dsv2.jobs.handle import RunOptions
from dsv2.sinks import FileSink
from dsv2.sources import DataGeneratorSource
from tests.spans import Spans
from tests.support import local_environment


def plan_of(mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING) -> Plan:
    env = local_environment()
    env.set_execution_mode(mode)
    env.from_source(Secretive({"a": 1})).with_uid("own").to_sink(CollectSink()).with_uid("collected")
    sink = FileSink[Any]("/data/out", format="json", schema="a int")
    env.from_source(DataGeneratorSource(int, count=3)).with_uid("numbers").to_sink(sink).with_uid("files")
    return env.build_plan("shop")


class Secretive(Spans):
    """A source of the user that shows more than it should."""

    def __repr__(self) -> str:
        return "key 1234"


def settings(options: RunOptions, plan: Plan | None = None, **runtime: str) -> dict[str, dict[str, str]]:
    sections = configuration_of(plan or plan_of(), options, runtime)
    return {section.title: {one.name: one.value for one in section.settings} for section in sections}


def test_classes_of_the_user_are_shown_by_their_name() -> None:
    shown = settings(RunOptions())["Sources and sinks"]
    assert shown["own"] == "Secretive"
    assert shown["numbers"] == "DataGeneratorSource"
    assert shown["files"] == "FileSink /data/out"


def test_options_are_shown_if_they_are_set() -> None:
    job = settings(RunOptions())["Job"]
    assert (job["name"], job["mode"], job["on_change"]) == ("shop", "streaming", RunOptions().on_change.value)
    assert not {"as_new_job", "allow_dropped_state", "trace_records", "savepoint", "checkpoint_location"} & job.keys()
    options = RunOptions(
        savepoint="/s", checkpoint_location="s3://u:secret@b/c", as_new_job=True, allow_dropped_state=True
    )
    job = settings(options)["Job"]
    assert (job["savepoint"], job["as_new_job"], job["allow_dropped_state"]) == ("/s", "True", "True")
    assert "secret" not in job["checkpoint_location"]
    assert "Runtime" not in settings(options)
    assert settings(options, seed="0")["Runtime"] == {"seed": "0"}


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (Trigger.available_now(), "what is available now, then stop"),
        (Trigger.processing_time(timedelta(0)), "without pause"),
        (Trigger.processing_time(timedelta(seconds=2)), "every 2,000 ms"),
    ],
)
def test_trigger(trigger: Trigger, text: str) -> None:
    assert settings(RunOptions(trigger=trigger))["Job"]["trigger"] == text
