"""What a command prints: tables for people, or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any

__all__ = ("Report", "json_value", "table")


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
            print(json.dumps(json_value(self.data), indent=2))
        else:
            print("\n".join(self.text))


def json_value(value: object) -> Any:
    """Convert a value of a table to JSON: bytes to hexadecimal digits, times to ISO 8601, NaN and infinity to null."""
    match value:
        case dict():
            return {str(name): json_value(part) for name, part in value.items()}
        case list() | tuple():
            return [json_value(part) for part in value]
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return value.hex()
        case date() | time():
            return value.isoformat()
        case None | str() | int():
            return value
    return str(value)


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
