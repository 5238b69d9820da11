"""Values that a database would change without an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from dsv2.connectors.sql import mysql
from dsv2.errors import SchemaError

_WITHOUT_ZONES = ("sqlite", *mysql.DIALECTS)


def check_rows(dialect: str, rows: Iterable[Sequence[Any]], types: Mapping[str, Any]) -> None:
    """Raise ``SchemaError`` for the first value that a database of the kind ``dialect`` would change.

    Args:
        dialect: The kind of database.
        rows: The values of each row.
        types: SQLAlchemy's types of the columns, by name.
    """
    if dialect not in _WITHOUT_ZONES:
        return
    for row in rows:
        for value, (column, kind) in zip(row, types.items(), strict=True):
            if problem := _problem(dialect, value, kind):
                raise SchemaError(f"Column {column!r} has {value!r}: {problem}")


def _problem(dialect: str, value: Any, kind: Any) -> str:
    if isinstance(value, datetime | time) and value.tzinfo is not None:
        return "the database has no time zones. Convert it to UTC, and remove the zone."
    if dialect == "sqlite" and isinstance(value, Decimal):
        return "SQLite has no decimals, and would store a float. Convert it to text or to a whole number."
    if dialect == "sqlite" and isinstance(value, float) and value != value:
        return "SQLite would store NaN as NULL. Use None, or text."
    return mysql.problem(value, kind) if dialect in mysql.DIALECTS else ""
