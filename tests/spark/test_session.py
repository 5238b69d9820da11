"""The user's session: what a job does with it, and how it finds it afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import runtime_spark
from dsv2 import (
    Collector,
    ConfigurationError,
    ExecutionEnvironment,
    IncompatibleCheckpointError,
    JobError,
    PartitionedContext,
    RuntimeExecutionMode,
    SerializationError,
    Trigger,
)
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from runtime_spark.layout import StateLayout
from runtime_spark.session import starting
from tests.durations import ms
from tests.spark.test_restart import wait_until

CHECK = "spark.sql.streaming.unsupportedOperationCheck"
PARTITIONS = "spark.sql.shuffle.partitions"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
USUAL_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


def settings(spark: SparkSession) -> dict[str, str]:
    """Everything that is set."""
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


def environment(spark: SparkSession, levels: int, **source: Any) -> tuple[ExecutionEnvironment, CollectSink[int]]:
    """A pipeline of so many levels, over the numbers from 0 on."""
    env, sink = ExecutionEnvironment.get_instance(spark=spark), CollectSink[int]()
    stream = env.from_source(DataGeneratorSource(int, **source))
    for _ in range(levels):
        stream = stream.key_by(lambda number: number % 2).process(lambda record, output, ctx: output.collect(record))
    stream.to_sink(sink)
    return env, sink


class Sum(OneInputStreamProcessFunction[int, int]):
    """The sum so far."""

    def __init__(self) -> None:
        self.total = 0

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        self.total += record
        output.collect(self.total)


@pytest.fixture
def usual_manager(spark: SparkSession) -> Iterator[None]:
    """The user has set the manager of checkpoint files that Spark takes by itself."""
    spark.conf.set(MANAGER, USUAL_MANAGER)
    yield
    spark.conf.unset(MANAGER)


@pytest.fixture
def changed_settings(spark: SparkSession) -> Iterator[None]:
    """One of the settings a job needs is the user's own, the other is not set at all."""
    before = spark.conf.get(PARTITIONS)
    assert before is not None
    spark.conf.set(PARTITIONS, "17")
    spark.conf.unset(CHECK)
    yield
    spark.conf.set(PARTITIONS, before)


@pytest.fixture
def during_start(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, str | None]]:
    """What both settings are while a query starts."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    seen: list[tuple[str | None, str | None]] = []
    start = DataStreamWriter.start

    def watched(self: DataStreamWriter, *args: Any, **options: Any) -> Any:
        seen.append((spark.conf.get(CHECK), spark.conf.get(PARTITIONS)))
        return start(self, *args, **options)

    monkeypatch.setattr(DataStreamWriter, "start", watched)
    return seen


@pytest.mark.usefixtures("changed_settings")
def test_settings_are_the_jobs_while_it_starts_and_the_users_before_and_after(
    spark: SparkSession, tmp_path: Path, during_start: list[tuple[str | None, str | None]]
) -> None:
    before = settings(spark)
    for levels in (1, 2):
        env, sink = environment(spark, levels, count=4)
        env.execute(f"levels-{levels}", checkpoint_location=str(tmp_path / f"{levels}"))
        assert sorted(sink.results) == [0, 1, 2, 3]
        assert settings(spark) == before
    # One level needs no exception from Spark's rules.
    assert during_start == [("true", "1"), ("false", "1")]
    assert spark.range(5).count() == 5


@pytest.mark.usefixtures("changed_settings")
def test_settings_are_the_users_again_when_a_start_fails(
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
    assert during_start == [("false", "1")] * 2
    env, _ = environment(spark, 2)
    env.from_collection([1]).map(Unpicklable(spark)).to_sink(CollectSink())
    with pytest.raises(SerializationError):
        env.execute(checkpoint_location=str(tmp_path / "unpicklable"))
    assert settings(spark) == before
    assert len(during_start) == 2


class Unpicklable:
    """Holds what cannot travel."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark

    def __call__(self, record: Any) -> Any:
        return record


def test_settings_are_restored_after_an_error_too(spark: SparkSession) -> None:
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
    ("checkpoint", "local"), [("/some/folder", True), ("file:///some/folder", True), ("s3a://bucket/job", False)]
)
def test_files_of_a_local_checkpoint_are_written_faster(spark: SparkSession, checkpoint: str, local: bool) -> None:
    before = settings(spark)
    with starting(spark, 2, unchecked=False, checkpoint=checkpoint):
        added = settings(spark).items() - before.items() - {(PARTITIONS, "2")}
        assert {name for name, _ in added} == ({MANAGER} if local else set())
    assert settings(spark) == before


def test_how_the_user_wants_checkpoints_written_counts(spark: SparkSession, usual_manager: None) -> None:
    with starting(spark, 2, checkpoint="/some/folder"):
        assert spark.conf.get(MANAGER) == USUAL_MANAGER
    assert spark.conf.get(MANAGER) == USUAL_MANAGER


def test_a_checkpoint_goes_on_that_was_written_as_spark_does_by_itself(
    spark: SparkSession, checkpoint: str, usual_manager: None
) -> None:
    def summed(count: int) -> list[int]:
        env, sink = ExecutionEnvironment.get_instance(spark=spark), CollectSink[int]()
        env.from_source(DataGeneratorSource(int, records_per_batch=count)).process(Sum()).to_sink(sink)
        job = env.execute_async(checkpoint_location=checkpoint)
        wait_until(lambda: len(sink.results) >= 2 * count)
        job.stop()
        return sink.results

    before = summed(2)
    spark.conf.unset(MANAGER)
    together = dict.fromkeys(before + summed(3))  # a micro-batch may be repeated
    assert len(together) > len(before)
    assert list(together) == [sum(range(number + 1)) for number in range(len(together))]


@pytest.mark.parametrize(
    ("trigger", "source", "expected"),
    [
        (None, {"count": 2}, {"availableNow": True}),
        (None, {}, {"processingTime": "0 milliseconds"}),
        (Trigger.available_now(), {"records_per_batch": 2}, {"availableNow": True}),
        (Trigger.processing_time(ms(70)), {"count": 2}, {"processingTime": "70 milliseconds"}),
    ],
)
def test_the_trigger_is_the_given_one_or_fits_the_sources(
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


def test_a_streaming_job_needs_a_checkpoint_and_a_batch_job_has_none(spark: SparkSession, checkpoint: str) -> None:
    env, _ = environment(spark, 1, count=2)
    with pytest.raises(ConfigurationError, match="A STREAMING job on Spark requires a checkpoint: execute"):
        env.execute()
    for options in ({"checkpoint_location": checkpoint}, {"trigger": Trigger.available_now()}):
        env, _ = environment(spark, 1, count=2)
        env.set_execution_mode(RuntimeExecutionMode.BATCH)
        with pytest.raises(ConfigurationError, match="A BATCH job has neither a checkpoint nor a trigger"):
            env.execute(**options)
    assert not Path(checkpoint).exists()


def test_a_checkpoint_that_cannot_be_written_is_refused(spark: SparkSession, tmp_path: Path) -> None:
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


def test_a_start_that_failed_leaves_a_checkpoint_for_any_program(spark: SparkSession, tmp_path: Path) -> None:
    running, _ = environment(spark, 1)
    job = running.execute_async("a name", checkpoint_location=tmp_path / "running")
    try:
        env, _ = environment(spark, 2, count=2)
        with pytest.raises(JobError, match="query with that name is already active"):
            env.execute("a name", checkpoint_location=tmp_path / "checkpoint")
    finally:
        job.stop()
    env, sink = environment(spark, 1, count=2)
    env.execute("another", checkpoint_location=tmp_path / "checkpoint")
    assert sink.results == [0, 1]
    # Now that it has run, it is the other one's.
    env, _ = environment(spark, 2, count=2)
    with pytest.raises(IncompatibleCheckpointError):
        env.execute("a name", checkpoint_location=tmp_path / "checkpoint")


def test_the_session_has_to_be_one() -> None:
    env = ExecutionEnvironment.get_instance(spark="local[2]")
    env.from_collection([1]).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match=r"spark=\.\.\. must be a SparkSession, got str\."):
        env.execute()


def test_nothing_reaches_around_the_public_api_of_the_session() -> None:
    # What is below it is missing in Spark Connect; and the session is the user's own.
    forbidden = {"_jvm", "_jsc", "_jdf", "_jsparkSession", "_sc", "sparkContext", "rdd", "getOrCreate", "builder"}
    # Three things are beyond the session: files, which PySpark reads and writes by jobs, taking paths for patterns;
    # which tasks are running, which messages leave out where Spark does not say it; and cancelling batch jobs.
    beyond = {"folders.py", "tasks.py", "job_group.py"}
    files = [file for file in Path(runtime_spark.__file__).parent.rglob("*.py") if file.name not in beyond]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    by_string = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert (attributes | by_string) & forbidden == set()
    imported = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in imported if "py4j" in name or "classic" in name} == set()
    calls = {ast.unparse(node) for node in nodes if isinstance(node, ast.Call)}
    assert {call for call in calls if call.endswith(".stop()")} == {"self.query.stop()"}
