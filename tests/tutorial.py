"""The steps of ``docs/tutorial.md``. ``python -m tests.tutorial`` runs them on Spark, and writes the page."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from itertools import groupby
from pathlib import Path

from tests import ROOT

PAGE = ROOT / "docs" / "tutorial.md"

_BLOCK = re.compile(r'^```(?:(console)|\w+ title="(In )?([\w./]+)")\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_FINISHED = "The job 'pipeline' has finished.\n"
_LOGGED = ("The program has changed", "Processing ", "dsv2: ")
_OF_OTHERS = re.compile(
    r"\d\d/\d\d/\d\d |pipeline: |Traceback|WARNING: |Using |Setting "
)  # of Spark, and the live view
_VARIES = [
    (r"(Processing .* again\.).*", r"\1"),  # the local runtime does not migrate the checkpoint for this
    (r"; the number of state partitions was 1 and is now 2", ""),  # which only Spark has
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "<time>"),
    (r"after micro-batch \d+, [\d.]+ m?s ago", "<when>"),
    (r"in [\d.]+s", "<duration>"),
    (r"\b\d+\.\d+\.[0-9a-f]{6}\b", "<letter>"),
    (r"-{2,}| {2,}", " "),  # widths of columns
]


def page_after_running(text: str, run: Callable[[list[str]], str]) -> str:
    """The page with the current output.

    Args:
        text: The page.
        run: Returns what a command prints. Files are in the current directory.
    """
    shown_runs = 0

    def replaced(block: re.Match[str]) -> str:
        nonlocal shown_runs
        console, part, name, text = block.groups()
        if not console:
            file = Path(name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(_changed(file.read_text(), text) if part else text)
            return block[0]
        shown = ""
        for command in [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]:
            output = run(shlex.split(command)).replace(f"{Path.cwd()}{os.sep}", "")
            if _FINISHED in output:
                shown_runs += 1
                if shown_runs > 1:  # the table has been shown once
                    output = output.partition(_FINISHED)[0] + _FINISHED
            shown += f"$ {command}\n" + "".join(f"{line.rstrip()}\n" for line in output.splitlines())
        return f"```console\n{shown}```"

    return _BLOCK.sub(replaced, text)


def comparable(text: str) -> str:
    """The text without what differs from run to run, and between runtimes."""
    for pattern, name in _VARIES:
        text = re.sub(pattern, name, text)
    groups = groupby(text.splitlines(), key=lambda line: bool(re.match(r"2027-| \d", line)))
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


def in_new_process(command: list[str]) -> str:
    """The output of a command, without the log of Spark."""
    module = ["-m", "dsv2"] if command[0] == "dsv2" else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    arguments = [sys.executable, *module, *command[1:]]
    run = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    logged, of_dsv2 = "", False
    for line in run.stderr.splitlines(keepends=True):
        of_dsv2 = line.startswith(_LOGGED) or (of_dsv2 and not _OF_OTHERS.match(line))
        logged += line if of_dsv2 else ""
    return logged + run.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        page = page_after_running(PAGE.read_text(encoding="utf-8"), in_new_process)
    written = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    written.write_text(page, encoding="utf-8")
