"""The example that upgrades hot topics, on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, JobHandle, Trigger
from examples.upgrades import upgrade
from runtime_spark import SparkRuntime
from tests.upgraded import check_events


@pytest.mark.nightly
def test_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    def start(env: ExecutionEnvironment, savepoint: Path | None) -> JobHandle:
        checkpoint = tmp_path / ("checkpoint" if savepoint is None else f"checkpoint-{savepoint.name}")
        return env.execute_async(
            "hot topics", checkpoint_location=checkpoint, savepoint=savepoint, trigger=Trigger.available_now()
        )

    check_events(
        upgrade(tmp_path, lambda: ExecutionEnvironment.get_instance(SparkRuntime(spark, partitions=2)), start), tmp_path
    )
