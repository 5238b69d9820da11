"""Every Python block of the documents is a program: it runs, and it checks with ``mypy --strict``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.documents import DOCUMENTS, ROOT, program_of, said_by

PROGRAMS = {str(document.relative_to(ROOT)): program_of(document) for document in DOCUMENTS}
PROGRAMS = {name: program for name, program in PROGRAMS.items() if program.strip()}
NEED_SERVERS = {"docs/connectors.md"}  # tests/spark/test_connectors_document.py runs it
each_document = pytest.mark.parametrize("name", PROGRAMS)


def test_the_readme_shows_a_program() -> None:
    assert "README.md" in PROGRAMS


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


@each_document
def test_the_blocks_have_the_right_types(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{Path(name).stem}.py"
    file.write_text(PROGRAMS[name])
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--strict",
        "--implicit-reexport",  # as in pyproject.toml for confluent_kafka
        "--follow-imports=silent",  # what is wrong with the project is told elsewhere
        "--disable-error-code=import-untyped",  # pyarrow has no types
        f"--cache-dir={ROOT / '.mypy_cache' / 'docs'}",
    ]
    run = subprocess.run([*command, str(file)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
