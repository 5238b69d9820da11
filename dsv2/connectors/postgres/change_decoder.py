"""Decodes changes to the records of ``PostgresSource``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from dsv2.connectors.postgres.change import RowChange, UndecodedValue
from dsv2.connectors.postgres.table_columns import Change

__all__ = ("ChangeDecoder",)

T_co = TypeVar("T_co", covariant=True)

_SHOWN_CHARACTERS = 100


class ChangeDecoder(Generic[T_co]):
    """Decodes changes of ``table`` with the ``decode`` and ``text_columns`` of a source."""

    def __init__(self, table: str, decode: Callable[[dict[str, Any]], T_co], text_columns: frozenset[str]) -> None:
        self._table = table
        self._decode = decode
        self.text_columns = text_columns

    def decoded(self, change: Change) -> RowChange[T_co]:
        """Return the record of ``change``. Raises ``ValueError`` for a value that equals no Python value."""
        kind, key, row = change
        for value in key if row is None else (*key, *row.values()):
            if type(value) is UndecodedValue:
                self._refuse(value, key)
        return RowChange(kind, key, None if row is None else self._decode(row))

    def decoded_again(self, letter: RowChange[dict[str, Any]]) -> RowChange[T_co]:
        """Return the record of a dead letter, like ``decoded``."""
        row = None if letter.row is None else {name: self._text(name, value) for name, value in letter.row.items()}
        key = tuple(self._text(part.column, part) if isinstance(part, UndecodedValue) else part for part in letter.key)
        return self.decoded((letter.kind, key, row))

    def _refuse(self, value: UndecodedValue, key: tuple[Any, ...]) -> NoReturn:
        table, shown_key = self._table, ", ".join(map(str, key))
        if value.text is None:
            raise ValueError(
                f"The server does not log large values that an update does not change, here of column {value.column} "
                f"of {table} for key ({shown_key}). Run ALTER TABLE {table} REPLICA IDENTITY FULL, so that later "
                f"changes contain them. To continue without those that are already in the log, skip them and update "
                f"their rows again."
            )
        raise ValueError(
            f"Column {value.column} of {table} has for key ({shown_key}) a {value.type} that equals no Python value: "
            f"{value.text[:_SHOWN_CHARACTERS]!r} ({value.reason}). To receive the texts of this column instead, pass "
            f"text_columns=[{value.column!r}] to PostgresSource."
        )

    def _text(self, column: str, value: Any) -> Any:
        """The value of a column that may have become one of ``text_columns`` since."""
        if column not in self.text_columns or value is None or isinstance(value, str):
            return value
        if isinstance(value, UndecodedValue):
            return value.text if value.text is not None else value
        raise ValueError(f"The letter contains no text of column {column}, but the value {value!r}.")
