"""The examples on Spark give the same answers as on the local runtime. In each setting they share one job.

One of them also runs as a separate program, as users start it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from components.python_path import python_path
from dsv2 import RuntimeExecutionMode
from runtime_spark import SparkRuntime
from tests import ROOT
from tests.conformance.harness import Program, Run, Setting, run_programs
from tests.example_programs import EXAMPLES

# Spark ends Python processes that were idle for a minute, and those of sources with the job. Some of them print such a
# trace, several at once, and not always to its end. Those with TCP connections have the module socket in it.
PROCESS_ENDED = re.compile(
    r"|Traceback \(most recent call last\):|During handling of the above exception, another exception occurred:"
    r'|  File "(?:[^"]*/(?:pyspark|python3\.\d+)/[^"]*|<frozen runpy>)", .*|    .*'
    r"|EOFError|(?:BrokenPipe|ConnectionReset)Error: .*|PySpark daemon failed to flush .*"
)
SETTINGS = [Setting(2, portions=2), Setting(2, mode=RuntimeExecutionMode.BATCH)]


@pytest.fixture(scope="module", params=SETTINGS, ids=str)
def runs(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """The runs by the name of the example."""
    setting: Setting = request.param
    folder = tmp_path_factory.mktemp("examples")
    checkpoint = str(folder / "checkpoint") if setting.needs_checkpoint else None
    return run_programs(EXAMPLES, setting, SparkRuntime(spark), folder, checkpoint)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_finds_the_answer(example: Program, runs: dict[str, Run]) -> None:
    example.check(runs[example.name])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_program_output() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "examples.grades"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert run.returncode == 0, run.stderr
    assert "Ada       1     88\nAda       1     95\nBob       2     72\n" in run.stdout
    # Java always prints one line, and the job one every few seconds.
    printed = [line for line in run.stderr.splitlines() if not PROCESS_ENDED.fullmatch(line)]
    started, *others = [line for line in printed if "incubator modules" not in line]
    assert started == "Starting Spark ..."
    assert [line for line in others if not line.startswith("grades: ")] == []
