"""A streaming job that is stopped and restarted continues unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, JobHandle, JobStatus, Trigger
from dsv2.errors import CorruptDataError
from dsv2.jobs import OperatorProgress
from runtime_spark import SparkRuntime, StateKey, StateLayout
from tests.spark.programs import build, read_back
from tests.support import wait_until

COUNT, PER_BATCH, BATCHES = 60, 15, 4


def new_environment(
    spark: SparkSession, layout: StateLayout = StateLayout.BLOB, key: StateKey | None = None
) -> ExecutionEnvironment:
    return ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout, state_key=key))


def run_some(
    spark: SparkSession,
    output: Path,
    checkpoint: str,
    layout: StateLayout = StateLayout.BLOB,
    key: StateKey | None = None,
) -> JobHandle:
    """Run the first micro-batch, and stop."""
    env = new_environment(spark, layout, key)
    build(env, str(output), COUNT, PER_BATCH)
    never_again = Trigger.processing_time(timedelta(days=1_000))
    job = env.execute_async("restarted", checkpoint_location=checkpoint, trigger=never_again)
    wait_until(lambda: job.progress.batch_id == 0)
    job.stop()
    return job


def counted(operators: Mapping[str, OperatorProgress]) -> dict[str, OperatorProgress]:
    """The progress without times, and without the sizes of state, which depend on the layout."""
    return {
        uid: replace(
            progress,
            state_bytes=0,
            records_in_per_second=0.0,
            records_out_per_second=0.0,
            splits=(),
            subtasks=tuple(
                replace(subtask, user_time_ms=0.0, state_bytes=0, inputs=()) for subtask in progress.subtasks
            ),
        )
        for uid, progress in operators.items()
    }


class Undisturbed(NamedTuple):
    """A run from start to end."""

    rows: list[tuple[Any, ...]]
    operators: Mapping[str, OperatorProgress]

    def before(self, batch: int) -> list[tuple[Any, ...]]:
        return [row for row in self.rows if row[0] < batch]


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    env = new_environment(spark)
    build(env, str(folder / "out"), COUNT, PER_BATCH)
    result = env.execute("undisturbed", checkpoint_location=str(folder / "checkpoint"))
    rows = read_back(folder / "out")
    assert {row[0] for row in rows} == set(range(BATCHES))
    assert {row[1] for row in rows} == {"sum", "watermark", "total"}
    return Undisturbed(rows, result.progress.operators)


def test_job_stopped_between_micro_batches_continues(
    spark: SparkSession, checkpoint: str, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    output = tmp_path / "out"
    first = run_some(spark, output, checkpoint)
    assert first.status is JobStatus.STOPPED
    reached = first.progress.batch_id
    assert 0 <= reached < BATCHES - 1, "it was to be stopped before its end"
    assert read_back(output) == undisturbed.before(reached + 1)

    env = new_environment(spark)
    build(env, str(output), COUNT, PER_BATCH)
    progress = env.execute("restarted", checkpoint_location=checkpoint).progress
    assert read_back(output) == undisturbed.rows
    assert counted(progress.operators) == counted(undisturbed.operators)  # counters continue from the checkpoint

    # It has ended, so there is nothing to do.
    env = new_environment(spark)
    build(env, str(output), COUNT, PER_BATCH)
    assert env.execute("restarted", checkpoint_location=checkpoint).progress.batch_id == -1
    assert read_back(output) == undisturbed.rows


def test_signed_state_requires_its_key(
    spark: SparkSession, checkpoint: str, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    output, key, layout = tmp_path / "out", StateKey(b"signs the state of this one job."), StateLayout.MAP
    run_some(spark, output, checkpoint, layout, key)
    for other, reason in (
        (None, "is signed, but the job has no key"),
        (StateKey(b"signs the state of another job.."), "the signature does not match"),
    ):
        env = new_environment(spark, layout, other)
        build(env, str(output), COUNT, PER_BATCH)
        with pytest.raises(CorruptDataError, match=reason):
            env.execute("restarted", checkpoint_location=checkpoint)
    env = new_environment(spark, layout, key)
    build(env, str(output), COUNT, PER_BATCH)
    env.execute("restarted", checkpoint_location=checkpoint)
    assert read_back(output) == undisturbed.rows
