"""Values that a database would change without an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from dsv2.errors import SchemaError

_WITHOUT_ZONES = ("sqlite", "mysql", "mariadb")


def check_rows(dialect: str, rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> None:
    """Raise ``SchemaError`` for the first value that a database of the kind ``dialect`` would change."""
    if dialect not in _WITHOUT_ZONES:
        return
    for row in rows:
        for value, column in zip(row, columns, strict=True):
            if problem := _problem(dialect, value):
                raise SchemaError(f"Column {column!r} has {value!r}: {problem}")


def _problem(dialect: str, value: Any) -> str:
    if isinstance(value, datetime | time) and value.tzinfo is not None:
        return "the database has no time zones. Convert it to UTC, and remove the zone."
    if dialect == "sqlite" and isinstance(value, Decimal):
        return "SQLite has no decimals, and would store a float. Convert it to text or to a whole number."
    if dialect == "sqlite" and isinstance(value, float) and value != value:
        return "SQLite would store NaN as NULL. Use None, or text."
    return ""
