"""The steps of ``docs/tutorial.md``. ``python -m tests.tutorial`` runs them on Spark, and writes the page."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from itertools import groupby
from pathlib import Path

from dsv2.cli import main
from tests import ROOT

PAGE = ROOT / "docs" / "tutorial.md"

_BLOCK = re.compile(r'^```(?:(console)|\w+ title="(In )?([\w./]+)")\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_VARIES = [
    (r"(Processing .* again\.).*", r"\1"),  # the local runtime does not migrate the checkpoint for this
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "<time>"),
    (r"after micro-batch \d+, [\d.]+ m?s ago", "<when>"),
    (r"in [\d.]+s", "<duration>"),
    (r"\b\d+\.\d+\.[0-9a-f]{6}\b", "<letter>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
]


def page_after_running(text: str) -> str:
    """The page with the current output. Files are written to the current directory."""

    def replaced(block: re.Match[str]) -> str:
        console, part, name, text = block.groups()
        if not console:
            file = Path(name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(_changed(file.read_text(), text) if part else text)
            return block[0]
        commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
        shown = "".join(f"$ {command}\n{_run(shlex.split(command))}" for command in commands)
        return f"```console\n{shown}```"

    return _BLOCK.sub(replaced, text)


def comparable(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, name in _VARIES:
        text = re.sub(pattern, name, text)
    lines = re.sub(r"-{2,}| {2,}", " ", text).splitlines()  # widths of columns
    groups = groupby(lines, key=lambda line: bool(re.match(r"2027-| \d", line)))  # timers and keys have no order
    return "\n".join(line for unordered, group in groups for line in (sorted(group) if unordered else group))


def _changed(before: str, text: str) -> str:
    """The module ``before`` with the definitions and further imports of ``text``."""
    new = dict(_definitions(text))
    lines = before.splitlines()
    for name, (first, last) in reversed(dict(_definitions(before)).items()):
        if name in new:
            start, end = new.pop(name)
            lines[first:last] = text.splitlines()[start:end]
    imports = [line for start, end in new.values() for line in text.splitlines()[start:end]]
    return "\n".join([*imports, *lines]) + "\n"


def _definitions(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The lines of the imports, classes and functions of a module."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield node.name, (first - 1, node.end_lineno or first)
        elif isinstance(node, ast.ImportFrom):
            yield ast.unparse(node), (node.lineno - 1, node.end_lineno or node.lineno)


def _run(command: list[str]) -> str:
    """The output of a command, as a terminal shows it, without the log of Spark."""
    if command[0] != "dsv2":
        arguments = [sys.executable, *command[1:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False).stdout
    sys.modules.pop("shop", None)
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        main(command[1:])
    here = str(Path.cwd()) + os.sep
    lines = printed.getvalue().replace(here, "").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines if not line.startswith("pipeline: micro-batch"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        page = page_after_running(PAGE.read_text(encoding="utf-8"))
    written = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    written.write_text(page, encoding="utf-8")
