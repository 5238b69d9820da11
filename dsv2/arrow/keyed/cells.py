"""The values of one column of keyed state, by row, in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.encoding import Numbers

_FIXED: dict[Any, Any] = {
    pa.int64(): np.int64,
    pa.float64(): np.float64,
    pa.bool_(): np.bool_,
    pa.date32(): np.int32,
    pa.timestamp("us"): np.int64,
}


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
        self._grow(rows)
        self.values[rows] = values
        if valid is not None:
            self._has_nulls = True
        self._valid[rows] = True if valid is None else valid

    def is_valid(self, rows: Numbers) -> Numbers:
        """Return which values are not null."""
        found: Numbers = self._valid[rows]
        return found

    def _grow(self, rows: Numbers) -> None:
        size = int(rows.max()) + 1 if len(rows) else 0
        if size > len(self.values):
            size = max(size, 2 * len(self.values))
            self.values = _grown(self.values, size)
            self._valid = _grown(self._valid, size)


class VariableCells(Cells):
    """Texts, lists and other values, as Arrow arrays. Replaced values stay until most are obsolete."""

    __slots__ = ("_places", "_rows", "_values")

    def __init__(self, kind: pa.DataType) -> None:
        self._values = _new_values(kind)
        self._places = np.zeros(0, np.int64)
        self._rows = 0

    def get(self, rows: Numbers) -> pa.Array:
        return self._values.take(self._places[rows])

    def put(self, rows: Numbers, values: pa.Array) -> None:
        if not len(rows):
            return
        self._rows = max(self._rows, int(rows.max()) + 1)
        if self._rows > len(self._places):
            self._places = _grown(self._places, max(self._rows, 2 * len(self._places)))
        first = self._values.append(values)
        self._places[rows] = np.arange(first, first + len(values))
        if first > 2 * self._rows + 1024:
            kept = self.get(np.arange(self._rows))
            self._values = _new_values(values.type)
            self._values.append(kept)
            self._places[: self._rows] = np.arange(self._rows)


class _Values(Protocol):
    """An array that grows."""

    def append(self, values: pa.Array) -> int:
        """Append values and return the place of the first."""

    def take(self, places: Numbers) -> pa.Array:
        """Return the values at ``places``."""


class _Texts:
    """Texts or bytes, in two buffers."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._large = pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
        self._count = 0
        self._ends = np.zeros(1, np.int64)  # and the start of the first
        self._data = np.zeros(0, np.uint8)
        self._valid: list[tuple[int, Numbers]] = []  # the places from which on values may be null, and which are not

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
            self._valid.append((first, values.is_valid().to_numpy(zero_copy_only=False)))
        self._count = count
        return first

    def take(self, places: Numbers) -> pa.Array:
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._data)]
        found = pa.Array.from_buffers(self._large, self._count, buffers).take(pa.array(places)).cast(self._kind)
        if not self._valid:
            return found
        valid = np.ones(self._count, np.bool_)
        for first, part in self._valid:
            valid[first : first + len(part)] = part
        return pc.if_else(pa.array(valid[places]), found, pa.scalar(None, self._kind))


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
    return values if size <= len(values) else _grown(values, max(size, 2 * len(values)))


def new_cells(kind: pa.DataType) -> Cells:
    """Return an empty column of a type."""
    return FixedCells(kind) if kind in _FIXED else VariableCells(kind)


def _grown(values: Numbers, size: int) -> Numbers:
    grown = np.zeros(size, values.dtype)
    grown[: len(values)] = values
    return grown
