"""The examples in docstrings run and produce the documented output."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from tests import ROOT

MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for package in ("dsv2", "runtime_spark", "components", "examples")
    for file in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples(module: str) -> None:
    result = doctest.testmod(import_module(module.removesuffix(".__init__")))
    assert result.attempted
    assert not result.failed
