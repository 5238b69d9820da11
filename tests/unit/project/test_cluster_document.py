"""docs/cluster.md names the packages that are checked, and its Dockerfile installs what the project declares."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from runtime_spark.platform import executors
from runtime_spark.platform.versions import SUPPORTED
from tests import ROOT

PAGE = (ROOT / "docs/cluster.md").read_text()
INSTRUCTIONS = {"ARG", "FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "ENTRYPOINT"}


@pytest.fixture
def project() -> dict[str, Any]:
    declared: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return declared


@pytest.fixture
def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, and their arguments."""
    (dockerfile,) = re.findall(r"```dockerfile\n(.*?)```", PAGE, re.DOTALL)
    lines = dockerfile.replace("\\\n", "").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line)]


def test_packages_of_workers_are_named() -> None:
    for package in {**executors._PACKAGES, **executors._MAP_STATE}.values():
        assert f"`{package}`" in PAGE, package


def test_stages_and_versions_of_the_dockerfile(instructions: list[tuple[str, str]], project: dict[str, Any]) -> None:
    assert {name for name, _ in instructions} == INSTRUCTIONS
    versions = dict(rest.split("=") for name, rest in instructions if name == "ARG")
    assert tuple(map(int, versions["SPARK"].split(".")[:2])) == SUPPORTED[-1]
    assert f"Programming Language :: Python :: {versions['PYTHON']}" in project["classifiers"]
    stages = [rest.partition(" AS ")[2] for name, rest in instructions if name == "FROM"]
    assert stages == ["spark", ""]
    copied = [re.findall(r"--from=(\S+)", rest) for name, rest in instructions if name == "COPY"]
    assert {stage for found in copied for stage in found} == {"spark"}
    assert all(rest.split()[-1].startswith("/") for name, rest in instructions if name == "COPY")


def test_dockerfile_installs_what_workers_need(instructions: list[tuple[str, str]], project: dict[str, Any]) -> None:
    (installed,) = (rest for name, rest in instructions if name == "RUN" and "pip install" in rest)
    extras = project["optional-dependencies"]
    chosen = re.findall(r"\[([a-z,-]+)\]\"", installed)[0].split(",")
    requirements = [*project["dependencies"], *(one for extra in chosen for one in extras[extra])]
    requirements += re.findall(r'"([a-z]+[^"$]*)"', installed)
    names = {re.split(r"[<>=\[]", requirement)[0] for requirement in requirements}
    assert names - {"numpy"} == {*executors._PACKAGES.values(), *executors._MAP_STATE.values()}, "pandas brings numpy"
    of_spark = {requirement for requirement in extras["spark"] if not requirement.startswith("pyspark")}
    assert of_spark <= set(requirements), "the same versions as the extra spark, whose PySpark is in the image"
