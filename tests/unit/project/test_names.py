"""Names and docstrings of the product, read from the source files."""

from __future__ import annotations

import ast
from collections import Counter

from tests import ROOT

TREES = {
    str(file.relative_to(ROOT)): ast.parse(file.read_text())
    for package in ("dsv2", "runtime_spark")
    for file in sorted((ROOT / package).rglob("*.py"))
}


def test_class_names_are_unique() -> None:
    names = Counter(node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, number in names.items() if number > 1] == []


def test_docstrings_name_things_and_ask_nothing() -> None:
    questions = {"What", "Which", "Whether", "How", "Where", "When", "Who", "Whose", "Why"}
    found = [
        f"{file}:{node.lineno}"
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if node.value.value.partition(" ")[0] in questions
    ]
    assert found == []
