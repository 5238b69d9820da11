"""Snapshots of keyed columns, and their rows as savepoints hold them: the same as those of values in single records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from dsv2.arrow.encoding import Numbers
from dsv2.arrow.keyed.keys import OTHER, Keys, decoded_keys
from dsv2.arrow.keyed.lists import lists_of, type_of_lists
from dsv2.arrow.keyed.table import TableState, decoded_page
from dsv2.arrow.schema import field_names
from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.rows import RowKind, StateRow

_TYPES = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "decimal": pa.decimal128(38, 18),
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_LIST = "list of "


class StoredTable(NamedTuple):
    """The snapshot of a state or of timers.

    Attributes:
        row_kind: The kind of its rows.
        state: The state of its rows: a stored name, or a time domain.
        expiry: The time domain of the deadlines of values; empty if they do not expire.
        names: The names of the columns.
        types: Their types.
        template: A value, whose class the values have; a list of one if they are lists; None for timers.
        table: The table.
        due: When the pane is due, of values in a pane, in ms, and whether that is event time.
    """

    row_kind: str
    state: str
    expiry: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    template: Any
    table: TableState
    due: tuple[int, bool] = (0, True)

    def has_layout_of(self, other: StoredTable) -> bool:
        """Return whether the pages have the same columns."""
        return self[:5] == other[:5] and self.has_lists == other.has_lists

    @property
    def has_lists(self) -> bool:
        """True if the value of a key is a list. If its elements expire, they have one more field, when each does."""
        return isinstance(self.template, list)

    @property
    def has_deadlines(self) -> bool:
        """True if rows have deadlines."""
        return bool(self.expiry) or self.row_kind == RowKind.TIMERS

    def contents(self, pages: Sequence[bytes]) -> tuple[Keys, list[Any], Numbers | None]:
        """Decode pages.

        Returns:
            The keys, the values as Python objects, and the deadlines. Lists that expire consist of pairs of an element
            and its expiry.
        """
        types = [type_named(name) for name in self.types]
        if self.has_lists:
            types = [type_of_lists(map(pa.field, self.names, types), bool(self.expiry))]
        keys, columns, deadlines = decoded_page(self.table.kind, types, self.has_deadlines, pages)
        if self.row_kind == RowKind.TIMERS:
            return keys, columns[0].to_pylist(), deadlines
        if self.has_lists:
            return keys, self._lists(columns[0]), deadlines
        make = _maker(self.template, self.names)
        return keys, [make(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)], deadlines

    def _lists(self, lists: pa.ListArray) -> list[Any]:
        make: Any = _maker(self.template[0], self.names)
        if self.expiry:
            make_element = make

            def make(row: Sequence[Any]) -> Any:
                *fields, expiry = row
                return make_element(fields), expiry

        return lists_of(lists, make)

    def rows(self, page: bytes, subtask: int, codec: Codec, owner: str) -> Iterator[StateRow]:
        """Return the rows of a page."""
        keys, values, deadlines = self.contents([page])
        kind = RowKind(self.row_kind)
        if keys.kind == OTHER:
            encoded = keys.values.to_pylist()
        else:
            encoded = list(map(codec.dumps, decoded_keys(keys.kind, keys.values, codec, owner)))
        if not self.expiry:
            for key, value in zip(encoded, values, strict=True):
                yield StateRow(subtask, kind, self.state, key, codec.dumps(value))
            return
        assert deadlines is not None
        for key, value, deadline in zip(encoded, values, deadlines.tolist(), strict=True):
            expiring = value if self.has_lists else (value, deadline)
            yield StateRow(subtask, kind, self.state, key, codec.dumps(expiring))
            yield StateRow(subtask, RowKind.TIMERS, self.expiry, key, codec.dumps([deadline]))


def stored_columns(snapshot: Mapping[str, Any]) -> dict[str, StoredTable]:
    """Return the tables in the part ``columns`` of the snapshot of an operator, by the name of their pages."""
    return {name: stored_table(state) for name, state in snapshot.items()}


def stored_table(state: Any) -> StoredTable:
    """Return the table from its snapshot as plain values."""
    row_kind, named, expiry, names, types, template, table, due = state
    return StoredTable(row_kind, named, expiry, names, types, template, TableState(*table), due)


def type_name(kind: pa.DataType) -> str:
    """Return the name under which the type of a column is stored."""
    return f"{_LIST}{type_name(kind.value_type)}" if pa.types.is_list(kind) else _NAMES[kind]


def type_named(name: str) -> pa.DataType:
    """Return the type that is stored under a name.

    Raises:
        CorruptDataError: There is none.
    """
    if name.startswith(_LIST):
        return pa.list_(type_named(name.removeprefix(_LIST)))
    if name not in _TYPES:
        raise CorruptDataError(f"A column of type {name!r} is not known.")
    return _TYPES[name]


def _maker(template: Any, names: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
    """Return what creates values like ``template`` from columns with these ``names``."""
    kind: Any = type(template)
    if kind.__init__ is object.__init__ and not isinstance(template, tuple):  # a stand-in for a class

        def stand_in(row: Sequence[Any]) -> Any:
            value = kind.__new__(kind)
            vars(value).update(vars(template))
            vars(value).update(zip(names, row, strict=True))
            return value

        return stand_in
    known = field_names(kind)
    others = {name: getattr(template, name) for name in known if name not in names}
    return lambda row: kind(**others, **{name: part for name, part in zip(names, row, strict=True) if name in known})
