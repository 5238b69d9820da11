"""Panes: a table for each window, with the values of all keys in it, like ``dsv2.runtime.state.panes``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.keyed.columns import ArrowKeyedColumns, ColumnsLoader, empty_value
from dsv2.arrow.keyed.folding import FoldStep, Groups
from dsv2.arrow.keyed.keys import KeyArray, Keys
from dsv2.arrow.keyed.lists import ArrowKeyedRows, Lists, type_of_lists
from dsv2.arrow.keyed.snapshots import StoredTable, stored_columns, type_name
from dsv2.arrow.keyed.table import KeyedTable, TableState
from dsv2.arrow.schema import schema_of
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.migrations import FailedMigration
from dsv2.runtime.state.rows import RowKind


class ColumnPanes(ArrowKeyedColumns):
    """The windows of a subtask, by their start.

    Args:
        template: As of ``StoredTable``.
        types: The types of the columns, by name.
        deadline_of: Returns when a window is due, in ms.
        environment: What the runtime provides.
        fail: As for ``ArrowKeyedColumns``.
    """

    by_event: ClassVar[bool] = True
    """False: windows are due in processing time."""

    def __init__(
        self,
        template: Any,
        types: Mapping[str, pa.DataType],
        deadline_of: Callable[[int], int],
        environment: ColumnsEnvironment,
        fail: FailedMigration,
    ) -> None:
        super().__init__((), environment, fail)
        self._template = template
        self._names = tuple(types)
        self._types = list(types.values())
        has_lists = isinstance(template, list)
        self._columns = [type_of_lists(map(pa.field, types, self._types), False)] if has_lists else self._types
        self._deadline_of = deadline_of
        self._by_slot: dict[int, KeyedTable] = {}

    def all_tables(self) -> Iterable[KeyedTable]:
        return self._by_slot.values()

    def next_time(self, by_event: bool) -> int | None:
        return min(map(self._deadline_of, self._by_slot), default=None) if by_event is self.by_event else None

    def due(self, time: int) -> list[int]:
        """Return the windows that are due, ordered by their deadline."""
        return sorted(slot for slot in self._by_slot if self._deadline_of(slot) <= time)

    def drop(self, slot: int) -> None:
        """Remove a window."""
        self._by_slot.pop(slot).discard()

    def snapshot(self) -> dict[str, Any]:
        self._finder.forget()
        return {
            self._name(slot): (*self._layout(slot)[:-2], tuple(table.snapshot()), self._due(slot))
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

    def loader(self) -> ColumnsLoader:
        return _PanesLoader(self)

    def _due(self, slot: int) -> tuple[int, bool]:
        return self._deadline_of(slot), self.by_event

    def _table(self, slot: int) -> KeyedTable:
        table = self._by_slot.get(slot)
        if table is None:
            name, owner = f"columns/{self._name(slot)}", f"{self._owner}, window {slot}"
            store = self._environment.stores(name, owner)
            table = self._by_slot[slot] = KeyedTable(self._columns, store, None, owner)
        return table

    def _layout(self, slot: int) -> StoredTable:
        types = tuple(map(type_name, self._types))
        empty = TableState("", 0, 0, {}, None)
        return StoredTable(RowKind.IN_PANE.value, str(slot), "", self._names, types, self._template, empty)

    @staticmethod
    def _name(slot: int) -> str:
        return f"in-pane/{slot}"


class ArrowPanes(ColumnPanes):
    """Windows with an aggregated value for each key.

    Args:
        template: A value without contents, whose class the values have: a NamedTuple class.
        deadline_of: As for ``ColumnPanes``.
        environment: Likewise.
        fail: Likewise.
    """

    def __init__(
        self, template: Any, deadline_of: Callable[[int], int], environment: ColumnsEnvironment, fail: FailedMigration
    ) -> None:
        types = {field.name: field.type for field in schema_of(type(template))}
        super().__init__(template, types, deadline_of, environment, fail)

    def fold(self, slot: int, keys: KeyArray, step: FoldStep) -> None:
        """Fold rows with these keys into the values of a window, see ``FoldStep``."""
        found = self._finder.find(keys)
        table = self._table(slot)
        current = self._values(table, table.find(found.keys))
        self._put(table, found.keys, step(current, Groups(found.places, len(found.keys))))

    def contents(self, slot: int) -> Iterator[tuple[Sequence[pa.Array], Sequence[pa.Array]]]:
        """Iterate over the contents of a window, some thousand keys at a time: the columns of keys and values."""
        table = self._by_slot[slot]
        for rows in table.scan():
            _, keys = self._finder.columns_of(table.keys_of(rows), ())
            yield keys, self._values(table, rows)

    def put(self, kind: RowKind, stored: str, keys: Keys, values: Sequence[Any]) -> None:
        columns = zip(zip(*values, strict=True), self._types, strict=True)
        self._put(self._table(int(stored)), keys, [pa.array(column, kind) for column, kind in columns])

    def _put(self, table: KeyedTable, keys: Keys, columns: Sequence[pa.Array]) -> None:
        rows, _ = table.make(keys)
        for number, column in enumerate(columns):
            table.put(number, rows, column)

    def _values(self, table: KeyedTable, rows: Numbers) -> Sequence[pa.Array]:
        return [table.get(number, rows) for number in range(len(self._types))]


class ClockPanes(ArrowPanes):
    """Such windows in processing time."""

    by_event = False

    def fire(self, by_event: bool, time: int, call: Callable[[Any], None], *, last: bool = False) -> None:
        if not by_event and (due := self.due(time)):
            call(due)


class ListPanes(ColumnPanes):
    """Windows with several rows for each key.

    Args:
        kind: The class of the rows.
        deadline_of: As for ``ColumnPanes``.
        environment: Likewise.
        fail: Likewise.
    """

    def __init__(
        self, kind: type[Any], deadline_of: Callable[[int], int], environment: ColumnsEnvironment, fail: FailedMigration
    ) -> None:
        types = {field.name: field.type for field in schema_of(kind)}
        super().__init__([empty_value(kind)], types, deadline_of, environment, fail)
        self._kind = kind

    def get(self, slot: int, keys: KeyArray) -> ArrowKeyedRows:
        """Return the rows of keys in a window."""
        found = self._finder.find(keys)
        columns, of = self._lists_in(slot).get(self._table(slot).find(found.keys))
        return ArrowKeyedRows(pa.table(columns, schema_of(self._kind)), of, found.places, len(found.keys))

    def replace(self, slot: int, keys: KeyArray, rows: pa.Table, of: Numbers) -> None:
        """Replace the rows of the keys that were passed to ``get``. ``of`` is ascending."""
        columns = [in_one_piece(column) for column in rows.columns]
        self._lists_in(slot).put(self._finder.find(keys).keys, columns, of)

    def contents(self, slot: int) -> Iterator[tuple[pa.Table, Numbers]]:
        """Iterate over the rows of a window, those of some thousand keys at a time, with the numbers of their keys."""
        lists = self._lists_in(slot)
        for rows in lists.table.scan():
            columns, of = lists.get(rows)
            yield pa.table(columns, lists.schema), of

    def put(self, kind: RowKind, stored: str, keys: Keys, values: Sequence[Any]) -> None:
        self._lists_in(int(stored)).load(keys, values)

    def _lists_in(self, slot: int) -> Lists:
        return Lists(self._table(slot), self._kind)


class _PanesLoader(ColumnsLoader):
    """Loads the values of windows, which have no versions. Their deadlines follow from the strategy."""

    def add(self, row: Any) -> None:
        if row.kind is RowKind.IN_PANE:
            codec, owner = self._columns.codec
            self.put(row.kind, row.state, codec.loads(row.key, owner), codec.loads(row.value, owner))

    def put(self, kind: RowKind, stored: str, key: Any, value: Any) -> None:
        self._add(kind, stored, key, value)
