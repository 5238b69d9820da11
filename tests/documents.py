"""Programs in the documents: all Python blocks of a document are one program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def program_of(document: Path) -> str:
    """The Python blocks of ``document``, each on its original lines, so that errors point into the document."""
    lines = []
    in_block = False
    for line in document.read_text().splitlines():
        if line.startswith("```"):
            in_block = line.split(" ")[0] == "```python"  # a title may follow; programs of other engines are "py"
            line = ""
        lines.append(line if in_block else "")
    return "\n".join(lines) + "\n"


def documented_output(program: str) -> list[str]:
    """The output that the comments after its ``print`` calls document."""
    return [line.split("  # ")[1] for line in program.splitlines() if line.startswith(("print(", "    print("))]


PROGRAMS = {
    str(document.relative_to(ROOT)): program for document in DOCUMENTS if (program := program_of(document)).strip()
}
"""Programs by the path of the document."""


@contextmanager
def running_program(name: str) -> Iterator[Any]:
    """Run the program of the document ``name``, as a module, because its classes are serialized by their names.

    At the end its variables are deleted: caches of the module ``typing`` keep its classes and with them all it created.
    """
    module = ModuleType(f"document_{Path(name).stem}")
    sys.modules[module.__name__] = module
    try:
        exec(compile(PROGRAMS[name], name, "exec"), vars(module))
        yield module
    finally:
        del sys.modules[module.__name__]
        vars(module).clear()
