"""Refusals and decisions of the Spark runtime that run nothing on Spark."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock, Mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

import runtime_spark
from dsv2 import ErrorPolicy, ExecutionEnvironment, JobError
from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.folder_kinds import LOCAL_FILES
from dsv2.cli.command import open_savepoint
from dsv2.cli.dead_letters import open_letters
from dsv2.dead_letters import DeadLetters
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError, InternalError, PlanError
from dsv2.file_log import DataFile, MergeGroup
from dsv2.file_log.description import Description
from dsv2.model.context import RuntimeExecutionMode
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.sources import BaseSource
from runtime_spark import SparkRuntime, command_line, compiler, create_savepoint, to_dataframe
from runtime_spark.checkpoint.file_merges import SparkMerger
from runtime_spark.checkpoint.generations import Generations
from runtime_spark.frames import worker
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.session import SESSION_SETTINGS
from runtime_spark.frames.tasks import Tasks
from runtime_spark.frames.worker import load_job, pack_job
from runtime_spark.job.runtime_view import runtime_view
from runtime_spark.platform.executors import use_this_python
from runtime_spark.platform.folders import _Hadoop, _HadoopFolder
from runtime_spark.savepoint.edit import write_on_spark


class Word(NamedTuple):
    word: str


def on_spark(session: Any = None) -> ExecutionEnvironment:
    return ExecutionEnvironment.get_instance(SparkRuntime(session))


def test_objects_that_are_no_session_are_refused(tmp_path: Path) -> None:
    session: Any = 42
    for start in (
        lambda: runtime_spark.create(session),
        lambda: create_savepoint(tmp_path, tmp_path / "new", spark=session),
        lambda: write_on_spark(session, str(tmp_path), SimpleNamespace()),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match=r"spark=\.\.\. must be a SparkSession, got int\."):
            start()


def test_dataframe_requires_the_spark_runtime() -> None:
    env = ExecutionEnvironment.get_instance("local")
    with pytest.raises(ConfigurationError, match="to_dataframe requires the Spark runtime"):
        to_dataframe(env, env.from_collection([Word("a")]), Word)


def test_dataframe_of_a_pipeline_with_sinks_is_refused() -> None:
    env = on_spark()
    words = env.from_collection([Word("a")])
    words.to_sink(CollectSink())
    with pytest.raises(PlanError, match="requires a pipeline without sinks, but there is Sink"):
        to_dataframe(env, words, Word)


def test_dataframe_of_a_pipeline_with_dead_letters_is_refused() -> None:
    env = on_spark()
    words = env.from_collection([Word("a")]).map(lambda word: word)
    words.with_error_policy(ErrorPolicy().dead_letter(ValueError))
    with pytest.raises(PlanError, match=r"has dead letters, which to_dataframe cannot store. Use\s+skip"):
        to_dataframe(env, words, Word)


def test_error_of_spark_while_it_compiles_names_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AnalysisException("no such column")

    monkeypatch.setattr(compiler, "check_source", fail)
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).to_sink(CollectSink())
    session: Any = None
    with pytest.raises(JobError, match=r"(?s)words.*no such column"):
        SparkRuntime(session).compile(env.build_plan("words"))


def test_state_layout_is_shown_for_streaming_jobs_only() -> None:
    for mode in RuntimeExecutionMode:
        env = ExecutionEnvironment.get_instance("local")
        env.set_execution_mode(mode)
        env.from_collection([1]).to_sink(CollectSink())
        plan = env.build_plan()
        shown = {fact.name for fact in runtime_view(plan, Layout.of(plan)).facts}
        assert ("state layout" in shown) == (mode is RuntimeExecutionMode.STREAMING)


class Unreadable(BaseSource[int]):
    """A source of a kind of its own."""

    @property
    def bounded(self) -> bool:
        return True

    def declare_watermarks(self) -> tuple[()]:
        return ()


def test_source_of_an_unknown_kind_is_refused() -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.from_source(Unreadable()).to_sink(CollectSink())
    plan = env.build_plan()
    assert "has a type that the Spark runtime does not support" in (runtime_view(plan, Layout.of(plan)).refusal or "")


def test_checkpoint_of_a_local_job_is_refused(tmp_path: Path) -> None:
    LocalFolder(str(tmp_path)).write(f"{LOCAL_FILES}/1", b"")
    with pytest.raises(IncompatibleCheckpointError, match="is the checkpoint of a job in the local runtime"):
        Generations(LocalFolder(str(tmp_path)))


class Files:
    """Replaces Hadoop's file system. Nothing can be renamed."""

    def exists(self, path: str) -> bool:
        return True

    def create(self, path: str, overwrite: bool) -> Any:
        return SimpleNamespace(write=lambda data: None, close=lambda: None)

    def makeQualified(self, path: HadoopPath) -> HadoopPath:  # noqa: N802 - Hadoop's name, as all below
        return path

    def delete(self, path: str, recursive: bool) -> None: ...
    def mkdirs(self, path: str) -> None: ...

    def rename(self, path: str, new: str) -> bool:
        return False


class NoContext:
    """A file system without a ``FileContext``."""

    def getFileContext(self, uri: str, configuration: object) -> Any:  # noqa: N802
        raise Py4JJavaError("unsupported", SimpleNamespace(_target_id="o1", _gateway_client=SimpleNamespace()))


class HadoopPath(str):
    def getFileSystem(self, configuration: object) -> Files:  # noqa: N802
        return Files()

    def toUri(self) -> str:  # noqa: N802
        return str(self)

    def getParent(self) -> str:  # noqa: N802
        return self.rpartition("/")[0]


def test_failed_renames_are_errors() -> None:
    classes = {"org.apache.hadoop.fs.Path": HadoopPath, "org.apache.hadoop.fs.FileContext": NoContext()}
    folder = _HadoopFolder("hdfs://a", _Hadoop(SimpleNamespace(**classes), "hdfs://a", None))
    with pytest.raises(OSError, match=r"hdfs://a/b/_c\.new cannot be renamed to hdfs://a/b/c"):
        folder.write("b/c", b"")
    with pytest.raises(OSError, match="hdfs://a/b cannot be renamed to hdfs://a/c"):
        folder.move("b", "c")
    assert not folder.create("b/c", b"")


class Context:
    """Replaces a ``SparkContext``."""

    def __init__(self, master: str, python: str | None = None) -> None:
        self.master = master
        self.pythonExec = "python3"
        self._python = python

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {} if self._python is None else {"spark.pyspark.python": self._python}


@pytest.mark.parametrize(
    ("context", "named", "used"),
    [
        (Context("local[2]"), False, True),
        (Context("local[2]"), True, False),
        (Context("local[2]", "/usr/bin/python3"), False, False),
        (Context("spark://host"), False, False),
    ],
)
def test_workers_of_one_machine_run_this_python(
    monkeypatch: pytest.MonkeyPatch, context: Context, named: bool, used: bool
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if named:
        monkeypatch.setitem(os.environ, "PYSPARK_PYTHON", "python3")
    context.pythonExec = "python3"
    use_this_python(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]
    assert context.pythonExec == (sys.executable if used else "python3")


def test_workers_run_this_python_before_a_checkpoint_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration starts workers, too."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    context = Context("local[2]")
    context.pythonExec = "python3"
    SparkRuntime(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]
    assert context.pythonExec == sys.executable


def test_tasks_are_empty_if_spark_reports_none() -> None:
    session: Any = SimpleNamespace(sparkContext=None)  # as with Spark Connect
    tasks = Tasks(None, None)  # type: ignore[arg-type]
    assert tasks.running(session) == tasks.failed(session, "run") == []


def test_tasks_are_looked_up_when_spark_has_processed_its_events() -> None:
    session = Mock()
    session.sparkContext.statusTracker().getActiveStageIds.return_value = []
    session.sparkContext.statusTracker().getJobIdsForGroup.return_value = []
    tasks = Tasks(None, None)  # type: ignore[arg-type]
    looks: list[tuple[Callable[[], list[int]], str]] = [
        (lambda: tasks.running(session), "getActiveStageIds"),
        (lambda: tasks.failed(session, "run"), "getJobIdsForGroup"),
    ]
    for look, last in looks:
        session.reset_mock()
        assert look() == []
        names = [name.rpartition(".")[2] for name, *_ in session.mock_calls]
        assert names.index("waitUntilEmpty") < names.index(last)


class Builder:
    """Replaces ``SparkSession.builder``."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> Builder:  # noqa: N802 - Spark's name
        return self

    def master(self, master: str) -> Builder:
        return self.config("spark.master", master)

    def config(self, name: str = "", value: str = "", *, map: dict[str, str] | None = None) -> Builder:
        self.settings |= {name: value} if map is None else map
        return self

    def getOrCreate(self) -> dict[str, str]:  # noqa: N802
        return self.settings


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is active, and a new one is a dict of its settings."""
    monkeypatch.setattr(command_line, "SparkSession", SimpleNamespace(builder=Builder(), getActiveSession=lambda: None))


@pytest.mark.usefixtures("no_session")
def test_commands_run_on_this_machine_unless_told_otherwise() -> None:
    session: Any = command_line.session({})
    assert session["spark.master"] == "local[*]"
    assert session.items() >= SESSION_SETTINGS.items()


@pytest.mark.usefixtures("no_session")
def test_commands_use_the_master_they_are_given() -> None:
    session: Any = command_line.session({"spark.master": "spark://host"})
    assert session == {**SESSION_SETTINGS, "spark.master": "spark://host"}


@pytest.mark.usefixtures("no_session")
def test_commands_open_savepoints_and_letters_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for opened in (Savepoint, DeadLetters):
        monkeypatch.setattr(opened, "open", lambda path, spark: (path, spark["spark.a"]))
    savepoint: Any = open_savepoint("hdfs://a", Namespace(conf=["spark.a=1"]))
    letters: Any = open_letters("hdfs://b", Namespace(conf=["spark.a=2"]))
    assert (savepoint, letters) == (("hdfs://a", "1"), ("hdfs://b", "2"))


def test_state_that_spark_cannot_read_is_an_error_of_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unreadable(*_: object) -> None:
        raise OSError("a block is missing")

    record = SimpleNamespace(job_name="words")
    generation = SimpleNamespace(stored=Mock(), history=None, record=record)
    for name, replacement in (
        ("session", lambda settings: None),
        ("F", MagicMock()),
        ("open_folder", lambda spark, path: LocalFolder(path)),
        ("read_generation", lambda folder: generation),
        ("state_entries", unreadable),
    ):
        monkeypatch.setattr(command_line, name, replacement)
    with pytest.raises(JobError, match=r"(?s)words.*a block is missing"):
        command_line.verify(str(tmp_path), {}, None)


def test_files_without_a_description_are_not_merged(tmp_path: Path) -> None:
    session: Any = None
    with pytest.raises(InternalError, match="has no description of its files"):
        SparkMerger(session, LocalFolder(str(tmp_path)))([], "staging")


def test_repeated_micro_batch_is_traced() -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).to_sink(CollectSink())
    plan = env.build_plan()
    for traced, expected in ((None, False), (0, True)):
        job = load_job(pack_job(plan, Layout.of(plan), TypeRegistry.of(plan), traced_batch=traced))
        assert job.running_plan.traces == expected


class Truncating(SparkMerger):
    """Merges files into one that lacks their last byte."""

    def _read(self, description: Description, schema: int, files: Any) -> Any:
        return None

    def _counts(self, records: DataFrame) -> dict[str, int]:
        return {"a": 1, "b": 1}

    def _write(self, records: DataFrame, places: Any, target: str, format: str, groups: int) -> None:
        name = f"{target.removeprefix(f'{self._folder.path}/')}/dsv2_group=0/part.txt"
        self._folder.write(name, b"1\n2")


def test_merged_file_of_another_size_is_an_error(tmp_path: Path) -> None:
    folder, session = LocalFolder(str(tmp_path)), Mock()
    Description.update(folder, "json", [], {"fields": []})
    group = MergeGroup("", 0, tuple(DataFile(name, 2, 0, 0, 0) for name in "ab"))
    with pytest.raises(InternalError, match=r"part\.txt has 3 bytes instead of 4"):
        Truncating(session, folder)([group], "staging")


@pytest.mark.parametrize("in_task", [False, True])
def test_logging_is_configured_in_tasks_only(monkeypatch: pytest.MonkeyPatch, in_task: bool) -> None:
    configured: list[Any] = []
    monkeypatch.setattr(worker, "TaskContext", SimpleNamespace(get=lambda: object() if in_task else None))
    monkeypatch.setattr(worker, "configure_logging", configured.append)
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).to_sink(CollectSink())
    plan = env.build_plan(f"logging {in_task}")
    logging = {"version": 1}
    load_job(pack_job(plan, Layout.of(plan), TypeRegistry.of(plan), logging=logging))
    assert configured == ([logging] if in_task else [])
