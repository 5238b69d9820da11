"""The Pythons that ``./run newcomer`` finds, and what it runs with each of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import newcomer
from tests.newcomer import Interpreter, Step, find_interpreters, plan_steps, run_step

OLDEST, MIDDLE, NEWEST = (
    Interpreter(version, "python3." + str(version[1])) for version in [(3, 11, 2), (3, 12, 1), (3, 13, 0)]
)


def add_python(folder: Path, name: str, version: tuple[int, int, int], *, usable: bool = True) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    described = {"executable": str(file), "version": version, "usable": usable}
    file.write_text(f"#!/bin/sh\necho '{json.dumps(described)}'\n")
    file.chmod(0o755)
    return file


def test_each_version_is_found_once_oldest_first(tmp_path: Path) -> None:
    system, other = tmp_path / "system", tmp_path / "other"
    newer = add_python(system, "python3.12", (3, 12, 1))
    add_python(other, "python3.12", (3, 12, 1))
    older = add_python(other, "python3.11", (3, 11, 2))
    patched = add_python(other, "python3", (3, 11, 7))
    (other / "python3.9").symlink_to(newer)
    found = find_interpreters([system, other, tmp_path / "missing"])
    assert found == [
        Interpreter((3, 11, 2), str(older)),
        Interpreter((3, 11, 7), str(patched)),
        Interpreter((3, 12, 1), str(newer)),
    ]


def test_unusable_interpreters_are_skipped(tmp_path: Path) -> None:
    add_python(tmp_path, "python3.10", (3, 10, 9))
    add_python(tmp_path, "python3-config", (3, 12, 1))
    add_python(tmp_path, "python3.13", (3, 13, 0), usable=False)
    (tmp_path / "python3.14").write_text("not a program")
    (tmp_path / "python3.11").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.11").chmod(0o755)
    assert find_interpreters([tmp_path]) == []


def test_own_python_is_found(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    (found,) = find_interpreters([tmp_path])
    assert found.version == sys.version_info[:3]


def test_all_tests_run_under_the_oldest_and_the_newest() -> None:
    steps = plan_steps([OLDEST, MIDDLE, NEWEST], short=False, usual=MIDDLE.version)
    assert [step.interpreter for step in steps] == [OLDEST, MIDDLE, NEWEST]
    assert steps[0].commands == steps[2].commands == (("test",),)
    assert "not spark" in steps[1].commands[0]
    (only,) = plan_steps([MIDDLE], short=False, usual=MIDDLE.version)
    assert only.commands == (("test",),)


@pytest.mark.parametrize(
    ("interpreters", "usual", "taken"),
    [
        ([OLDEST, MIDDLE, NEWEST], MIDDLE, [OLDEST]),
        ([OLDEST, MIDDLE, NEWEST], OLDEST, [MIDDLE]),
        ([MIDDLE], MIDDLE, []),
    ],
)
def test_short_form_uses_one_more_python(
    interpreters: list[Interpreter], usual: Interpreter, taken: list[Interpreter]
) -> None:
    steps = plan_steps(interpreters, short=True, usual=usual.version)
    assert [step.interpreter for step in steps] == taken


@pytest.mark.parametrize(
    ("commands", "passed"),
    [([["good"]], True), ([["good"], ["good"]], True), ([["bad"], ["good"]], False), ([["good"], ["bad"]], False)],
)
def test_step_passes_if_all_of_its_commands_do(
    commands: list[list[str]],
    passed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "run"
    script.write_text(
        '#!/bin/sh\nmkdir -p .venv-3.12.1\necho "$@; PYTHONPATH=$PYTHONPATH"\ncase "$*" in *bad) exit 3 ;; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", "/of/this/run")
    assert run_step(Step(MIDDLE, "some tests", commands), tmp_path)[1] == passed
    shown = capfd.readouterr().out
    for (command,) in commands:
        assert f"--python {MIDDLE.executable} {command}; PYTHONPATH=\n" in shown
    assert not list(tmp_path.glob(".venv*"))


def test_single_python_is_reported_but_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(newcomer, "find_interpreters", lambda folders: [Interpreter(sys.version_info[:3], "python3")])
    assert newcomer.main(["--short"]) == 0
    assert "There is no other Python here" in capsys.readouterr().out
