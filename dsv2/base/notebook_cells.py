"""Cells of notebooks in error messages: ``Cell In[3]`` instead of the name of a file that does not exist."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from typing import Any

_FRAME = r'^(\s*)File "(.+)", line (\d+)(.*)$'


def shown_file(name: str) -> str:
    """The name of a file of code, or the cell of a notebook if the code is one. IPython is not loaded for this."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    find = getattr(getattr(shell, "compile", None), "format_code_name", None)
    found = None if find is None else find(name)
    return name if found is None else " ".join(found)


def with_cells(frames: str) -> str:
    """Name the cells in the frames of a traceback, and add their lines, which workers do not know."""
    return "".join(_with_cells(frames.splitlines(keepends=True)))


def _with_cells(lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        match = re.match(_FRAME, line.rstrip("\n"))
        if match is None or (cell := shown_file(match[2])) == match[2]:
            yield line
            continue
        yield f"{match[1]}{cell}, line {match[3]}{match[4]}\n"
        source = linecache.getline(match[2], int(match[3])).strip()
        if source and not "".join(lines[number + 1 : number + 2]).startswith(f"{match[1]}  "):
            yield f"{match[1]}  {source}\n"
