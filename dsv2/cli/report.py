"""What a command prints: tables for people, or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ("Report", "table")


@dataclass(frozen=True)
class Report:
    """The result of a command.

    Attributes:
        text: Lines for people.
        data: The same as JSON values.
        exit_code: The exit code of the command.
    """

    text: Sequence[str]
    data: Any = field(default_factory=dict)
    exit_code: int = 0

    def print(self, *, as_json: bool) -> None:
        """Print to standard output."""
        if as_json:
            print(json.dumps(self.data, indent=2, default=str))
        else:
            print("\n".join(self.text))


def table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Format rows with the same columns as lines. Numbers are aligned to the right."""
    if not rows:
        return ["(none)"]
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    right = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]

    def line(parts: Sequence[str]) -> str:
        aligned = (
            part.rjust(width) if to_right else part.ljust(width)
            for part, width, to_right in zip(parts, widths, right, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return [line(cells[0]), "  ".join("-" * width for width in widths), *map(line, cells[1:])]


def _cell(value: object) -> str:
    return "" if value is None else str(value)
