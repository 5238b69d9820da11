"""``./run newcomer``: the checks that a new contributor runs after cloning, with every Python of this machine.

The checkout is cloned into a new directory called ``dsv2``, and ``./run --python PYTHON test`` is run there: all tests
with the oldest and the newest Python, the suites without Spark with those in between. This module imports only the
standard library, because creating the environments is part of the test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TypeAlias

from tests import ROOT

Version: TypeAlias = tuple[int, int, int]

_OLDEST_VERSION = (3, 11, 0)
_PLACES = ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_VERSIONS_OF_PYENV = "versions/*/bin"
_NAME = re.compile(r"python3(\.\d+)?")
_DESCRIBE = """
import json, platform, sys
print(json.dumps({
    "executable": sys.executable,
    "version": sys.version_info[:3],
    "usable": platform.python_implementation() == "CPython" and sys.version_info.releaselevel == "final"
    and sys.prefix == sys.base_prefix,
}))
"""
_ALL = (("test",),)
_LOCAL = ("-m", "not spark")
_UNITS, _PROGRAMS = ("tests/unit", "tests/property"), ("tests/conformance",)
_CHECKED = (("test", *_LOCAL, *_UNITS, *_PROGRAMS),)
# Without tests/property: those tests check algorithms, which do not depend on the version of Python.
_SIDE_BY_SIDE = tuple(("python", "-m", "pytest", "-q", *_LOCAL, suite) for suite in (*_PROGRAMS, "tests/unit"))
_NOT_FOR_NEWCOMERS = re.compile(r"PYTHON|PYTEST|MYPY|VIRTUAL_ENV|SPARK_HOME|CONDA")  # prefixes of variables


@dataclass(frozen=True, order=True)
class Interpreter:
    """A Python of this machine."""

    version: Version
    executable: str

    def __str__(self) -> str:
        return f"Python {'.'.join(map(str, self.version))} ({self.executable})"


@dataclass(frozen=True)
class Step:
    """The commands for one Python: arguments of ``./run --python``, which run side by side."""

    interpreter: Interpreter
    what: str
    commands: Sequence[Sequence[str]]


def find_interpreters(folders: Iterable[Path]) -> list[Interpreter]:
    """The releases of CPython from 3.11 on in ``folders``, oldest first. The first one found of each version."""
    found: dict[Version, Interpreter] = {}
    seen: set[Path] = set()
    for folder in folders:
        for file in sorted(folder.glob("python3*")):
            if _NAME.fullmatch(file.name) is None or file.resolve() in seen:
                continue
            seen.add(file.resolve())
            interpreter = _describe(file)
            if interpreter is not None and interpreter.version >= _OLDEST_VERSION:
                found.setdefault(interpreter.version, interpreter)
    return sorted(found.values())


def _describe(file: Path) -> Interpreter | None:
    try:
        said = subprocess.run([file, "-I", "-c", _DESCRIBE], capture_output=True, text=True, timeout=60, check=True)
        described = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if not described["usable"]:
        return None
    return Interpreter(tuple(described["version"]), described["executable"])


def _folders() -> list[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return [*map(Path, (*_PLACES, *on_path)), *sorted(pyenv.glob(_VERSIONS_OF_PYENV))]


def plan_steps(interpreters: Sequence[Interpreter], *, short: bool, usual: Version) -> list[Step]:
    """The steps for each of ``interpreters``, which are sorted.

    ``short``: only the unit and conformance tests without Spark, with the oldest one that is not ``usual``, which
    ``./run test`` uses.
    """
    if short:
        others = [interpreter for interpreter in interpreters if interpreter.version != usual]
        return [Step(other, "unit and conformance tests", _SIDE_BY_SIDE) for other in others[:1]]
    ends = (interpreters[0], interpreters[-1])
    return [
        Step(interpreter, "all tests", _ALL)
        if interpreter in ends
        else Step(interpreter, "all checks and tests without Spark", _CHECKED)
        for interpreter in interpreters
    ]


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if every step succeeded."""
    options = _parse(arguments)
    interpreters = find_interpreters(_folders())
    steps = plan_steps(interpreters, short=options.short, usual=_this_version())
    print("Found:", *interpreters, sep="\n  ", flush=True)
    if not steps:
        print("There is no other Python here, so there is nothing more to run.")
        return 0
    with tempfile.TemporaryDirectory(prefix="newcomer-", ignore_cleanup_errors=True) as folder:
        clone = _clone(Path(folder) / "dsv2")
        outcomes = [run_step(step, clone) for step in steps]
    print("", *(line for line, _ in outcomes), sep="\n", flush=True)
    return 0 if all(succeeded for _, succeeded in outcomes) else 1


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run newcomer",
        description="Clone this checkout into a directory called dsv2, and run the tests there under every Python of "
        "this machine from 3.11 on: all of them under the oldest and the newest, those without Spark under the others. "
        "It takes more than an hour. What is not committed is not cloned.",
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="only the unit and conformance tests without Spark, and only under the oldest Python that is not the one "
        "of ./run test; if there is none, nothing",
    )
    return parser.parse_args(arguments)


def _this_version() -> Version:
    return tuple(map(int, platform.python_version_tuple()))  # type: ignore[return-value]


def _clone(target: Path) -> Path:
    if not (ROOT / ".git").exists():
        sys.exit(f"{ROOT} is not a Git checkout, so it cannot be cloned.")
    if subprocess.run(["git", "-C", ROOT, "status", "--porcelain"], capture_output=True, check=True).stdout:
        print("There are changes that are not committed: they are not part of what is tested.", flush=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, target], check=True)
    return target


def run_step(step: Step, clone: Path) -> tuple[str, bool]:
    """Return the outcome of ``step`` as a line, and whether it succeeded."""
    print(f"\n=== {step.interpreter}: {step.what}\n", flush=True)
    began = time.monotonic()
    succeeded = _run_commands(step, clone)
    minutes = (time.monotonic() - began) / 60
    for environment in clone.glob(".venv-*"):
        shutil.rmtree(environment)  # a gigabyte
    return f"{step.interpreter}: {step.what}: {'passed' if succeeded else 'FAILED'}, {minutes:.0f} min", succeeded


def _run_commands(step: Step, clone: Path) -> bool:
    """Create the environment, and run the commands in it. The first one shows its output at once, the others at the
    end."""
    start = partial(_start, step.interpreter, clone)
    if start(("python", "-c", "")).wait() != 0:
        return False
    first, *others = step.commands
    with ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in others]
        running = [start(first), *(start(command, log) for command, log in zip(others, logs, strict=True))]
        codes = [process.wait() for process in running]
        for log in logs:
            log.seek(0)
            print(f"\n{log.read()}", flush=True)
    return not any(codes)


def _start(
    interpreter: Interpreter, clone: Path, command: Sequence[str], log: IO[str] | None = None
) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not _NOT_FOR_NEWCOMERS.match(name)}
    return subprocess.Popen(
        ["./run", "--python", interpreter.executable, *command],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log and subprocess.STDOUT,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
