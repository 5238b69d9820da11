"""A program that fails in a shared process fails its test and does not affect other programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.program_process import ProgramProcess

PROGRAMS = {
    "fine": "def main(arguments): print('said', *arguments); return 0",
    "failing": "def main(arguments): print('tried'); return 3",
    "raising": "def main(arguments): raise ValueError('no luck')",
    "refusing": "import sys\ndef main(arguments): sys.exit('wrong arguments')",
    "ending": "import os\ndef main(arguments): os._exit(0)",
    "noisy": "import os\ndef main(arguments): os.write(1, b'not an answer'); return 0",
}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ProgramProcess]:
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(text)
    process = ProgramProcess(tmp_path, {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"})
    yield process
    process.stop()


def test_output_is_that_of_one_program(process: ProgramProcess) -> None:
    assert process.run("fine", ["a", "b"]) == "said a b\n"
    assert process.run("noisy", []) == ""
    assert process.run("fine", []) == "said\n"


@pytest.mark.parametrize(
    ("program", "said"), [("failing", "tried"), ("raising", "ValueError: no luck"), ("refusing", "wrong arguments")]
)
def test_failure_is_shown_and_the_next_program_runs(process: ProgramProcess, program: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        process.run(program, [])
    assert process.run("fine", []) == "said\n"


def test_end_of_the_process_is_a_failure(process: ProgramProcess) -> None:
    with pytest.raises(AssertionError, match="ending ended the process"):
        process.run("ending", [])
