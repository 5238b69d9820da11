"""MySQL and MariaDB: what they would change, or not undo, without an error."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dsv2.errors import JobError, SchemaError

if TYPE_CHECKING:
    import sqlalchemy as sa

DIALECTS = ("mysql", "mariadb")

ERRORS_OF_VALUES = (1292, 1366, 1644, 1690, 3140, 3819, 4025)
"""The numbers of operational errors that a value causes: a time, a text, a trigger, a number, JSON, two of CHECK."""

_TYPES = (type(None), int, float, str, bytes, Decimal, date, time, timedelta)
_ESCAPED = "\0\n\r\x1a\"'\\"
_OTHER_BYTES = 4096  # of a statement: names, separators and numbers


def start_session(connection: Any, record: object) -> None:
    """Let a connection refuse values that do not fit, and read and write times in UTC. Called when it is opened."""
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')")


def check_table(engine: sa.Engine, table: sa.Table, columns: Collection[str], key: Collection[str]) -> None:
    """Check that a table can be written in transactions, and by key.

    Raises:
        JobError: It has no transactions, or rows would be found by something else than ``key``.
    """
    import sqlalchemy as sa

    kind = str(table.dialect_options[engine.dialect.name].get("engine") or "InnoDB")
    if kind.upper() in ("MYISAM", "ARIA", "MEMORY", "CSV"):
        raise JobError(f"Table {table} has the engine {kind}, which has no transactions. Use InnoDB.")
    if not key:
        return
    found: Any = sa.inspect(engine)
    main = found.get_pk_constraint(table.name, table.schema)["constrained_columns"]
    others = [one["column_names"] for one in found.get_indexes(table.name, table.schema) if one["unique"]]
    unique = [{*index} for index in (main, *others) if index]
    if {*key} not in unique:
        raise JobError(f"Table {table} has no unique index on {', '.join(key)}, so rows cannot be replaced by key.")
    if also := [index for index in unique if index != {*key} and index <= {*columns}]:
        raise JobError(
            f"Table {table} has another unique index, on {', '.join(sorted(also[0]))}. The database would also "
            f"replace rows that agree in it. Remove it, or pass its columns as key."
        )


def check_sizes(rows: Iterable[Sequence[Any]], packet: int) -> None:
    """Raise ``SchemaError`` for a row that is larger than ``packet``, in bytes. The server would close the connection.

    Larger groups of rows are divided by the driver.
    """
    for row in rows:
        if (size := sum(_size(value) for value in row if isinstance(value, str | bytes)) + _OTHER_BYTES) > packet:
            raise SchemaError(f"A row has {size} bytes. The server accepts {packet}: see max_allowed_packet.")


def problem(value: Any, kind: Any) -> str:
    """Return why a column of the type ``kind`` would change ``value``. Empty: it would not."""
    import sqlalchemy as sa

    if not isinstance(value, _TYPES):
        return f"the driver would store str() of a {type(value).__name__}. Convert it to text."
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            return "the database has neither NaN nor infinity. Use None, or text."
        places = None if isinstance(kind, sa.Float) else 0 if isinstance(kind, sa.Integer) else _places(kind)
        if places is not None and (Fraction(str(value)) * 10**places).denominator != 1:
            return f"the column has {places} decimal places, and would round it."
    if isinstance(value, datetime) and isinstance(kind, sa.Date):
        return "the column has days only."
    microseconds = value.microsecond if isinstance(value, datetime | time) else getattr(value, "microseconds", 0)
    if hasattr(kind, "fsp") and microseconds % 10 ** (6 - (kind.fsp or 0)):
        return f"the column has {kind.fsp or 0} decimal places of seconds, such as DATETIME. Use DATETIME(6)."
    return ""


def _places(kind: Any) -> int | None:
    import sqlalchemy as sa

    return (kind.scale or 0) if isinstance(kind, sa.Numeric) else None


def _size(value: str | bytes) -> int:
    if isinstance(value, bytes):
        return 2 * len(value)  # as hexadecimal digits
    return len(value.encode()) + sum(map(value.count, _ESCAPED))
