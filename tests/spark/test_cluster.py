"""A program that ``spark-submit`` sends to a cluster whose machines do not have the project."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from examples import hot_topics
from tests.without_project import new_environment, project_zip

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
TWEETS = ["--tweets", "20000"]
PROJECT_VARIABLES = ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_environment(tmp_path_factory.mktemp("cluster") / "environment")


def submit(python: Path, program: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    """Submit ``program`` to a cluster of two executors. It gets the arguments of the first example."""
    inherited = {name: value for name, value in os.environ.items() if name not in PROJECT_VARIABLES}
    spark_submit = Path(pyspark.__file__).with_name("bin") / "spark-submit"
    cluster = ["--master", "local-cluster[2,1,768]", "--conf", "spark.executor.memory=768m"]
    return subprocess.run(
        [spark_submit, *cluster, *options, program, *TWEETS, "--work-dir", str(program.parent / "work")],
        cwd=program.parent,
        env={**inherited, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )


def table(printed: str) -> list[str]:
    """The table of hot topics."""
    lines = printed.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("topic "))
    return lines[begin : lines.index("", begin)]


def test_executors_and_planners_get_the_project_from_a_zip_file(
    python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Path(shutil.copy(ROOT / "examples" / "hot_topics.py", tmp_path))
    ran = submit(python, program, ["--py-files", str(project_zip(tmp_path / "dsv2.zip"))])
    assert ran.returncode == 0, ran.stderr
    assert hot_topics.main(["--mode", "local", *TWEETS]) == 0
    assert table(ran.stdout) == table(capsys.readouterr().out)


def test_missing_project_is_reported(python: Path, tmp_path: Path) -> None:
    """Only the driver has it, because its program extends its own import path."""
    zipped = project_zip(tmp_path / "dsv2.zip")
    program = tmp_path / "on_the_driver.py"
    program.write_text(
        f"import sys\nsys.path.append({str(zipped)!r})\nfrom examples import hot_topics\nsys.exit(hot_topics.main())"
    )
    ran = submit(python, program, [])
    assert ran.returncode == 1
    # spark-submit passes on both streams of the program to its standard output.
    assert "cannot import dsv2, runtime_spark. Ship the packages of this project with --py-files" in ran.stdout
