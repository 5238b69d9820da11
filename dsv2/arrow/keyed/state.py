"""``ArrowKeyedState``: the values of many keys as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeAlias

import numpy as np
import pyarrow as pa

from dsv2.arrow.casts import array_of, cast_exactly
from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.keyed.expiry import Expiry
from dsv2.arrow.keyed.folding import FoldStep, Groups, check_how, fold, running
from dsv2.arrow.keyed.keys import KeyArray, KeyFinder, Keys
from dsv2.arrow.keyed.table import ABSENT, KeyedTable
from dsv2.arrow.schema import names_without_none, schema_of
from dsv2.base.type_variables import T
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.state import ValueStateDeclaration

Columns: TypeAlias = pa.Table | Mapping[str, Any]
"""Columns by name: a table, or a mapping to arrays (of Arrow or numpy) or to single values for all rows."""


class ArrowKeyedState(Generic[T]):
    """A state with one value for each key, for functions on tables. ``T`` is the class of the values.

    Its columns are the fields of the class: numbers, texts, bytes, dates, or lists of these. It is a value state in
    every other respect: a row of it is what ``ValueState[T]`` holds for a key in a function on single records, also in
    savepoints.

    Keys are passed as columns: ``batch["user"]``, or a list of columns if the key has several parts. They must be those
    by which the stream is partitioned. All results are aligned with them. A key may occur several times.
    """

    def __init__(
        self, declaration: ValueStateDeclaration[T, Any], table: KeyedTable, finder: KeyFinder, expiry: Expiry | None
    ) -> None:
        kind: Any = declaration.value_type
        self._declaration = declaration
        self._kind: type[T] = kind
        self._schema = schema_of(kind)
        self._required = frozenset(names_without_none(kind))
        self._table = table
        self._finder = finder
        self._expiry = expiry
        default = declaration.default
        self._default = None if default is None else {name: getattr(default, name) for name in self._schema.names}

    def get(self, keys: KeyArray) -> pa.Table:
        """Return the values of ``keys``, a row for each.

        A key without a value has the default of the declaration, or nulls if there is none.
        """
        found = self._finder.find(keys)
        rows = self._current(self._table.find(found.keys))
        if self._expiry is not None and self._expiry.renews_on_read:
            self._renew(rows[rows >= 0])
        columns = [self._of_rows(number, rows) for number in range(len(self._schema))]
        places = pa.array(found.places)
        return pa.table([column.take(places) for column in columns], self._schema)

    def contains(self, keys: KeyArray) -> pa.BooleanArray:
        """Return for each of ``keys`` whether it has a value."""
        found = self._finder.find(keys)
        return pa.array((self._current(self._table.find(found.keys)) >= 0)[found.places])

    def update(self, keys: KeyArray, columns: Columns) -> None:
        """Set the values of ``keys``.

        Args:
            keys: The keys. If one occurs several times, its last row counts.
            columns: The columns to set. Others keep their values; a new key has those of the default, or nulls.

        Raises:
            SchemaError: A column does not exist or does not fit its field, or a field that is not optional would be
                null.
        """
        found = self._finder.find(keys)
        places = found.last_rows()
        values = {name: column.take(places) for name, column in self._columns(columns, len(found.places)).items()}
        self.put_distinct(found.keys, values)

    def remove(self, keys: KeyArray) -> None:
        """Remove the values of ``keys``."""
        rows = self._table.find(self._finder.find(keys).keys)
        self._table.remove(rows[rows >= 0])

    def aggregate(self, keys: KeyArray, columns: Columns, how: Mapping[str, str]) -> None:
        """Fold columns into the values of ``keys``, row by row.

        Args:
            keys: The keys.
            columns: The values to add, with the names of fields. Nulls are left out.
            how: For each column ``"sum"``, ``"min"``, ``"max"``, ``"first"`` or ``"last"``. A key without a value
                begins with the default of the declaration. NaN is both the minimum and the maximum.

        Raises:
            ConfigurationError: A column cannot be aggregated like this.
            SchemaError: As in ``update``, or a sum exceeds 64 bits.
        """
        self._fold(keys, columns, how, with_rows=False)

    def accumulate(self, keys: KeyArray, columns: Columns, how: Mapping[str, str]) -> pa.Table:
        """As ``aggregate``. Returns the aggregated columns as they are after each row: running sums, for example."""
        return self._fold(keys, columns, how, with_rows=True)

    def dsv2_fold(self, keys: KeyArray, step: FoldStep) -> None:
        """Fold rows with these keys into their values, see ``FoldStep``."""
        found = self._finder.find(keys)
        rows = self._current(self._table.find(found.keys))
        current = [self._of_rows(number, rows) for number in range(len(self._schema))]
        after = step(current, Groups(found.places, len(found.keys)))
        self.put_distinct(found.keys, dict(zip(self._schema.names, after, strict=True)))

    def tables(self) -> Iterator[pa.Table]:
        """Iterate over all keys that have a value, some thousand at a time.

        The columns are those of the key and those of the values. Those of the key have the names of the fields that
        ``operator.attrgetter`` reads in ``key_by``; with another key selector they are ``key``, or ``key_1``, ``key_2``
        and so on. Meanwhile, values of the keys in the table may be changed and removed. The order is unspecified.
        """
        for rows in self._table.scan():
            rows = self._current(rows)
            rows = rows[rows >= 0]
            names, keys = self._finder.columns_of(self._table.keys_of(rows), self._schema.names)
            columns = [self._table.get(number, rows) for number in range(len(self._schema))]
            yield pa.table([*keys, *columns], [*names, *self._schema.names])

    def _fold(self, keys: KeyArray, columns: Columns, how: Mapping[str, str], with_rows: bool) -> pa.Table:
        found = self._finder.find(keys)
        values = self._columns(columns, len(found.places))
        if values.keys() != how.keys():
            raise ConfigurationError(f"Columns {', '.join(values)} and aggregations of {', '.join(how)} differ.")
        for name in how:
            check_how(how[name], name, self._schema.field(name).type)
        rows = self._current(self._table.find(found.keys))
        groups = Groups(found.places, len(found.keys))
        folded, after = {}, []
        for name, column in values.items():
            current = self._of_rows(self._schema.get_field_index(name), rows)
            if with_rows:
                by_row, folded[name] = running(how[name], current, column, groups)
                after.append(by_row)
            else:
                folded[name] = fold(how[name], current, column, groups)
        self.put_distinct(found.keys, folded)
        return pa.table(after, list(folded)) if with_rows else None

    def put_distinct(self, keys: Keys, values: Mapping[str, pa.Array]) -> None:
        """Set columns of keys that were found and are distinct. For the operators of dsv2."""
        for name, column in values.items():
            if name in self._required and column.null_count:
                raise self._is_null(name)
        rows, new = self._table.make(keys)
        if self._expiry is not None:
            new |= self._expiry.has_passed(self._table, rows, ~new)
        for number, field in enumerate(self._schema):
            if field.name in values:
                self._table.put(number, rows, values[field.name])
            elif new.any():
                self._table.put(number, rows[new], self._initial(field, int(np.count_nonzero(new))))
        if self._expiry is not None:
            self._expiry.renew(self._table, rows)

    def _initial(self, field: pa.Field, count: int) -> pa.Array:
        if self._default is not None:
            return pa.repeat(pa.scalar(self._default[field.name], field.type), count)
        if field.name in self._required:
            raise self._is_null(field.name)
        return pa.nulls(count, field.type)

    def _of_rows(self, number: int, rows: Numbers) -> pa.Array:
        if self._default is None:
            return self._table.get(number, rows)
        field, absent = self._schema.field(number), rows < 0
        if not absent.any():
            return self._table.get(number, rows)
        present = np.flatnonzero(~absent)
        places = np.full(len(rows), len(present), np.int64)
        places[present] = np.arange(len(present))
        default = pa.array([self._default[field.name]], field.type)
        return pa.concat_arrays([self._table.get(number, rows[present]), default]).take(pa.array(places))

    def _current(self, rows: Numbers) -> Numbers:
        """Rows without those that have expired."""
        if self._expiry is not None:
            rows[self._expiry.has_passed(self._table, rows, rows >= 0)] = ABSENT
        return rows

    def _renew(self, rows: Numbers) -> None:
        assert self._expiry is not None
        self._table.touch(rows)
        self._expiry.renew(self._table, rows)

    def _columns(self, columns: Columns, count: int) -> dict[str, pa.Array]:
        given: Mapping[str, Any] = columns
        if isinstance(columns, pa.Table):
            given = dict(zip(columns.column_names, columns.columns, strict=True))
        return {name: self._column(name, column, count) for name, column in given.items()}

    def _column(self, name: str, values: Any, count: int) -> pa.Array:
        place = self._schema.get_field_index(name)
        if place < 0:
            fields = ", ".join(self._schema.names)
            raise SchemaError(f"{self._declaration}: {self._kind.__qualname__} has no field {name!r}, only {fields}.")
        kind, where = (
            self._schema.field(place).type,
            f"{self._declaration}: field {name!r} of {self._kind.__qualname__}",
        )
        if isinstance(values, pa.ChunkedArray):
            values = in_one_piece(values)
        elif isinstance(values, np.ndarray):
            values = pa.array(values)
        elif not isinstance(values, pa.Array):
            values = pa.repeat(array_of([values], kind, where)[0], count)
        values = cast_exactly(values, kind, where)
        if len(values) != count:
            raise SchemaError(f"{self._declaration}: the column {name!r} has {len(values)} rows, the keys {count}.")
        return values

    def _is_null(self, name: str) -> SchemaError:
        return SchemaError(
            f"{self._declaration}: field {name!r} of {self._kind.__qualname__} would be None. Set the column, or "
            f"declare the state with a default."
        )
