"""``dsv2 new``: the project that it writes works as it is, and names that a project cannot have are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import dsv2
from dsv2.cli import main
from tests import ROOT

CHECK = ("-m", "dsv2", "check", "--strict", "shop_2.jobs:totals")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "shop-2"]) == 0
    assert "dsv2 run shop_2.jobs:totals" in capsys.readouterr().out
    return tmp_path / "shop-2"


def python(project: Path, *arguments: str) -> str:
    """Run Python in the project as its developers do, and return the output."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=project, env=variables, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_project_passes_its_check_and_its_tests_and_runs(project: Path) -> None:
    assert python(project, *CHECK, "--no-types") == "shop_2.jobs:totals: no errors\n"
    assert "2 passed" in python(project, "-m", "pytest", "-p", "pytest_dsv2", "--dsv2-runtime", "local")
    assert "has finished" in python(project, "-m", "dsv2", "run", "--available-now", "shop_2.jobs:totals")
    assert list((project / "data/totals").glob("*.parquet"))


@pytest.mark.nightly  # mypy analyses all of dsv2; tests/typing checks the types of a project every time
def test_check_of_the_types(project: Path) -> None:
    assert "Success: no issues found" in python(project, *CHECK)


def test_style_of_the_project(project: Path) -> None:
    python(project, "-m", "ruff", "check", "--isolated", "--select", "E,F,I,N,UP,B", ".")
    python(project, "-m", "ruff", "format", "--isolated", "--check", ".")


def test_files_are_valid_and_name_the_project(project: Path) -> None:
    metadata = tomllib.loads((project / "pyproject.toml").read_text())
    assert metadata["project"]["name"] == "shop-2"
    assert metadata["project"]["dependencies"] == [f"dsv2[files]>={dsv2.__version__}"]
    assert metadata["tool"]["mypy"]["overrides"] == [{"module": "pyarrow.*", "ignore_missing_imports": True}]
    assert metadata["tool"]["setuptools"]["packages"] == ["shop_2"]
    assert tomllib.loads((project / "dsv2.toml").read_text())["name"] == "shop-2"
    workflow = import_module("yaml").safe_load((project / ".github/workflows/ci.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert commands[1:] == ["dsv2 check --strict shop_2.jobs:totals", "mypy", "pytest"]
    container = (project / "Dockerfile").read_text()
    assert '"dsv2", "run", "shop_2.jobs:totals"' in container
    copied = [name for line in container.splitlines() if line.startswith("COPY") for name in line.split()[1:-1]]
    assert all((project / name).exists() for name in copied)
    assert not [file for file in project.rglob("*") if file.is_file() and "$" in file.read_text()]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Shop", "'Shop' is not a name of a project. Use lower-case letters, digits, - and _."),
        ("../shop", "'../shop' is not a name of a project."),
        ("2shop", "'2shop' is not a name of a project."),
        ("shop-", "'shop-' is not a name of a project."),
        ("class", "A project cannot be called class. Choose another name."),
        ("tests", "A project cannot be called tests."),
        ("json", "There is already a Python module json. Choose another name."),
        ("runtime-spark", "There is already a Python module runtime_spark."),
        ("taken", "There is already a file or folder taken. Choose another name."),
    ],
)
def test_refused_names(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    assert main(["new", name]) == 2
    assert message in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
