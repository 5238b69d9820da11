"""``./run``: its imports do not depend on the current directory, and each Python has its own environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import ROOT

IMPORTED_BY_ACCIDENT = "argparse", "ensurepip", "json", "pip", "platform", "venv"
PROGRAM = """
import argparse, json, platform
if __name__ == "__main__":
    print("imported", argparse.__file__)
"""
# Replaces the creation of environments, the installation into them, and all checks and tests. One fails: $BROKEN.
PYTHON = """#!/bin/sh
case "$*" in
*"-m pip install"*)
    echo "$*" >&2
    exec {python} "$1" "$2" "$3" --version
    ;;
*"-m venv"*)
    {python} "$1" "$2" "$3" --help >/dev/null || exit 1
    for folder in "$@"; do :; done
    mkdir -p "$folder/bin"
    cp "$0" "$folder/bin/python"
    ;;
*"-m ruff"* | *"-m mypy"* | *"-m pytest"* | *"-m components.class_archive"*)
    echo "ran $*"
    case "$*" in *"${{BROKEN:-nothing}}"*) exit 1 ;; esac
    ;;
*)
    exec {python} "$@"
    ;;
esac
"""
JAVA = """#!/bin/sh
printf '    java.home = {home}\n    java.specification.version = 17\n' >&2
"""


def write_program(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


class Project:
    """A project with the real ``run``, programs that print their imports, and replacements for Python and Java."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a project"
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        self.root.mkdir()
        shutil.copy(ROOT / "run", self.root)
        shutil.copy(ROOT / "pyproject.toml", self.root)
        for module in (
            "examples.hot_topics",
            "examples.hello",
            "benchmarks.hello",
            "components.kafka",
            "components.spark_cluster",
        ):
            write_program(self.root / (module.replace(".", "/") + ".py"), PROGRAM)
        write_program(self.root / "components" / "postgres.py", PROGRAM)
        for module in ("newcomer", "wheel"):
            write_program(self.root / "tests" / f"{module}.py", PROGRAM)
        for name in IMPORTED_BY_ACCIDENT:
            (self.elsewhere / f"{name}.py").write_text(f"raise SystemExit('imported {name} from here')")
        programs = folder / "programs"
        for name in ("mvn", "postgres", "chromium"):
            write_program(programs / name, "#!/bin/sh\n")
        write_program(programs / "java" / "bin" / "java", JAVA.format(home=programs / "java"))
        for name in ("python3", "python3.11", "python3.12", "python3.13"):
            write_program(programs / name, PYTHON.format(python=sys.executable))
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "JAVA_HOME": str(programs / "java"),
        }

    def run(self, *arguments: str, broken: str = "nothing") -> subprocess.CompletedProcess[str]:
        """``./run`` with ``arguments``, called from a directory with modules named like those of Python."""
        command = [str(self.root / "run"), *arguments]
        return subprocess.run(
            command,
            cwd=self.elsewhere,
            env={**self.environment, "BROKEN": broken},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        ["hot-topics"], ["example", "hello"], ["bench", "hello"], ["kafka"], ["postgres"], ["cluster"], ["newcomer"],
        ["wheel"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_files_in_the_current_directory_are_not_imported(project: Project, command: list[str]) -> None:
    done = project.run(*command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("imported ")
    assert "from here" not in done.stdout + done.stderr


def test_subprocesses_do_not_import_from_the_directory(project: Project) -> None:
    write_program(
        project.root / "examples" / "hello.py",
        """
import subprocess, sys
if __name__ == "__main__":
    subprocess.run([sys.executable, "-m", "json.tool", "--help"], check=True)
""",
    )
    done = project.run("example", "hello")
    assert done.returncode == 0, done.stderr


def test_each_python_has_its_own_environment(project: Project) -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    done = project.run("--python", "python3.12", "example", "hello")
    assert done.returncode == 0, done.stderr
    assert f"Creating .venv-{version} with" in done.stderr
    assert [file.name for file in project.root.glob(".venv*")] == [f".venv-{version}"]
    assert "Creating" not in project.run("--python", "python3.12", "example", "hello").stderr
    assert "Creating .venv with" in project.run("example", "hello").stderr


def test_each_spark_has_its_own_environment(project: Project) -> None:
    done = project.run("--spark", "4.2", "example", "hello")
    assert done.returncode == 0, done.stderr
    assert "Creating .venv-spark-4.2 with" in done.stderr
    assert "pyspark==4.2.*" in done.stderr
    version = ".".join(map(str, sys.version_info[:3]))
    with_python = project.run("--python", "python3.12", "--spark", "4.3", "example", "hello")
    assert f"Creating .venv-{version}-spark-4.3 with" in with_python.stderr
    assert "pyspark" not in project.run("example", "hello").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--spark"], "--spark requires a version"),
        (["--spark", "four"], "four is not a version of Spark such as 4.2."),
        (["--python"], "--python requires a Python"),
        (["--python", "python3.99", "test"], "There is no python3.99."),
        (["--python", "false", "test"], "false is not Python 3.11 or newer."),
    ],
)
def test_unusable_python_is_refused(project: Project, arguments: list[str], said: str) -> None:
    done = project.run(*arguments)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("broken", "failed"),
    [
        ("nothing", ""),
        ("mypy", "Failed: types"),
        ("=20 tests/unit", "Failed: unit"),
        ("=20 tests/browser", "Failed: browser"),
        ("--ignore=tests/unit", "Failed: others"),
    ],
)
def test_all_tests_run_once_and_fail_if_a_part_does(project: Project, broken: str, failed: str) -> None:
    done = project.run("test", broken=broken)
    assert done.returncode == bool(failed)
    assert not failed or done.stderr.splitlines()[-1] == failed
    ran = [line.removeprefix("ran -m ").split()[0] for line in done.stdout.splitlines() if line.startswith("ran ")]
    assert Counter(ran) == {"ruff": 2, "components.class_archive": 1, "mypy": 1, "pytest": 6}


def test_some_tests_run_in_one_process(project: Project) -> None:
    done = project.run("test", "tests/unit", "-x", broken="-m pytest tests/unit -x")
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if "pytest" in line] == ["ran -m pytest tests/unit -x"]
