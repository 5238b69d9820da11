"""Programs that ``spark-submit`` sends to clusters whose machines do not have the project.

Each program is the first example. It is shipped in one of the ways of docs/cluster.md, and its output must equal that
of the local runtime.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.spark_cluster import SparkCluster, spark_home
from examples import hot_topics
from tests import ROOT
from tests.without_project import PROJECT, environment_archive, new_environment, project_zip

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

TWEETS = ["--tweets", "5000"]
LOCAL_CLUSTER = "local-cluster[1,2,768]"
"""A process for the executor, which has a folder of its own."""
PROJECT_VARIABLES = ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")
FROM_A_ZIP_FILE = """
import sys
sys.path.append({zipped!r})
from examples import hot_topics
{more}
sys.exit(hot_topics.main())
"""
ADD_ARTIFACTS = """
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().addArtifacts({zipped!r}, pyfile=True)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster") / "environment"


@pytest.fixture(scope="module")
def python(environment: Path) -> str:
    """A Python without the project."""
    return str(new_environment(environment))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster."""
    with SparkCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster.master


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """The table of the example on the local runtime."""
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lambda *values, **_: lines.extend(str(value) for value in values))
        assert hot_topics.main(["--mode", "local", *TWEETS]) == 0
    return table("\n".join(lines))


def table(printed: str) -> list[str]:
    """The table of hot topics."""
    lines = printed.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("topic "))
    return lines[begin : lines.index("", begin)]


def submit(master: str, python: str, program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Submit ``program``, which gets the arguments of the first example."""
    inherited = {name: value for name, value in os.environ.items() if name not in PROJECT_VARIABLES}
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", master, "--conf", "spark.executor.memory=768m"]
    return subprocess.run(
        [*command, *options, str(program), *TWEETS, "--work-dir", str(program.parent / "work")],
        cwd=program.parent,
        env={**inherited, "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )


def the_example(folder: Path) -> Path:
    """The example, in a folder without the others."""
    return Path(shutil.copy(ROOT / "examples" / "hot_topics.py", folder))


def test_zip_file_on_a_standalone_cluster(master: str, python: str, tmp_path: Path, expected: list[str]) -> None:
    ran = submit(master, python, the_example(tmp_path), "--py-files", str(project_zip(tmp_path / "packages.zip")))
    assert ran.returncode == 0, ran.stderr
    assert table(ran.stdout) == expected


def test_wheel_on_a_standalone_cluster(master: str, python: str, tmp_path: Path, expected: list[str]) -> None:
    wheel = project_zip(tmp_path / "dsv2-0.1.0-py3-none-any.whl", PROJECT)
    examples = project_zip(tmp_path / "examples.zip", ("examples",))
    ran = submit(master, python, the_example(tmp_path), "--py-files", f"{wheel},{examples}")
    assert ran.returncode == 0, ran.stderr
    assert table(ran.stdout) == expected


def test_artifacts_on_a_standalone_cluster(master: str, python: str, tmp_path: Path, expected: list[str]) -> None:
    zipped = str(project_zip(tmp_path / "packages.zip"))
    program = tmp_path / "with_artifacts.py"
    program.write_text(FROM_A_ZIP_FILE.format(zipped=zipped, more=ADD_ARTIFACTS.format(zipped=zipped)))
    ran = submit(master, python, program)
    assert ran.returncode == 0, ran.stdout
    assert table(ran.stdout) == expected


@pytest.mark.usefixtures("python")
def test_archived_environment_on_a_local_cluster(environment: Path, tmp_path: Path, expected: list[str]) -> None:
    archive = environment_archive(tmp_path / "environment.tar.gz", environment)
    with tarfile.open(archive) as unpacked:  # for the planners of sources; test_executors.py: without it
        unpacked.extractall(tmp_path / "environment", filter="fully_trusted")
    options = "--archives", f"{archive}#environment"
    ran = submit(LOCAL_CLUSTER, "./environment/bin/python", the_example(tmp_path), *options)
    assert ran.returncode == 0, ran.stderr
    assert table(ran.stdout) == expected


def test_missing_project_is_reported(python: str, tmp_path: Path) -> None:
    """Only the driver has it, because its program extends its own import path."""
    program = tmp_path / "on_the_driver.py"
    zipped = str(project_zip(tmp_path / "packages.zip"))
    program.write_text(FROM_A_ZIP_FILE.format(zipped=zipped, more=""))
    ran = submit(LOCAL_CLUSTER, python, program)
    assert ran.returncode == 1
    # spark-submit passes on both streams of the program to its standard output.
    assert "cannot import dsv2, runtime_spark. Ship this project with --py-files" in ran.stdout
