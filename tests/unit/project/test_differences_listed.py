"""Each row in the list of differences from Flink names at least one existing test."""

from __future__ import annotations

import ast
from re import findall
from typing import Any

import pytest

from tests import ROOT

_, LIST = (ROOT / "docs" / "architecture.md").read_text().split("## Where behaviour differs from Flink 2.3 on purpose")
LIST, SAME = LIST.split("## What remains as in Flink 2.3")
ROWS = [line.strip("| ").split(" | ") for line in LIST.splitlines() if line.startswith("| ")][1:]


def names_of_tests() -> set[str]:
    """Names of the unit and property tests and proofs, and of the programs that run on every runtime."""
    names = set[str]()
    tests = ast.FunctionDef, "test_"
    folders: dict[str, tuple[Any, str]] = {
        **dict.fromkeys(("unit", "property", "proofs"), tests),
        "conformance": (ast.ClassDef, ""),
    }
    for folder, (kind, beginning) in folders.items():
        for file in (ROOT / "tests" / folder).rglob("*.py"):
            found = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kind))
            names |= {node.name for node in found if node.name.startswith(beginning)}
    return names


@pytest.fixture(scope="module")
def names() -> set[str]:
    return names_of_tests()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_difference_names_its_tests(row: list[str], names: set[str]) -> None:
    flink, ours, tests = row
    assert flink
    assert ours
    shown_by = findall(r"`(\w+)`", tests)
    assert shown_by
    assert set(shown_by) <= names


def test_list_was_found() -> None:
    assert len(ROWS) > 30


def test_what_remains_names_existing_tests(names: set[str]) -> None:
    named = set(findall(r"`(test_\w+)`", SAME))
    assert named
    assert named <= names
