"""Every Python block of the documents is a program, and it runs. Its types are checked in tests/typing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.documents import PROGRAMS, ROOT, said_by

NEED_SERVERS = {"docs/connectors.md"}  # tests/spark/test_connectors_document.py runs it


def test_readme_is_a_front_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    assert 10 <= len(PROGRAMS["README.md"].strip().splitlines()) <= 35


def run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a document one after the other."""
    # A module that can be found, because records travel under the name of their class's module.
    module = ModuleType(f"document_{Path(name).stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(PROGRAMS[name], name, "exec"), vars(module))


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - NEED_SERVERS))
def test_the_blocks_run_one_after_the_other_and_print_what_is_said(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(name, monkeypatch)
    assert capsys.readouterr().out.splitlines() == said_by(PROGRAMS[name])
