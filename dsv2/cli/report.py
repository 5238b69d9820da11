"""The output of a command: tables for people, or JSON."""

from __future__ import annotations

import json
import math
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from dsv2.base.printable import printable, printable_lines
from dsv2.base.record_table import aligned

_MAX_CELL = 120


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
            print(json.dumps(json_value(self.data), indent=2, allow_nan=False))
        elif self.text:
            print(printable_lines("\n".join(self.text)))


def print_error(text: str) -> None:
    """Print an error to standard error."""
    print(f"dsv2: {printable_lines(text)}", file=sys.stderr)


def json_value(value: Any) -> Any:
    """Return ``value`` as JSON: bytes in Base64, dates in ISO format, infinite numbers and others as strings."""
    if isinstance(value, Mapping):
        return {str(name): json_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return list(map(json_value, value))
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Format rows with the same columns as lines. Numbers are aligned to the right, long values are cut."""
    if not rows:
        return ["(none)"]
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    right = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]
    return aligned(cells, right)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    shown = text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 3]}..."
    return printable(shown)
