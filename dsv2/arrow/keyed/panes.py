"""Panes: a table for each window, with the values of all keys in it, like ``dsv2.runtime.state.panes``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dsv2.arrow.encoding import Numbers
from dsv2.arrow.keyed.columns import ArrowKeyedColumns, ColumnsLoader
from dsv2.arrow.keyed.folding import Groups, fold
from dsv2.arrow.keyed.keys import KeyArray, Keys
from dsv2.arrow.keyed.snapshots import StoredTable, stored_columns, type_name
from dsv2.arrow.keyed.table import KeyedTable, TableState
from dsv2.arrow.schema import schema_of
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.migrations import FailedMigration
from dsv2.runtime.state.rows import RowKind


class ArrowPanes(ArrowKeyedColumns):
    """The windows of a subtask, by their start.

    Args:
        template: A value without contents, whose class the values have.
        hows: How each column is aggregated, by the field of the value.
        deadline_of: Returns when a window is due, in ms.
        environment: What the runtime provides.
        fail: As for ``ArrowKeyedColumns``.
    """

    def __init__(
        self,
        template: Any,
        hows: Mapping[str, str],
        deadline_of: Callable[[int], int],
        environment: ColumnsEnvironment,
        fail: FailedMigration,
    ) -> None:
        super().__init__((), environment, fail)
        self._template = template
        self._hows = hows
        self._deadline_of = deadline_of
        schema = schema_of(type(template))
        self._types = [schema.field(name).type for name in hows]
        self._by_slot: dict[int, KeyedTable] = {}

    def all_tables(self) -> Iterable[KeyedTable]:
        return self._by_slot.values()

    def next_time(self, by_event: bool) -> int | None:
        return min(map(self._deadline_of, self._by_slot), default=None) if by_event else None

    def fold(self, slot: int, keys: KeyArray, columns: Mapping[str, pa.Array]) -> None:
        """Fold columns into the values of a window."""
        found = self._finder.find(keys)
        table = self._table(slot)
        rows = table.find(found.keys)
        groups = Groups(found.places, len(found.keys))
        folded = [
            fold(how, table.get(number, rows), columns[name], groups)
            for number, (name, how) in enumerate(self._hows.items())
        ]
        self._put(table, found.keys, folded)

    def due(self, time: int) -> list[int]:
        """Return the windows that are due, ordered by their deadline."""
        return sorted(slot for slot in self._by_slot if self._deadline_of(slot) <= time)

    def contents(self, slot: int) -> Iterator[tuple[Sequence[pa.Array], dict[str, pa.Array]]]:
        """Iterate over the contents of a window, some thousand keys at a time: key columns, and values by field."""
        table = self._by_slot[slot]
        for rows in table.scan():
            _, keys = self._finder.columns_of(table.keys_of(rows), ())
            yield keys, self._values(table, rows)

    def drop(self, slot: int) -> None:
        """Remove a window."""
        self._by_slot.pop(slot).discard()

    def snapshot(self) -> dict[str, Any]:
        self._finder.forget()
        return {
            self._name(slot): (*self._layout(slot)[:-2], tuple(table.snapshot()), self._deadline_of(slot))
            for slot, table in sorted(self._by_slot.items())
        }

    def restore(self, state: dict[str, Any]) -> None:
        for name, stored in stored_columns(state).items():
            slot = int(stored.state)
            table = self._table(slot)
            if stored.has_layout_of(self._layout(slot)):
                table.restore(stored.table)
            else:
                self._convert(name, stored)

    def put(self, kind: RowKind, stored: str, keys: Keys, values: Sequence[Any]) -> None:
        table = self._table(int(stored))
        columns = _columns_of(values, type(self._template), list(self._hows))
        self._put(table, keys, columns)

    def loader(self) -> ColumnsLoader:
        return _PanesLoader(self)

    def _put(self, table: KeyedTable, keys: Keys, columns: Sequence[pa.Array]) -> None:
        rows, _ = table.make(keys)
        for number, column in enumerate(columns):
            table.put(number, rows, column)

    def _values(self, table: KeyedTable, rows: Numbers) -> dict[str, pa.Array]:
        return {name: table.get(number, rows) for number, name in enumerate(self._hows)}

    def _table(self, slot: int) -> KeyedTable:
        table = self._by_slot.get(slot)
        if table is None:
            name, owner = f"columns/{self._name(slot)}", f"{self._owner}, window {slot}"
            store = self._environment.stores(name, owner)
            table = self._by_slot[slot] = KeyedTable(self._types, store, None, owner)
        return table

    def _layout(self, slot: int) -> StoredTable:
        types = tuple(map(type_name, self._types))
        names = tuple(self._hows)
        empty = TableState("", 0, 0, {}, None)
        return StoredTable(RowKind.IN_PANE.value, str(slot), "", names, types, self._template, empty)

    @staticmethod
    def _name(slot: int) -> str:
        return f"in-pane/{slot}"


class _PanesLoader(ColumnsLoader):
    """Loads the values of windows, which have no versions. Their deadlines follow from the strategy."""

    def add(self, row: Any) -> None:
        if row.kind is RowKind.IN_PANE:
            codec, owner = self._columns.codec
            self.put(row.kind, row.state, codec.loads(row.key, owner), codec.loads(row.value, owner))

    def put(self, kind: RowKind, stored: str, key: Any, value: Any) -> None:
        self._add(kind, stored, key, value)


def _columns_of(values: Sequence[Any], kind: type, names: Sequence[str]) -> list[pa.Array]:
    """Return fields of records as columns. Other fields may be None."""
    schema = schema_of(kind)
    return [pa.array([getattr(value, name) for value in values], schema.field(name).type) for name in names]
