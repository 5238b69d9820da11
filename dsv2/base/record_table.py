"""Records as a table: their fields are columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

from dsv2.base.printable import printable

_WHOLE = "record"
_LONGEST_CELL = 40


class RecordTable:
    """Records as rows.

    Args:
        records: The records.
        keys: Their keys, which are the first column. None: there is no such column.
        limit: How many records were asked for, to say whether there may be more. None: nothing is said.
    """

    def __init__(self, records: Sequence[Any], keys: Sequence[Any] | None = None, limit: int | None = None) -> None:
        names = dict.fromkeys(name for record in records for name in _fields(record))
        if not names or not all(map(_fields, records)):
            names[_WHOLE] = None
        self.columns = list(names)
        """The names of the columns."""
        self.rows = [[_value(record, name) for name in self.columns] for record in records]
        """The values of the columns, by record."""
        if keys is not None:
            self.columns.insert(0, "key" if "key" not in names else "(key)")
            self.rows = [[key, *row] for key, row in zip(keys, self.rows, strict=True)]
        self._note = None
        if not records:
            self._note = "(no records)"
        elif limit is not None and len(records) >= limit:
            self._note = f"only the first {limit}"

    def __str__(self) -> str:
        """The table as text."""
        cells = [list(map(printable, self.columns)), *(list(map(_text, row)) for row in self.rows)]
        right = [bool(self.rows) and all(map(_is_number, column)) for column in zip(*self.rows, strict=True)]
        lines = aligned(cells, right or [False] * len(self.columns))
        return "\n".join([*lines, *([self._note] if self._note else [])])

    def html(self) -> str:
        """The table as HTML."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(_text(value))}</td>' for value in row)}</tr>" for row in self.rows)
        note = f"<p>{escape(self._note)}</p>" if self._note else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def aligned(cells: Sequence[Sequence[str]], to_right: Sequence[bool]) -> list[str]:
    """Return the lines of a table: the first row, which has the names of columns, a rule and the other rows.

    Args:
        cells: The cells of each row.
        to_right: Whether each column is aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def line(parts: Sequence[str]) -> str:
        places = zip(parts, widths, to_right, strict=True)
        return "  ".join(part.rjust(width) if right else part.ljust(width) for part, width, right in places).rstrip()

    return [line(cells[0]), "  ".join("-" * width for width in widths), *map(line, cells[1:])]


def _fields(record: Any) -> Sequence[str]:
    """The names of the fields of a record; none if it is a whole."""
    if isinstance(record, Mapping):
        return [str(name) for name in record]
    if is_dataclass(record) and not isinstance(record, type):
        return [field.name for field in fields(record)]
    names: Sequence[str] = getattr(record, "_fields", getattr(record, "__struct_fields__", ()))
    return names


def _value(record: Any, name: str) -> Any:
    if isinstance(record, Mapping):
        return next((value for key, value in record.items() if str(key) == name), None)
    if name in (names := _fields(record)):
        return getattr(record, name, None)
    return record if name == _WHOLE and not names else None


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    shown = printable(text[: _LONGEST_CELL + 1])
    return shown if len(shown) <= _LONGEST_CELL else f"{shown[: _LONGEST_CELL - 1]}…"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
