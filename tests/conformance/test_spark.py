"""Every program on Spark. In each setting all of them run side by side in one query. Most settings are nightly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from tests.conformance.harness import (
    NIGHTLY_SPARK_SETTINGS,
    SPARK_SETTINGS,
    Program,
    Run,
    Setting,
    SharedRuns,
    run_programs,
)
from tests.conformance.programs import PROGRAMS, WITH_KEYED_STATE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def programs_of(setting: Setting) -> Sequence[Program]:
    """Settings of state matter only for programs with state."""
    return WITH_KEYED_STATE if setting.maps else PROGRAMS


pytestmark = pytest.mark.timeout(900)  # the first test of a setting runs all programs


@pytest.fixture(scope="module")
def runs_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SharedRuns:
    from runtime_spark import SparkRuntime, StateLayout

    def run(setting: Setting) -> dict[str, Run]:
        folder = tmp_path_factory.mktemp("conformance")
        checkpoint = str(folder / "checkpoint") if setting.needs_checkpoint else None
        # In one of the settings two subtasks share each task.
        partitions = 2 if setting.parallelism == 3 else None
        state_layout = StateLayout.MAP if setting.maps else StateLayout.BLOB
        runtime = SparkRuntime(spark, partitions=partitions, state_layout=state_layout)
        return run_programs(programs_of(setting), setting, runtime, folder, checkpoint)

    return SharedRuns(run)


@pytest.mark.parametrize(
    ("setting", "program"),
    [
        pytest.param(setting, program, id=f"{setting}-{program.name}", marks=marks)
        for settings, marks in ((SPARK_SETTINGS, ()), (NIGHTLY_SPARK_SETTINGS, pytest.mark.nightly))
        for setting in settings
        for program in programs_of(setting)
    ],
)
def test_program(setting: Setting, program: Program, runs_of: SharedRuns) -> None:
    run = runs_of(setting)[program.name]
    program.check(run)
    run.expect_counts()
    run.expect_ended_watermarks()
