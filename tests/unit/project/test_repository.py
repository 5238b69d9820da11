"""Facts that the repository states in several places agree."""

from __future__ import annotations

import re
import tomllib

import pytest

import dsv2
from runtime_spark.platform.versions import SUPPORTED
from storms.nightly import STORMS
from tests import ROOT
from tests.documents import DOCUMENTS
from tests.unit.project.test_public_api import FOR_USERS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {file.stem: file.read_text() for file in (ROOT / ".github" / "workflows").glob("*.yml")}
SPARKS = [f"{major}.{minor}" for major, minor in SUPPORTED]
PYTHONS = [
    version
    for classifier in PROJECT["classifiers"]
    for version in re.findall(r"^Programming Language :: Python :: (3\.\d+)$", classifier)
]


@pytest.mark.parametrize(("name", "expected"), [("python", PYTHONS), ("spark", SPARKS[1:])])
def test_workflow_matrices_have_every_supported_version(name: str, expected: list[str]) -> None:
    matrices = re.findall(rf"^ +{name}: \[(.*)\]$", WORKFLOWS["ci"], re.MULTILINE)
    assert matrices
    assert all(re.findall(r'"([\d.]+)"', matrix) == expected for matrix in matrices)


def test_nightly_workflow_has_the_oldest_spark() -> None:
    assert re.findall(r"pyspark==([\d.]+)\.\*", WORKFLOWS["nightly"]) == SPARKS[:1]


@pytest.mark.parametrize(("label", "versions"), [("Python", PYTHONS), ("Spark (PySpark)", SPARKS)])
def test_versioning_policy_has_every_supported_version(label: str, versions: list[str]) -> None:
    policy = (ROOT / "docs" / "versioning.md").read_text()
    (row,) = (line for line in policy.splitlines() if line.startswith(f"| {label} |"))
    assert re.findall(r"\d\.\d+", row) == versions


def test_each_release_lists_invalidated_checkpoints() -> None:
    _, *releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert releases[0].startswith(f"{dsv2.__version__} (")
    assert all("\n### Invalidates checkpoints\n\n- " in release for release in releases)


@pytest.mark.parametrize("file", ["LICENSE", "NOTICE"])
def test_license_files_are_packed(file: str) -> None:
    assert file in PROJECT["license-files"]
    assert (ROOT / file).read_text().strip()


def test_reference_has_every_user_module() -> None:
    pages = (page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown = [module for page in pages for module in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)]
    assert set(FOR_USERS) <= set(shown)


def test_tests_that_documents_name_exist() -> None:
    named = {file for document in DOCUMENTS for file in re.findall(r"\btests/[\w/]+\.py\b", document.read_text())}
    assert len(named) > 10
    assert [file for file in sorted(named) if not (ROOT / file).is_file()] == []


def test_actions_are_pinned_by_digest() -> None:
    actions = [line.strip() for text in WORKFLOWS.values() for line in text.splitlines() if "uses:" in line]
    assert len(actions) > 30
    assert [line for line in actions if not re.fullmatch(r"- uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_nightly_workflow_has_every_storm() -> None:
    (storms,) = re.findall(r"^ +storm: \[(.*)\]$", WORKFLOWS["nightly"], re.MULTILINE)
    assert storms.split(", ") == list(STORMS)
