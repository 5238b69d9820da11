"""The columns of a replicated table at one time, which convert the rows of that time to Python values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from psycopg.adapt import Transformer
from psycopg.pq import Format

from dsv2.connectors.postgres.adaption import ADAPTERS, is_same_conversion
from dsv2.connectors.postgres.change import ChangeKind, RowChange, UndecodedValue
from dsv2.connectors.postgres.pgoutput import Column, Relation, TextRow, TextValue
from dsv2.connectors.postgres.split import KeyColumn
from dsv2.errors import JobError

__all__ = ("Change", "TableColumns", "another_key", "columns_of", "refuse_undecoded")

_SHOWN_CHARACTERS = 100
_TEXT = ADAPTERS.types["text"].oid


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
        transformer = Transformer(ADAPTERS)
        loaded_as = [_TEXT if name in as_text else kind for name, kind in zip(names, types, strict=True)]
        transformer.set_loader_types(loaded_as, Format.TEXT)
        self._load_row = transformer.load_sequence
        self._loads = [transformer.get_loader(kind, Format.TEXT).load for kind in loaded_as]
        self._names = names
        self._types = types
        self._key = key

    def has_same_key(self, row: TextRow, other: TextRow) -> bool:
        """Return True for two rows with the same primary key."""
        return all(row[index] == other[index] for index in self._key)

    def loaded(self, change: Change) -> tuple[tuple[Any, ...], dict[str, Any] | None]:
        """Return key and row of ``change`` as Python values. Raises ``Exception`` if there is none for a value."""
        texts = change.row
        if change.kind == "delete":
            return tuple([self._loads[index](texts[index]) for index in self._key]), None  # type: ignore[arg-type]
        values = self._load_row(texts)  # type: ignore[arg-type]  # raises TypeError for ABSENT
        return tuple([values[index] for index in self._key]), dict(zip(self._names, values, strict=True))

    def loaded_in_part(self, change: Change) -> RowChange[dict[str, Any]]:
        """Return ``change`` with Python values, and an ``UndecodedValue`` for a value for which there is no other."""
        kind, _, texts = change
        row = None if kind == "delete" else {name: self._try(i, texts[i]) for i, name in enumerate(self._names)}
        return RowChange(kind, tuple(self._try(index, texts[index]) for index in self._key), row)

    def _try(self, index: int, text: TextValue) -> Any:
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


class Change(NamedTuple):
    """A change as the server sends it. ``row``: Its values in the server's text format; of a deletion, the old ones."""

    kind: ChangeKind
    columns: TableColumns
    row: TextRow


def refuse_undecoded(table: str, change: RowChange[dict[str, Any]]) -> None:
    """Raise ``ValueError`` if ``change`` of ``table`` has an ``UndecodedValue``."""
    key = ", ".join(str(value) for value in change.key)
    for value in (*change.key, *(change.row or {}).values()):
        if not isinstance(value, UndecodedValue):
            continue
        if value.text is None:
            raise ValueError(
                f"The server does not log large values that an update does not change, here of column {value.column} "
                f"of {table} for key ({key}). Run ALTER TABLE {table} REPLICA IDENTITY FULL, so that later changes "
                f"contain them. To continue without those that are already in the log, skip them and update their rows "
                f"again."
            )
        raise ValueError(
            f"Column {value.column} of {table} has for key ({key}) a {value.type} that equals no Python value: "
            f"{value.text[:_SHOWN_CHARACTERS]!r} ({value.reason}). To receive the texts of this column instead, pass "
            f"text_columns=[{value.column!r}] to PostgresSource."
        )


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
        newest = (next((name for name in own.names if name in places), None) for own in by_number)
        found = [places[name] for name in newest if name is not None]
    if len(found) != len(key) or any(columns[i].name not in own.names for i, own in zip(found, by_number, strict=True)):
        raise JobError(another_key(relation.name, key, [columns[index].name for index in found]))
    for index, own in zip(found, by_number, strict=True):
        if not is_same_conversion(types[index], own.type):
            raise JobError(
                f"The type of column {columns[index].name} of {relation.name}, which is part of the primary key, was "
                f"changed after the job began. Rows that it has read have other keys. To read all rows with their new "
                f"keys, start the job with a new checkpoint."
            )
    place = {own.number: index for index, own in zip(found, by_number, strict=True)}
    return TableColumns([column.name for column in columns], types, [place[own.number] for own in key], as_text)


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
