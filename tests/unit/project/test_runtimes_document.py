"""The tables in docs/runtimes.md name all that a program may use, and say what the local runtime does with it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dsv2.arrow
import dsv2.connectors.delta
import dsv2.connectors.files
import dsv2.connectors.http
import dsv2.connectors.iceberg
import dsv2.connectors.kafka
import dsv2.connectors.kinesis
import dsv2.connectors.mqtt
import dsv2.connectors.nats
import dsv2.connectors.opensearch
import dsv2.connectors.postgres
import dsv2.connectors.redis
import dsv2.connectors.sql
import dsv2.sinks
import dsv2.sources
import dsv2.testing
from dsv2 import ExecutionEnvironment, JobHandle, Trigger
from dsv2.errors import ConfigurationError
from dsv2.jobs import JobOptions
from dsv2.sinks import CollectSink, DriverSink, FileSink, Sink
from dsv2.sources import BaseSource, DataFrameSource
from dsv2.testing import Stop, TestSource
from tests import ROOT
from tests.support import NoRows

TEXT = (ROOT / "docs" / "runtimes.md").read_text()
MODULES = (
    dsv2.arrow, dsv2.sinks, dsv2.sources, dsv2.testing, dsv2.connectors.files, dsv2.connectors.kafka,
    dsv2.connectors.postgres, dsv2.connectors.sql, dsv2.connectors.redis, dsv2.connectors.delta, dsv2.connectors.http,
    dsv2.connectors.iceberg, dsv2.connectors.kinesis, dsv2.connectors.mqtt, dsv2.connectors.nats,
    dsv2.connectors.opensearch,
)  # fmt: skip


def table(title: str) -> dict[str, str]:
    """Return the column of the local runtime, by the names in the first column."""
    _, _, rest = TEXT.partition(f"| {title} |")
    rows = [line.strip("| ").split(" | ") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    return {name: row[2] for row in rows for name in re.findall(r"`(\w+)`", row[0])}


def classes(base: type) -> Iterator[str]:
    for module in MODULES:
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and issubclass(found, base) and not inspect.isabstract(found):
                yield name


def test_arguments_of_execute() -> None:
    documented = set(table("argument of `execute` and `execute_async`"))
    for method in (ExecutionEnvironment.execute, ExecutionEnvironment.execute_async):
        own = set(inspect.signature(method).parameters) - {"self", "options"}
        assert own | JobOptions.__annotations__.keys() == documented


def test_settings_of_the_environment() -> None:
    settings = {name for name in vars(ExecutionEnvironment) if name.startswith(("set_", "register_"))}
    assert settings == set(table("setting of the environment"))


def test_methods_of_the_handle() -> None:
    methods = {name for name in vars(JobHandle) if not name.startswith("_")}
    assert methods == set(table("on the handle of `execute_async`"))


def test_sources_and_sinks() -> None:
    abstract = {"ParallelSink", "ArrowSink", "DriverSink", "Sink"}
    assert set(table("source")) == set(classes(BaseSource))
    assert set(table("sink")) - abstract == set(classes(Sink)) - abstract


VALUES: dict[str, Any] = {
    "job_name": "a job", "checkpoint_location": "checkpoint", "trigger": Trigger.processing_time(),
    "allow_dropped_state": True, "savepoint": "savepoint", "as_new_job": True, "continued_sources": ["in"],
    "on_change": "refuse", "dead_letters": "letters", "skip_records": {"in": [(0, 1)]}, "trace_records": True,
}  # fmt: skip


@pytest.mark.parametrize("argument", VALUES)
def test_local_runtime_accepts_each_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str) -> None:
    monkeypatch.chdir(tmp_path)

    def run(**options: Any) -> Any:
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.from_source(TestSource[int]([1, 2, Stop(), 3])).with_uid("in").to_sink(sink).with_uid("out")
        job = env.execute_async(**options)
        job.await_termination()
        return job

    sink = CollectSink[int]()
    if argument in ("savepoint", "as_new_job"):
        run().savepoint("savepoint")
    options = {"savepoint": "savepoint"} if argument == "as_new_job" else {}
    run(**{argument: VALUES[argument]}, **options)
    assert sink.results[:1] == [1]
    assert not table("argument of `execute` and `execute_async`")[argument].startswith("refused")


def test_what_is_refused() -> None:
    tables = ("source", "sink", "setting of the environment", "on the handle of `execute_async`")
    refused = {name for title in tables for name, local in table(title).items() if local.startswith("refused")}
    assert refused == {"DataFrameSource", "ContinuedDataFrameSource"}
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_source(DataFrameSource(NoRows(), dict)).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match="only Spark can read"):
        env.execute()


def test_other_types_of_sinks_are_refused() -> None:
    class Own(Sink[int]):
        pass

    assert not issubclass(Own, DriverSink | FileSink)
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1]).to_sink(Own())
    with pytest.raises(ConfigurationError, match="has a type that the local runtime does not support"):
        env.execute()
