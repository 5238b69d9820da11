"""Decodes changes to the records of ``PostgresSource``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from dsv2.connectors.postgres.change import RowChange, UndecodedValue
from dsv2.connectors.postgres.table_columns import Change, refuse_undecoded

__all__ = ("ChangeDecoder",)

T_co = TypeVar("T_co", covariant=True)


class ChangeDecoder(Generic[T_co]):
    """Decodes changes of ``table`` with the ``decode`` and ``text_columns`` of a source."""

    def __init__(self, table: str, decode: Callable[[dict[str, Any]], T_co], text_columns: frozenset[str]) -> None:
        self._table = table
        self._decode = decode
        self.text_columns = text_columns

    def decoded(self, change: Change) -> RowChange[T_co]:
        """Return the record of ``change``. Raises ``ValueError`` for a value that equals no Python value."""
        try:
            key, row = change.columns.loaded(change)
        except Exception:
            refuse_undecoded(self._table, self.raw(change))
            raise
        return RowChange(change.kind, key, None if row is None else self._decode(row))

    def raw(self, change: Change) -> RowChange[dict[str, Any]]:
        """Return what the dead letter of ``change`` contains."""
        return change.columns.loaded_in_part(change)

    def decoded_again(self, change: RowChange[dict[str, Any]]) -> RowChange[T_co]:
        """Return the record of a dead letter, like ``decoded``."""
        row = None if change.row is None else {name: self._text(name, value) for name, value in change.row.items()}
        key = tuple(self._text(part.column, part) if isinstance(part, UndecodedValue) else part for part in change.key)
        refuse_undecoded(self._table, RowChange(change.kind, key, row))
        return RowChange(change.kind, key, None if row is None else self._decode(row))

    def _text(self, column: str, value: Any) -> Any:
        """The value of a column that may have become one of ``text_columns`` since."""
        if column not in self.text_columns or value is None or isinstance(value, str):
            return value
        if isinstance(value, UndecodedValue):
            return value.text if value.text is not None else value
        raise ValueError(f"The letter contains no text of column {column}, but the value {value!r}.")
