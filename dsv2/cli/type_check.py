"""Checks the types of a module with mypy, if it is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class TypeCheck:
    """The result of a type check.

    Attributes:
        passed: False if a type is wrong.
        summary: ``ok``, ``errors`` or ``not checked``.
        lines: What to print.
    """

    passed: bool
    summary: str
    lines: Sequence[str]


def check_types(module: str) -> TypeCheck:
    """Run mypy on a module, in the current directory, whose configuration it uses."""
    if find_spec("mypy") is None:
        return TypeCheck(True, "not checked", ["Types were not checked: mypy is not installed (pip install mypy)."])
    command = [sys.executable, "-m", "mypy", "--no-color-output", "-m", module]
    result = subprocess.run(command, capture_output=True, text=True)
    passed = result.returncode == 0
    lines = [f"Types: {line}" for line in (result.stdout + result.stderr).splitlines()]
    return TypeCheck(passed, "ok" if passed else "errors", lines)
