"""The values of one column of keyed state, by row, in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.encoding import Numbers
from dsv2.arrow.segments import NONE, ranges, sorting

_FIXED: dict[Any, Any] = {
    pa.int64(): np.int64,
    pa.float64(): np.float64,
    pa.bool_(): np.bool_,
    pa.date32(): np.int32,
    pa.timestamp("us"): np.int64,
}


_OBSOLETE = 1 << 16  # bytes of replaced values that may stay, in addition to as many as the others have


class Cells(ABC):
    """The values of a column. Rows are written before they are read."""

    @abstractmethod
    def get(self, rows: Numbers) -> pa.Array:
        """Return the values of ``rows``."""

    @abstractmethod
    def put(self, rows: Numbers, values: pa.Array) -> None:
        """Set the values of ``rows``, which are distinct."""


class FixedCells(Cells):
    """Values of the same size, in a numpy array."""

    __slots__ = ("_has_nulls", "_stored_type", "_type", "_valid", "values")

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self.values: Numbers = np.zeros(0, _FIXED[kind])
        self._stored_type = pa.from_numpy_dtype(self.values.dtype)
        self._valid = np.zeros(0, np.bool_)
        self._has_nulls = False

    def get(self, rows: Numbers) -> pa.Array:
        values = self.values[rows]
        mask = ~self._valid[rows] if self._has_nulls else None
        return pa.array(values, self._stored_type, mask=mask).view(self._type)

    def put(self, rows: Numbers, values: pa.Array) -> None:
        values = values.view(self._stored_type)
        nulls = values.null_count
        valid = values.is_valid().to_numpy(zero_copy_only=False) if nulls else None
        if nulls:
            values = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
        self.put_numbers(rows, values.to_numpy(zero_copy_only=False), valid)

    def put_numbers(self, rows: Numbers, values: Numbers | int, valid: Numbers | None = None) -> None:
        """Set the values of ``rows``. ``valid``: Which of them are not null; None: all."""
        size = int(rows.max()) + 1 if len(rows) else 0
        self.values, self._valid = _reserved(self.values, size), _reserved(self._valid, size)
        self.values[rows] = values
        if valid is not None:
            self._has_nulls = True
        self._valid[rows] = True if valid is None else valid

    def is_valid(self, rows: Numbers) -> Numbers:
        """Return which values are not null."""
        found: Numbers = self._valid[rows]
        return found


class VariableCells(Cells):
    """Texts, lists and other values, as Arrow arrays. Replaced values stay until most are obsolete."""

    __slots__ = ("_bytes", "_places", "_rows", "_values")

    def __init__(self, kind: pa.DataType) -> None:
        self._values = _new_values(kind)
        self._bytes = 0
        self._places = np.zeros(0, np.int64)
        self._rows = 0

    def get(self, rows: Numbers) -> pa.Array:
        return self._values.take(self._places[rows])

    def put(self, rows: Numbers, values: pa.Array) -> None:
        if not len(rows):
            return
        self._rows = max(self._rows, int(rows.max()) + 1)
        self._places = _reserved(self._places, self._rows)
        first = self._values.append(values)
        self._places[rows] = np.arange(first, first + len(values))
        self._bytes += values.nbytes
        count = first + len(values)
        if self._bytes * (count - 2 * self._rows) > _OBSOLETE * count:
            kept = self.get(np.arange(self._rows))
            self._values = _new_values(values.type)
            self._values.append(kept)
            self._bytes = kept.nbytes
            self._places[: self._rows] = np.arange(self._rows)


class ListCells(Cells):
    """Lists of structs. A list consists of pieces, so that to append to it costs only what is appended.

    Replaced elements stay until most are obsolete. The first elements of a list may be added later, if it is not read
    before.
    """

    def __init__(self, kind: pa.ListType) -> None:
        self._kind = kind
        self._clear()

    def _clear(self) -> None:
        self._columns = [_new_values(field.type) for field in self._kind.value_type]
        self._rows = self._pieces = self._elements = 0
        self._last = self._sizes = np.zeros(0, np.int64)  # of each row: its last piece, and the number of elements
        self._lacking = np.zeros(0, np.bool_)  # of each row: whether its first elements are added later
        self._before = self._first = self._length = self._last  # of each piece: the one before it, and its elements

    def get(self, rows: Numbers) -> pa.ListArray:
        pieces = self._pieces_of(rows)
        first = self._first[pieces]
        places, _ = ranges(first, first + self._length[pieces])
        columns = [column.take(places) for column in self._columns]
        structs = pa.StructArray.from_arrays(columns, fields=list(self._kind.value_type))
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._sizes[rows])])
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), structs)

    def put(self, rows: Numbers, values: pa.Array) -> None:
        self.append(rows, values, np.ones(len(rows), np.bool_))

    def append(self, rows: Numbers, values: pa.ListArray, new: Numbers) -> None:
        """Append to the lists of ``rows``, which are distinct.

        Args:
            rows: The rows.
            values: What is appended to each.
            new: Which of the rows have no list before, whatever they had.
        """
        if not len(rows):
            return
        self._reserve(int(rows.max()) + 1, self._pieces + len(rows))
        self._last[rows[new]], self._sizes[rows[new]] = NONE, 0
        numbers = self._add(rows, values)
        self._before[numbers], self._last[rows] = self._last[rows], numbers
        if new.any() and self._elements > 2 * int(self._sizes[: self._rows].sum()) + 1024:
            everything, lacking = np.arange(self._rows), self._lacking
            kept = self.get(everything)
            self._clear()
            self.put(everything, kept)
            self._lacking = lacking

    def begin(self, rows: Numbers) -> None:
        """Begin lists that are empty so far. Their first elements are added by ``complete``, before they are read."""
        if len(rows):
            self._reserve(int(rows.max()) + 1, self._pieces)
            self._last[rows], self._sizes[rows], self._lacking[rows] = NONE, 0, True

    def complete(self, rows: Numbers, values: pa.ListArray) -> None:
        """Add the first elements of lists that have been begun. The rows are distinct."""
        self._reserve(self._rows, self._pieces + len(rows))
        numbers, own = self._add(rows, values), np.flatnonzero(self._last[rows] != NONE)
        oldest = self._last[rows[own]]
        while (later := self._before[oldest] != NONE).any():
            oldest[later] = self._before[oldest[later]]
        self._before[numbers], self._lacking[rows] = NONE, False
        self._before[oldest] = numbers[own]
        alone = self._last[rows] == NONE
        self._last[rows[alone]] = numbers[alone]

    def lacks(self, rows: Numbers) -> Numbers:
        """Return which lists have been begun and are not complete."""
        self._lacking = _reserved(self._lacking, int(rows.max(initial=-1)) + 1)
        found: Numbers = self._lacking[rows]
        return found

    def sizes(self, rows: Numbers) -> Numbers:
        """Return the number of elements of each list so far."""
        found: Numbers = self._sizes[rows]
        return found

    def _add(self, rows: Numbers, values: pa.ListArray) -> Numbers:
        """Add a piece for each of the rows, without its place in the list. Returns the pieces."""
        lengths, numbers = values.value_lengths().to_numpy(), np.arange(self._pieces, self._pieces + len(rows))
        self._length[numbers], self._first[numbers] = lengths, self._elements + np.cumsum(lengths) - lengths
        self._sizes[rows] += lengths
        for column, elements in zip(self._columns, values.flatten().flatten(), strict=True):
            column.append(elements)
        self._pieces += len(rows)
        self._elements += int(lengths.sum())
        return numbers

    def _pieces_of(self, rows: Numbers) -> Numbers:
        """The pieces of the lists, one list after the other."""
        of, pieces, found = np.arange(len(rows)), self._last[rows], []
        while (exist := pieces != NONE).any():
            of, pieces = of[exist], pieces[exist]
            found.append((of, pieces))
            pieces = self._before[pieces]
        if not found:
            return np.zeros(0, np.int64)
        of, pieces = (np.concatenate(parts[::-1]) for parts in zip(*found, strict=True))
        return pieces[sorting(of)]

    def _reserve(self, rows: int, pieces: int) -> None:
        self._rows = max(self._rows, rows)
        self._last, self._sizes = _reserved(self._last, rows), _reserved(self._sizes, rows)
        self._lacking = _reserved(self._lacking, rows)
        self._before, self._first = _reserved(self._before, pieces), _reserved(self._first, pieces)
        self._length = _reserved(self._length, pieces)


class _Values(Protocol):
    """An array that grows."""

    def append(self, values: pa.Array) -> int:
        """Append values and return the place of the first."""

    def take(self, places: Numbers) -> pa.Array:
        """Return the values at ``places``."""


class _FixedValues:
    """Values of the same size."""

    def __init__(self, kind: pa.DataType) -> None:
        self._cells = FixedCells(kind)
        self._count = 0

    def append(self, values: pa.Array) -> int:
        first, self._count = self._count, self._count + len(values)
        self._cells.put(np.arange(first, self._count), values)
        return first

    def take(self, places: Numbers) -> pa.Array:
        return self._cells.get(places)


class _Texts:
    """Texts or bytes, in two buffers."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._large = pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
        self._count = 0
        self._ends = np.zeros(1, np.int64)  # and the start of the first
        self._data = np.zeros(0, np.uint8)
        self._nulls = np.zeros(0, np.bool_)  # up to the last null

    def append(self, values: pa.Array) -> int:
        first, count = self._count, self._count + len(values)
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy()
        self._ends = _reserved(self._ends, count + 1)
        before = int(self._ends[first])
        np.cumsum(lengths, out=self._ends[first + 1 : count + 1])
        self._ends[first + 1 : count + 1] += before
        after = int(self._ends[count])
        self._data = _reserved(self._data, after)
        joined = b"".join(values.cast(pa.binary()).drop_null().to_pylist()) if values.null_count else _bytes(values)
        self._data[before:after] = np.frombuffer(joined, np.uint8)
        if values.null_count:
            self._nulls = _reserved(self._nulls, count)
            self._nulls[first:count] = values.is_null().to_numpy(zero_copy_only=False)
        self._count = count
        return first

    def take(self, places: Numbers) -> pa.Array:
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._data)]
        found = pa.Array.from_buffers(self._large, self._count, buffers).take(pa.array(places)).cast(self._kind)
        if not len(self._nulls):
            return found
        self._nulls = _reserved(self._nulls, self._count)
        return pc.if_else(pa.array(self._nulls[places]), pa.scalar(None, self._kind), found)


class _Arrays:
    """Values of any type, in several arrays. Each array is more than twice as long as the next one."""

    def __init__(self, kind: pa.DataType) -> None:
        self._arrays: list[pa.Array] = [pa.array([], kind)]
        self._starts = [0]

    def append(self, values: pa.Array) -> int:
        first = self._starts[-1] + len(self._arrays[-1])
        arrays, starts = self._arrays, self._starts
        joined, size, start = [values], len(values), first
        while arrays and len(arrays[-1]) <= 2 * size:
            joined.insert(0, arrays.pop())
            start = starts.pop()
            size += len(joined[0])
        arrays.append(pa.concat_arrays(joined) if len(joined) > 1 else values)
        starts.append(start)
        return first

    def take(self, places: Numbers) -> pa.Array:
        if len(self._arrays) == 1:
            return self._arrays[0].take(pa.array(places))
        which = np.searchsorted(self._starts, places, side="right") - 1
        order = np.argsort(which, kind="stable")
        bounds = np.searchsorted(which[order], np.arange(len(self._arrays) + 1))
        parts = [
            array.take(pa.array(places[order[bounds[number] : bounds[number + 1]]] - self._starts[number]))
            for number, array in enumerate(self._arrays)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))


def _new_values(kind: pa.DataType) -> _Values:
    if kind in _FIXED:
        return _FixedValues(kind)
    return _Texts(kind) if pa.types.is_string(kind) or pa.types.is_binary(kind) else _Arrays(kind)


def _bytes(values: pa.Array) -> memoryview:
    """The bytes of all values. There are no nulls."""
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def _reserved(values: Numbers, size: int) -> Numbers:
    """The numbers, with space for ``size``."""
    if size <= len(values):
        return values
    grown = np.zeros(max(size, 2 * len(values)), values.dtype)
    grown[: len(values)] = values
    return grown


def new_cells(kind: pa.DataType) -> Cells:
    """Return an empty column of a type."""
    if kind in _FIXED:
        return FixedCells(kind)
    return ListCells(kind) if has_lists(kind) else VariableCells(kind)


def has_lists(kind: pa.DataType) -> bool:
    """Return whether the values of a type are lists of structs, which can be appended to."""
    return bool(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))
