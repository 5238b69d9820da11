"""The user's session: what a job changes in it, and what it restores."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import runtime_spark
import runtime_spark.platform.log_filter as quiet_log
from dsv2 import Collector, ExecutionEnvironment, JobError, PartitionedContext, RuntimeExecutionMode, Trigger
from dsv2.errors import ConfigurationError, SerializationError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink, FileSink, Sink
from dsv2.sources import DataGeneratorSource
from runtime_spark import SparkRuntime, StateLayout
from runtime_spark.frames.session import settings as session_settings
from runtime_spark.frames.session import starting
from runtime_spark.platform.log_filter import leave_out_warnings
from tests.durations import ms
from tests.support import wait_until

CHECK = "spark.sql.streaming.unsupportedOperationCheck"
PARTITIONS = "spark.sql.shuffle.partitions"
EVALUATION = "spark.sql.codegen.factoryMode"
LOCAL_FILES = "fs.file.impl"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
USUAL_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


def settings(spark: SparkSession) -> dict[str, str]:
    """All settings."""
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


def environment(spark: SparkSession, levels: int, **source: Any) -> tuple[ExecutionEnvironment, CollectSink[int]]:
    """A pipeline with that many levels, over the numbers starting at 0."""
    env, sink = ExecutionEnvironment.get_instance(spark=spark), CollectSink[int]()
    env.set_parallelism(2)  # single subtasks would share a level
    stream = env.from_source(DataGeneratorSource(int, **source))
    for _ in range(levels):
        stream = stream.key_by(lambda number: number % 2).process(lambda record, output, ctx: output.collect(record))
    stream.to_sink(sink)
    return env, sink


class Sum(OneInputStreamProcessFunction[int, int]):
    """Emits the sum so far."""

    def __init__(self) -> None:
        self.total = 0

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        self.total += record
        output.collect(self.total)


class Number(NamedTuple):
    value: int


class Same(OneInputStreamProcessFunction[Number, Number]):
    """Emits what it receives."""

    def process_record(self, record: Number, output: Collector[Number], ctx: PartitionedContext[Number]) -> None:
        output.collect(record)


@pytest.fixture
def usual_manager(spark: SparkSession) -> Iterator[None]:
    """The user has set Spark's default manager of checkpoint files."""
    spark.conf.set(MANAGER, USUAL_MANAGER)
    yield
    spark.conf.unset(MANAGER)


@pytest.fixture
def usual_evaluation(spark: SparkSession) -> Iterator[None]:
    """The session evaluates expressions as it does by default. That of the tests never generates code."""
    before = spark.conf.get(EVALUATION)
    assert before is not None
    spark.conf.unset(EVALUATION)
    yield
    spark.conf.set(EVALUATION, before)


@pytest.fixture
def changed_settings(spark: SparkSession) -> Iterator[None]:
    """Of the settings that a job needs, the user has set one, and the other is not set."""
    before = spark.conf.get(PARTITIONS)
    assert before is not None
    spark.conf.set(PARTITIONS, "17")
    spark.conf.unset(CHECK)
    yield
    spark.conf.set(PARTITIONS, before)


@pytest.fixture
def during_start(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, str | None]]:
    """The values of both settings while a query starts."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    seen: list[tuple[str | None, str | None]] = []
    start = DataStreamWriter.start

    def watched(self: DataStreamWriter, *args: Any, **options: Any) -> Any:
        seen.append((spark.conf.get(CHECK), spark.conf.get(PARTITIONS)))
        return start(self, *args, **options)

    monkeypatch.setattr(DataStreamWriter, "start", watched)
    return seen


@pytest.mark.usefixtures("changed_settings")
def test_settings_of_the_job_apply_during_its_start_only(
    spark: SparkSession, tmp_path: Path, during_start: list[tuple[str | None, str | None]]
) -> None:
    before = settings(spark)
    for levels in (1, 2):
        env, sink = environment(spark, levels, count=4)
        env.execute(f"levels-{levels}", checkpoint_location=str(tmp_path / f"{levels}"))
        assert sorted(sink.results) == [0, 1, 2, 3]
        assert settings(spark) == before
    # One level needs no exception from Spark's rules.
    assert during_start == [("true", "2"), ("false", "2")]
    assert spark.range(5).count() == 5


@pytest.mark.usefixtures("changed_settings")
def test_start_that_fails_leaves_settings_and_a_checkpoint_for_any_program(
    spark: SparkSession, tmp_path: Path, during_start: list[tuple[str | None, str | None]]
) -> None:
    before = settings(spark)
    running, _ = environment(spark, 2)
    job = running.execute_async("a name", checkpoint_location=str(tmp_path / "running"))
    try:
        env, _ = environment(spark, 2)
        with pytest.raises(JobError, match=r"Job 'a name' failed in Spark: .*query with that name is already active"):
            env.execute("a name", checkpoint_location=str(tmp_path / "refused"))
        assert settings(spark) == before
    finally:
        job.stop()
    assert during_start == [("false", "2")] * 2
    env, sink = environment(spark, 1, count=2)
    env.execute("another", checkpoint_location=tmp_path / "refused")
    assert sink.results == [0, 1]
    env, _ = environment(spark, 2)
    env.from_collection([1]).map(lambda number: spark.range(number)).to_sink(CollectSink())
    with pytest.raises(SerializationError):
        env.execute(checkpoint_location=str(tmp_path / "unpicklable"))
    assert settings(spark) == before
    assert len(during_start) == 3


def test_settings_are_restored_after_an_error(spark: SparkSession) -> None:
    before = settings(spark)

    def fail_within() -> None:
        with starting(spark, 3, unchecked=False):
            assert settings(spark) == before | {PARTITIONS: "3"}
            raise KeyError("within")

    with pytest.raises(KeyError):
        fail_within()
    assert settings(spark) == before
    with starting(spark, 4):
        assert settings(spark) == before | {PARTITIONS: "4", CHECK: "false"}
    assert settings(spark) == before
    with starting(spark, 4, state_layout=StateLayout.MAP):
        assert "RocksDB" in settings(spark)["spark.sql.streaming.stateStore.providerClass"]
    assert settings(spark) == before


@pytest.mark.parametrize(
    ("checkpoint", "local"), [("/some/folder", True), ("file:///some/folder", True), ("hdfs://127.0.0.1:1/job", False)]
)
def test_files_of_a_local_checkpoint_are_written_faster(spark: SparkSession, checkpoint: str, local: bool) -> None:
    before = settings(spark)
    with starting(spark, 2, unchecked=False, checkpoint=checkpoint):
        added = settings(spark).items() - before.items() - {(PARTITIONS, "2")}
        assert {name for name, _ in added} == ({MANAGER} if local else set())
    assert settings(spark) == before


def test_checkpoint_manager_of_the_user_takes_precedence(spark: SparkSession, usual_manager: None) -> None:
    with starting(spark, 2, checkpoint="/some/folder"):
        assert spark.conf.get(MANAGER) == USUAL_MANAGER
    assert spark.conf.get(MANAGER) == USUAL_MANAGER


@pytest.mark.parametrize("chosen", [{MANAGER: USUAL_MANAGER}, {STATE_STORE: ROCKSDB}])
def test_checkpoint_that_began_with_settings_of_the_user_continues_without(
    spark: SparkSession, checkpoint: str, chosen: dict[str, str]
) -> None:
    def summed(count: int) -> list[int]:
        env, sink = ExecutionEnvironment.get_instance(spark=spark), CollectSink[int]()
        env.from_source(DataGeneratorSource(int, records_per_batch=count)).process(Sum()).to_sink(sink)
        job = env.execute_async(checkpoint_location=checkpoint)
        wait_until(lambda: len(sink.results) >= 2 * count)
        job.stop()
        return sink.results

    with session_settings(spark, chosen):
        before = summed(2)
    together = dict.fromkeys(before + summed(3))  # a micro-batch may be repeated
    assert len(together) > len(before)
    assert list(together) == [sum(range(number + 1)) for number in range(len(together))]


@pytest.mark.usefixtures("usual_evaluation")
def test_queries_over_frames_interpret_expressions_and_write_no_checksum_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    seen: list[tuple[str | None, str | None]] = []
    start = DataStreamWriter.start

    def watched(self: DataStreamWriter, *args: Any, **options: Any) -> Any:
        seen.append((spark.conf.get(EVALUATION, None), spark.conf.get(LOCAL_FILES, None)))
        return start(self, *args, **options)

    monkeypatch.setattr(DataStreamWriter, "start", watched)

    def run(name: str, sink: Sink[Number], runtime: SparkRuntime) -> bool:
        """Return whether the checkpoint has checksum files of Hadoop."""
        env = ExecutionEnvironment.get_instance(runtime)
        numbers = env.from_source(DataGeneratorSource(Number, count=4)).key_by(lambda number: number.value % 2)
        numbers.process(Same()).to_sink(sink)
        env.execute(checkpoint_location=str(tmp_path / name))
        return (tmp_path / name / "commits" / ".0.crc").exists()

    before, results, blob = settings(spark), CollectSink[Number](), SparkRuntime(spark)
    assert not run("frames", results, blob)
    assert run("rows", FileSink(tmp_path / "out", schema=Number), blob)  # Spark writes each record as a row
    assert run("pages", results, SparkRuntime(spark, state_layout=StateLayout.MAP))
    with session_settings(spark, {EVALUATION: "FALLBACK", MANAGER: USUAL_MANAGER}):
        run("chosen", results, blob)
    raw = "org.apache.hadoop.fs.RawLocalFileSystem"
    assert seen == [("NO_CODEGEN", raw), (None, None), ("NO_CODEGEN", None), ("FALLBACK", None)]
    assert Counter(results.results) == dict.fromkeys(map(Number, range(4)), 3)
    assert settings(spark) == before


@pytest.mark.parametrize(
    ("trigger", "source", "expected"),
    [
        (None, {"count": 2}, {"availableNow": True}),
        (None, {}, {"processingTime": "0 milliseconds"}),
        (Trigger.available_now(), {"records_per_batch": 2}, {"availableNow": True}),
        (Trigger.processing_time(ms(70)), {"count": 2}, {"processingTime": "70 milliseconds"}),
    ],
)
def test_trigger_is_the_given_one_or_fits_the_sources(
    spark: SparkSession,
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    trigger: Trigger | None,
    source: dict[str, int],
    expected: dict[str, object],
) -> None:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    seen: list[dict[str, object]] = []
    set_trigger = DataStreamWriter.trigger

    def watched(self: DataStreamWriter, **options: Any) -> DataStreamWriter:
        seen.append(options)
        return set_trigger(self, **options)

    def no_start(self: DataStreamWriter) -> None:
        raise KeyError("enough seen")

    monkeypatch.setattr(DataStreamWriter, "trigger", watched)
    monkeypatch.setattr(DataStreamWriter, "start", no_start)
    env, _ = environment(spark, 1, **source)
    with pytest.raises(JobError, match="enough seen"):
        env.execute_async("triggered", checkpoint_location=checkpoint, trigger=trigger)
    assert seen == [expected]


def test_only_streaming_jobs_have_a_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    env, _ = environment(spark, 1, count=2)
    with pytest.raises(ConfigurationError, match="A STREAMING job on Spark requires a checkpoint: execute"):
        env.execute()
    for options in ({"checkpoint_location": checkpoint}, {"trigger": Trigger.available_now()}):
        env, _ = environment(spark, 1, count=2)
        env.set_execution_mode(RuntimeExecutionMode.BATCH)
        with pytest.raises(ConfigurationError, match="A BATCH job has neither a checkpoint nor a trigger"):
            env.execute(**options)
    assert not Path(checkpoint).exists()


def test_unwritable_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    for place, reason in (
        (str(tmp_path / "file"), "Not a directory"),
        (str(tmp_path / "file" / "below"), "Not a directory"),
        ("nothing://bucket/job", 'No FileSystem for scheme "nothing"'),
    ):
        env, _ = environment(spark, 1, count=2)
        with pytest.raises(ConfigurationError) as refused:
            env.execute(checkpoint_location=place)
        assert str(refused.value).startswith(f"The checkpoint_location {place} cannot be used: ")
        assert reason in str(refused.value)
        assert "\tat " not in str(refused.value)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "a file"


def test_spark_must_be_a_session() -> None:
    env = ExecutionEnvironment.get_instance(spark="local[2]")
    env.from_collection([1]).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match=r"spark=\.\.\. must be a SparkSession, got str\."):
        env.execute()


def is_logged(spark: SparkSession, logger: str, message: str) -> bool:
    """Return whether the configuration of Spark's log lets a warning pass."""
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    text = log4j.message.SimpleMessage(message)
    event = log4j.core.impl.Log4jLogEvent.newBuilder().setLoggerName(logger).setLevel(log4j.Level.WARN).setMessage(text)
    found = log4j.LogManager.getContext(False).getConfiguration().getLoggerConfig(logger)
    return not found.isFiltered(event.build())


def filters(spark: SparkSession) -> str:
    """The filters of Spark's log."""
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    return str(log4j.LogManager.getContext(False).getConfiguration().getRootLogger().getFilter())


def test_warnings_about_every_job_are_not_logged(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_warnings(spark)
    logger = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
    assert not is_logged(spark, logger, "Disabling AQE since AQE is not supported in stateful workloads.")
    assert is_logged(spark, logger, "The read limit is ignored.")
    ended = "Failed to cancel job group {}. Cannot find active jobs for it."
    assert not is_logged(spark, "org.apache.spark.scheduler.DAGScheduler", ended.format(uuid4()))
    assert is_logged(spark, "org.apache.spark.scheduler.DAGScheduler", ended.format("my group"))
    own = "dsv2.tests.log"
    monkeypatch.setattr(quiet_log, "_MESSAGES", {own: "left out"})
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(own, log4j.Level.WARN)
    leave_out_warnings(spark)
    assert is_logged(spark, own, "left out"), "the user has configured it"
    before = filters(spark)
    leave_out_warnings(spark)
    assert filters(spark) == before, "once"


def test_log_of_a_session_without_a_jvm_stays() -> None:
    leave_out_warnings(object())  # type: ignore[arg-type]


def test_only_the_public_api_of_the_session_is_used() -> None:
    # Spark Connect lacks everything below it, and the session belongs to the user.
    forbidden = {"_jvm", "_jsc", "_jdf", "_jsparkSession", "_sc", "sparkContext", "rdd", "getOrCreate", "builder"}
    # Some things are not possible with the session alone: files, which PySpark reads and writes by jobs that take
    # paths for patterns; the running tasks, which messages omit if Spark does not report them; cancelling batch jobs;
    # counting the streams of a DataFrame; Spark's check of a query before it starts, and accumulators; the number of
    # cores; the Python of workers and executors; what Spark logs. The command line has no session of a user, and builds
    # one. So does the server's process of Spark Connect, which stops the query of a client that may have gone.
    beyond = {"folders.py", "tasks.py", "job_group.py", "streaming_dataframes.py", "file_merges.py"}
    beyond |= {"intermediate_frames.py", "executors.py", "log_filter.py", "command_line.py", "server_run.py"}
    files = [file for file in Path(runtime_spark.__file__).parent.rglob("*.py") if file.name not in beyond]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    by_string = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert (attributes | by_string) & forbidden == set()
    imported = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in imported if "py4j" in name or "classic" in name} == set()
    calls = {ast.unparse(node) for node in nodes if isinstance(node, ast.Call)}
    assert {call for call in calls if call.endswith(".stop()")} == {"self.stop()", "self.query.stop()"}
