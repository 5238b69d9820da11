"""The idleness programs, on the local runtime in every setting, and on Spark in their own setting because they wait."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dsv2.local import LocalRuntime
from tests.conformance.harness import LOCAL_SETTINGS, NIGHTLY_LOCAL_SETTINGS, Program, Setting, run_programs
from tests.conformance.programs_idleness import PROGRAMS
from tests.profiles import nightly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = [*LOCAL_SETTINGS, *nightly(*NIGHTLY_LOCAL_SETTINGS)]


class Steps:
    """A clock on which every reading takes one millisecond, no matter how slow the machine is."""

    def __init__(self) -> None:
        self._looks = itertools.count()

    def now_ms(self) -> int:
        return next(self._looks)

    def wait(self, duration: timedelta) -> None: ...


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: Program, setting: Setting, tmp_path: Path) -> None:
    batches = () if setting.batch is None else (setting.batch,)
    runtime = LocalRuntime(seed=setting.seed, batches=batches, checks=setting.checks, clock=Steps())
    program.check(run_programs([program], setting, runtime, tmp_path)[program.name])


@pytest.mark.spark
def test_programs_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from runtime_spark import SparkRuntime

    runs = run_programs(PROGRAMS, Setting(2, 6), SparkRuntime(spark), tmp_path, str(tmp_path / "checkpoint"))
    for program in PROGRAMS:
        program.check(runs[program.name])
