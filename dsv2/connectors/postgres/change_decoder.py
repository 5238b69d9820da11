"""Converts rows of the snapshot and of the log to the records of ``PostgresSource``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, NoReturn, TypeAlias

from psycopg.adapt import Transformer
from psycopg.pq import Format
from psycopg.pq.abc import PGresult

from dsv2.base.type_variables import T_co
from dsv2.connectors.postgres.adapters import ADAPTERS, is_same_conversion
from dsv2.connectors.postgres.change import ChangeKind, RowChange, UndecodedValue
from dsv2.connectors.postgres.pgoutput import ABSENT, Column, Relation, RelationChange, TextRow, TextValue
from dsv2.connectors.postgres.split import KeyColumn
from dsv2.errors import JobError

_SHOWN_CHARACTERS = 100
_TEXT = ADAPTERS.types["text"].oid

Change: TypeAlias = tuple[ChangeKind, tuple[Any, ...], dict[str, Any] | None]
"""Kind, key and row of a change, as in ``RowChange``. A value without a Python value is an ``UndecodedValue``."""


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


class TableColumns:
    """Columns of a table.

    Args:
        names: Their names.
        types: The OIDs of their types; of domains, those of the base types.
        key: The indices of the columns of the primary key.
        as_text: The names of columns whose values remain text.
    """

    def __init__(
        self, names: Sequence[str], types: Sequence[int], key: Sequence[int], as_text: Collection[str]
    ) -> None:
        loaded_as = [_TEXT if name in as_text else kind for name, kind in zip(names, types, strict=True)]
        self._transformer = Transformer(ADAPTERS)
        self._transformer.set_loader_types(loaded_as, Format.TEXT)
        self._loads = [self._transformer.get_loader(kind, Format.TEXT).load for kind in loaded_as]
        self._names = names
        self._types = types
        self._key = key

    def snapshot(self, result: PGresult) -> Sequence[Change]:
        """Return the rows of a result with these columns."""
        self._transformer.set_pgresult(result, set_loaders=False)
        rows: Iterable[Sequence[Any]]
        try:
            rows = self._transformer.load_rows(0, result.ntuples, tuple)
        except Exception:  # a value equals no Python value
            width = range(result.nfields)
            rows = [self._loaded([result.get_value(row, column) for column in width]) for row in range(result.ntuples)]
        return [self._change("snapshot", values) for values in rows]

    def changes(self, change: RelationChange) -> Iterator[Change]:
        """Yield the changes of rows that ``change`` consists of."""
        old, new = change.old, change.new
        if old is not None and new is not None:
            new = tuple(before if value is ABSENT else value for before, value in zip(old, new, strict=True))
        kind = change.kind
        if old is not None and (new is None or any(old[index] != new[index] for index in self._key)):
            yield "delete", tuple(self._load(index, old[index]) for index in self._key), None
            kind = "insert"
        if new is not None:
            yield self._change(kind, self._loaded(new))

    def _change(self, kind: ChangeKind, values: Sequence[Any]) -> Change:
        return kind, tuple([values[index] for index in self._key]), dict(zip(self._names, values, strict=True))

    def _loaded(self, row: TextRow) -> Sequence[Any]:
        try:
            return self._transformer.load_sequence(row)  # type: ignore[arg-type]  # raises TypeError for ABSENT
        except Exception:  # a value equals no Python value
            return [self._load(index, text) for index, text in enumerate(row)]

    def _load(self, index: int, text: TextValue) -> Any:
        if text is None:
            return None
        name, kind = self._names[index], ADAPTERS.types.get(self._types[index])
        called = "value" if kind is None else kind.name
        if not isinstance(text, bytes):
            return UndecodedValue(name, called, None, "the log does not contain it")
        try:
            return self._loads[index](text)
        except Exception as error:
            return UndecodedValue(name, called, text.decode(errors="backslashreplace"), str(error))


def columns_of(relation: Relation, key: Sequence[KeyColumn], as_text: Collection[str]) -> TableColumns:
    """Create the columns of ``relation``.

    Args:
        relation: The table when it was changed.
        key: The primary key with which the job began.
        as_text: The names of columns whose values remain text.

    Raises:
        JobError: Changes of ``relation`` do not identify rows by ``key``.
    """
    columns, types = relation.columns, [_base_type(column) for column in relation.columns]
    found = [index for index, column in enumerate(columns) if column.is_key]
    by_number = sorted(key, key=lambda column: column.number)
    if relation.whole:
        places = {column.name: index for index, column in enumerate(columns)}
        newest = (next((name for name in own.names if name in places), None) for own in key)
        found = sorted({places[name] for name in newest if name is not None})  # columns are in the order of numbers
    place = dict(zip(by_number, found, strict=False))
    if len(found) != len(key) or any(columns[index].name not in own.names for own, index in place.items()):
        raise JobError(another_key(relation.name, key, [columns[index].name for index in found]))
    for own, index in place.items():
        if not is_same_conversion(types[index], own.type):
            raise JobError(
                f"The type of column {columns[index].name} of {relation.name}, which is part of the primary key, was "
                f"changed after the job began. Rows that it has read have other keys. To read all rows with their new "
                f"keys, start the job with a new checkpoint."
            )
    return TableColumns([column.name for column in columns], types, [place[own] for own in key], as_text)


def _base_type(column: Column) -> int:
    kind = ADAPTERS.types.get(column.base.removeprefix("_")) if column.base else None
    if kind is None:
        return column.type
    return kind.array_oid if column.base.startswith("_") else kind.oid


def another_key(table: str, key: Iterable[KeyColumn], now: Iterable[str]) -> str:
    """The message for a primary key that was replaced by the columns ``now``."""
    return (
        f"The primary key of {table} was ({', '.join(column.names[-1] for column in key)}) when the job began, and was "
        f"then replaced: changes are now identified by ({', '.join(now)}). Rows that the job has read have other keys. "
        f"To read all rows with their new keys, start the job with a new checkpoint."
    )
