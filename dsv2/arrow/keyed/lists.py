"""``ArrowKeyedLists``: several rows for each key, for many keys at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.keyed.expiry import Expiry
from dsv2.arrow.keyed.keys import FoundKeys, KeyArray, KeyFinder, Keys
from dsv2.arrow.keyed.table import KeyedTable
from dsv2.arrow.schema import fitted, rows_to_table, schema_of
from dsv2.arrow.segments import sorting
from dsv2.base.type_variables import T
from dsv2.errors import ContractError

_EXPIRY = pa.field("expiry", pa.int64())


def type_of_lists(fields: Iterable[pa.Field], expire: bool) -> pa.ListType:
    """Return the type of lists of structs. Elements that expire have a last field: when they do, in ms."""
    return pa.list_(pa.struct([*fields, _EXPIRY] if expire else list(fields)))


@dataclass(frozen=True, slots=True)
class ArrowKeyedRows:
    """The rows of the lists of several keys. The keys are numbered.

    Attributes:
        rows: The rows, one list after the other, each in its order.
        of: The number of the key of each row, ascending.
        of_keys: The number of each of the keys that were asked for, among which one may occur several times.
        count: The number of distinct keys.
    """

    rows: pa.Table
    of: Numbers
    of_keys: Numbers
    count: int

    def followed_by(self, batch: pa.Table) -> tuple[pa.Table, Numbers]:
        """Return the rows, followed by a row for each of the keys, and the number of the key of each.

        They are in order of their keys, with the stored rows of a key first.
        """
        rows = pa.concat_tables([self.rows, batch.select(self.rows.column_names)])
        of = np.concatenate([self.of, self.of_keys])
        order = sorting(of)
        return rows.take(pa.array(order)), of[order]


class Lists:
    """The lists of a table, whose column is of ``type_of_lists``.

    Args:
        table: The table.
        kind: The class of the elements.
        expiry: The time to live of each element.
    """

    def __init__(self, table: KeyedTable, kind: type[Any], expiry: Expiry | None = None) -> None:
        self.table = table
        self.kind = kind
        self.schema = schema_of(kind)
        self.expiry = expiry
        self._fields = list(type_of_lists(self.schema, expiry is not None).value_type)

    def get(self, rows: Numbers) -> tuple[list[pa.Array], Numbers]:
        """Return the columns of the elements that have not expired, and the place in ``rows`` of each."""
        present = np.flatnonzero(rows >= 0)
        lists = self.table.get(0, rows[present])
        of = np.repeat(present, lists.value_lengths().to_numpy())
        columns = lists.values.flatten()
        if self.expiry is not None:
            lives = columns[-1].to_numpy() > self.expiry.now_ms
            if not lives.all():
                columns, of = [column.filter(pa.array(lives)) for column in columns], of[lives]
        return columns, of

    def put(self, keys: Keys, columns: Sequence[pa.Array], of: Numbers) -> None:
        """Set the lists of distinct keys. ``of``: the place of the key of each element, ascending."""
        lengths = np.bincount(of, minlength=len(keys))
        some = lengths > 0
        if not some.all():
            rows = self.table.find(keys)[~some]
            self.table.remove(rows[rows >= 0])
            keys, lengths = keys.take(np.flatnonzero(some)), lengths[some]
        rows, _ = self.table.make(keys)
        self._set(rows, columns, lengths)

    def append(self, keys: Keys, columns: Sequence[pa.Array], of: Numbers) -> None:
        """Append to the lists of distinct keys. ``of``: the place of the key of each element, ascending."""
        lengths = np.bincount(of, minlength=len(keys))
        rows, new = self.table.make(keys)
        self.table.append(0, rows, self._lists(columns, lengths), new)
        if self.expiry is not None:
            times = _earliest(columns[-1], lengths)
            times[~new] = np.minimum(times[~new], self.table.deadlines_of(rows[~new]))
            self.table.set_deadlines(rows, times)

    def expire(self) -> None:
        """Remove the elements that have expired."""
        assert self.expiry is not None
        rows = self.table.take_due(self.expiry.now_ms)
        if len(rows):
            columns, of = self.get(rows)
            lengths = np.bincount(of, minlength=len(rows))
            self.table.remove(rows[lengths == 0])
            self._set(rows[lengths > 0], columns, lengths[lengths > 0])

    def load(self, keys: Keys, values: Sequence[Sequence[Any]]) -> None:
        """Set the lists of distinct keys to Python values, or pairs of a value and its expiry."""
        of = np.repeat(np.arange(len(keys)), [len(value) for value in values])
        elements: list[Any] = list(chain.from_iterable(values))
        expiries = []
        if self.expiry is not None:
            expiries = [pa.array([expiry for _, expiry in elements], pa.int64())]
            elements = [element for element, _ in elements]
        self.put(keys, [*map(in_one_piece, rows_to_table(elements, self.kind).columns), *expiries], of)

    def _set(self, rows: Numbers, columns: Sequence[pa.Array], lengths: Numbers) -> None:
        self.table.put(0, rows, self._lists(columns, lengths))
        if self.expiry is not None and len(rows):
            self.table.set_deadlines(rows, _earliest(columns[-1], lengths))

    def _lists(self, columns: Sequence[pa.Array], lengths: Numbers) -> pa.ListArray:
        ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
        return pa.ListArray.from_arrays(pa.array(ends), pa.StructArray.from_arrays(columns, fields=self._fields))


class ArrowKeyedLists(Generic[T]):
    """A list state for functions on tables: several rows for each key. ``T`` is the class of the rows.

    It is a list state in every other respect: the rows of a key are the elements that ``ListState[T]`` holds in a
    function on single records, also in savepoints. With a time to live each row expires by itself.

    Keys are passed as to ``ArrowKeyedState``.
    """

    def __init__(self, lists: Lists, finder: KeyFinder) -> None:
        self._lists = lists
        self._finder = finder

    def get(self, keys: KeyArray) -> ArrowKeyedRows:
        """Return the rows of ``keys``."""
        found = self._finder.find(keys)
        columns, of = self._read(found)
        rows = pa.table(columns[: len(self._lists.schema)], self._lists.schema)
        return ArrowKeyedRows(rows, of, found.places, len(found.keys))

    def put(self, keys: KeyArray, rows: pa.Table, of: Numbers) -> None:
        """Replace the rows of ``keys``. Keys without rows are removed.

        Args:
            keys: The keys that were passed to ``get``.
            rows: All rows that these keys shall have, those of a key in the order of its list.
            of: The number of the key of each row, as ``get`` has numbered them.

        Raises:
            SchemaError: The table does not match the class.
            ContractError: ``of`` does not have a number of a key for each row.
        """
        found = self._finder.find(keys)
        columns, of = self._fitted(rows, of, len(found.keys))
        self.put_distinct(found.keys, columns, of)

    def put_distinct(self, keys: Keys, columns: Sequence[pa.Array], of: Numbers) -> None:
        """Replace the rows of keys that were found and are distinct. For the operators of dsv2.

        Args:
            keys: The keys.
            columns: The columns of the rows.
            of: The place of the key of each row, ascending.
        """
        self._lists.put(keys, self._with_expiry(columns, len(of)), of)

    def append(self, keys: KeyArray, rows: pa.Table) -> None:
        """Append to the list of each of ``keys`` the row of ``rows`` at the same place.

        Raises:
            SchemaError: The table does not match the class.
            ContractError: There is not a row for each key.
        """
        found = self._finder.find(keys)
        if len(rows) != len(found.places):
            raise ContractError(f"{len(rows)} rows are to be appended to the lists of {len(found.places)} keys.")
        columns, of = self._fitted(rows, found.places, len(found.keys))
        self._lists.append(found.keys, self._with_expiry(columns, len(of)), of)

    def remove(self, keys: KeyArray) -> None:
        """Remove the rows of ``keys``."""
        table = self._lists.table
        rows = table.find(self._finder.find(keys).keys)
        table.remove(rows[rows >= 0])

    def tables(self) -> Iterator[pa.Table]:
        """Iterate over all rows of all keys, those of some thousand keys at a time.

        The columns are those of the key, named as by ``ArrowKeyedState.tables``, and those of the rows. Meanwhile, the
        lists of the keys in the table may be changed and removed. The order of keys is unspecified.
        """
        lists = self._lists
        for rows in lists.table.scan():
            columns, of = lists.get(rows)
            names, keys = self._finder.columns_of(lists.table.keys_of(rows).take(of), lists.schema.names)
            yield pa.table([*keys, *columns[: len(lists.schema)]], [*names, *lists.schema.names])

    def _read(self, found: FoundKeys) -> tuple[list[pa.Array], Numbers]:
        lists = self._lists
        rows = lists.table.find(found.keys)
        columns, of = lists.get(rows)
        if lists.expiry is not None and lists.expiry.renews_on_read and len(of):
            columns = self._with_expiry(columns[:-1], len(of))
            lists.put(found.keys, columns, of)
        return columns, of

    def _with_expiry(self, columns: Sequence[pa.Array], count: int) -> list[pa.Array]:
        expiry = self._lists.expiry
        if expiry is None:
            return list(columns)
        return [*columns, pa.array(np.full(count, expiry.next_deadline(), np.int64))]

    def _fitted(self, rows: pa.Table, of: Any, count: int) -> tuple[list[pa.Array], Numbers]:
        """The columns of rows in order of their keys, and the numbers of these."""
        numbers: Numbers = np.asarray(of)
        if len(numbers) != len(rows) or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < count):
            raise ContractError(f"There must be a number from 0 to {count - 1} of a key for each of {len(rows)} rows.")
        table = fitted(rows, self._lists.kind)
        order = sorting(numbers)
        if (order[1:] < order[:-1]).any():
            table, numbers = table.take(pa.array(order)), numbers[order]
        return [in_one_piece(column) for column in table.columns], numbers.astype(np.int64, copy=False)


def lists_of(lists: pa.ListArray, make: Any) -> list[list[Any]]:
    """Return Arrow lists of structs as lists of Python values. ``make`` is called with the fields of an element."""
    elements = [make(row) for row in zip(*(column.to_pylist() for column in lists.flatten().flatten()), strict=True)]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lists.value_lengths().to_numpy())]).tolist()
    return [elements[first:last] for first, last in pairwise(ends)]


def _earliest(times: pa.Array, lengths: Numbers) -> Numbers:
    """The earliest time of each list. There are no empty lists."""
    found: Numbers = np.minimum.reduceat(times.to_numpy(), np.cumsum(lengths) - lengths)
    return found
