"""A table with one row for each key, in pages of bytes between micro-batches. Only touched pages are decoded.

Pages are chosen by the stable hash of the key, which also chooses its key group, and their number grows with the number
of keys by linear hashing, as in ``dsv2.runtime.state.pages``.

Of a large page of lists only the keys are decoded, until one of its lists is read, replaced or removed. What has been
appended until then becomes a piece of the page, and the rest of the page stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.encoding import Numbers
from dsv2.arrow.keyed.cells import FixedCells, ListCells, has_lists, new_cells
from dsv2.arrow.keyed.keys import NUMBER, Keys, stored_type
from dsv2.arrow.keyed.page_format import decode_pages, encode_pages, pieces_of, with_piece
from dsv2.arrow.keyed.row_index import RowIndex
from dsv2.arrow.segments import bounds as bounds_of
from dsv2.arrow.segments import sorting
from dsv2.errors import CorruptDataError, InvalidKeyError
from dsv2.runtime.state.deadlines import Deadlines, DeadlinesState
from dsv2.runtime.state.page_store import PageStore

ABSENT: Final = -1
"""The row of a key that has none."""

_ROWS_AT_ONCE = 1 << 16
_LARGE = 1 << 12  # bytes of a page whose lists are decoded when they are read; others cost little
_MOST_PIECES = 8  # of a page; each repeats keys, and has a head
_MIXER = np.uint64(0xD6E8FEB86659FD93)  # odd and irregular, so that every bit of a hash affects the page


class TableState(NamedTuple):
    """A snapshot of a table.

    Attributes:
        kind: The kind of the keys; empty if there are none.
        keys: The number of keys.
        stored: The number of pages.
        pages: The pages that are stored in the state blob.
        deadlines: The deadlines of the pages.
    """

    kind: str
    keys: int
    stored: int
    pages: dict[int, bytes]
    deadlines: DeadlinesState | None


class KeyedTable:
    """Values by key. A row is a number that is valid until the next snapshot.

    Args:
        types: The types of the columns.
        store: Stores the pages.
        deadlines: The earliest deadline of each page, if rows have deadlines.
        owner: Names the state in error messages.
    """

    def __init__(self, types: Sequence[pa.DataType], store: PageStore, deadlines: Deadlines | None, owner: str) -> None:
        self.count = 0
        self._types = types
        self._store = store
        self._keys: Any
        self._live: Numbers
        self._last: tuple[Keys, Numbers] | None
        self._due = deadlines
        self._has_pieces = deadlines is None and len(types) == 1 and has_lists(types[0])
        self._owner = owner
        self._kind = ""
        self._stored = 0
        self._set_pages(1)
        self._forget()

    def find(self, keys: Keys) -> Numbers:
        """Return the row of each key, ``ABSENT`` if it has none."""
        rows = self._find(keys)
        present = np.flatnonzero(rows >= 0)
        rows[present[~self._live[rows[present]]]] = ABSENT
        return rows

    def make(self, keys: Keys) -> tuple[Numbers, Numbers]:
        """Return the row of each key, and which of them are new. The caller sets all columns of these."""
        rows = self._find(keys)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            rows[missing] = self._append(keys.take(missing))
            self._last = keys, rows.copy()
        new = ~self._live[rows]
        if new.any():
            self._live[rows[new]] = True
            self.count += int(np.count_nonzero(new))
        self.touch(rows)
        return rows, new

    def touch(self, rows: Numbers) -> None:
        """Mark rows as changed."""
        self._changed[self._pages_of(self._index.hashes[rows])] = True

    def remove(self, rows: Numbers) -> None:
        """Remove rows, which are distinct."""
        self._complete(rows)
        self._live[rows] = False
        self.count -= len(rows)
        self.touch(rows)

    def get(self, column: int, rows: Numbers) -> pa.Array:
        """Return values of a column; null for rows that are ``ABSENT``."""
        absent = rows < 0
        if not absent.any():
            self._complete(rows)
            return self._cells[column].get(rows)
        present = np.flatnonzero(~absent)
        self._complete(rows[present])
        places = np.zeros(len(rows), np.int64)
        places[present] = np.arange(len(present))
        return self._cells[column].get(rows[present]).take(pa.array(places, mask=absent))

    def put(self, column: int, rows: Numbers, values: pa.Array) -> None:
        """Set values of a column. The rows are distinct, and marked as changed."""
        self._complete(rows)
        self._cells[column].put(rows, values)

    def append(self, column: int, rows: Numbers, values: pa.Array, new: Numbers) -> None:
        """Append to the lists in a column. The rows are those of ``make``, and ``new`` those that are new."""
        cells = self._cells[column]
        assert isinstance(cells, ListCells)
        cells.append(rows, values, new)

    def keys_of(self, rows: Numbers) -> Keys:
        """Return the keys of rows."""
        return Keys(self._kind, self._keys.get(rows), self._index.hashes[rows])

    def deadlines_of(self, rows: Numbers) -> Numbers:
        """Return the deadlines of rows, in ms."""
        found: Numbers = self._deadlines.values[rows]
        return found

    def set_deadlines(self, rows: Numbers, times: Numbers) -> None:
        """Set the deadlines of rows, which are distinct and marked as changed, in ms."""
        assert self._due is not None
        self._deadlines.put_numbers(rows, times)
        if not len(rows):
            return
        pages = self._pages_of(self._index.hashes[rows])
        order = np.argsort(pages, kind="stable")
        distinct, firsts = np.unique(pages[order], return_index=True)
        earliest = np.minimum.reduceat(np.broadcast_to(times, rows.shape)[order], firsts)
        for page, time in zip(distinct.tolist(), earliest.tolist(), strict=True):
            self._due.hasten(page, time)

    def next_deadline(self) -> int | None:
        """Return the earliest deadline in ms, or an earlier time if one was removed; None if there is none."""
        return None if self._due is None else self._due.next()

    def take_due(self, time: int) -> Numbers:
        """Return the rows whose deadline is at most ``time``. The caller removes them or sets other deadlines."""
        assert self._due is not None
        pages = np.array(self._due.take(time), np.int64)
        if not len(pages):
            return np.zeros(0, np.int64)
        self._load(pages)
        self._changed[pages] = True  # so that the snapshot sets their deadlines again
        wanted = np.zeros(self._page_count, np.bool_)
        wanted[pages] = True
        rows = np.flatnonzero(self._live[: self._index.count])
        rows = rows[wanted[self._pages_of(self._index.hashes[rows])]]
        is_due = self.deadlines_of(rows) <= time
        self.set_deadlines(rows[~is_due], self.deadlines_of(rows[~is_due]))
        return rows[is_due]

    def scan(self) -> Iterator[Numbers]:
        """Iterate over the rows, some pages at a time. The table must not change meanwhile, except in these rows."""
        at_once = max(1, _ROWS_AT_ONCE * self._page_count // max(self.count, 1))
        for first in range(0, self._page_count, at_once):
            last = min(first + at_once, self._page_count)
            self._load(np.arange(first, last))
            rows = np.flatnonzero(self._live[: self._index.count])
            pages = self._pages_of(self._index.hashes[rows])
            rows = rows[(pages >= first) & (pages < last)]
            if len(rows):
                yield rows

    def discard(self) -> None:
        """Remove all keys and all pages. Called once, at the end."""
        self._clear()
        if self._due is not None:
            self._due.snapshot()
        self._store.snapshot()

    def snapshot(self) -> TableState:
        """Return the state. Only changed pages are encoded, and all pages are forgotten."""
        if not self.count:
            self._clear()
        else:
            self._grow()
            self._save()
        due = None if self._due is None else self._due.snapshot()
        self._forget()
        return TableState(self._kind, self.count, self._stored, self._store.snapshot(), due)

    def restore(self, state: TableState) -> None:
        """Restore a ``snapshot``."""
        self._kind, self.count, self._stored, pages, due = state
        self._store.restore(pages)
        if self._due is not None:
            self._due.restore(due)
        self._set_pages(max(1, self._stored))
        self._forget()

    def _find(self, keys: Keys) -> Numbers:
        """The row of each key, in use or not. The last keys are looked up once, for reading and writing."""
        if self._last is None or self._last[0] is not keys:
            self._last = keys, self._found(keys)
        return self._last[1].copy()

    def _found(self, keys: Keys) -> Numbers:
        if keys.kind != self._kind:
            if self.count:
                raise InvalidKeyError(f"{self._owner}: its keys are of kind {self._kind}, these are {keys.kind}.")
            if self._stored or self._index.count:  # all keys were removed
                self._clear()
                self._forget()
            self._kind = keys.kind
        if self._stored and not self._loaded.all():
            self._load(np.unique(self._pages_of(keys.hashes)))
        return self._lookup(keys)

    def _lookup(self, keys: Keys) -> Numbers:
        return self._index.find(keys.hashes, lambda rows, places: self._equal(rows, keys.values, places))

    def _equal(self, rows: Numbers, keys: pa.Array, places: Numbers) -> Numbers:
        if isinstance(self._keys, FixedCells):
            equal: Numbers = self._keys.values[rows] == keys.to_numpy()[places]
            return equal
        same = pc.equal(self._keys.get(rows), keys.take(pa.array(places)))
        found: Numbers = same.to_numpy(zero_copy_only=False)
        return found

    def _append(self, keys: Keys) -> Numbers:
        self._last = None
        rows = self._index.add(keys.hashes)
        if self._keys is None:
            self._keys = new_cells(stored_type(self._kind))
        self._keys.put(rows, keys.values)
        if self._index.count > len(self._live):
            self._live = np.resize(self._live, max(self._index.count, 2 * len(self._live)))
        self._live[rows] = False
        return rows

    def _load(self, pages: Numbers) -> None:
        if not self._stored:
            return
        numbers = pages[~self._loaded[pages]]
        if not len(numbers):
            return
        self._loaded[numbers] = True
        payloads = [self._page(number) for number in numbers.tolist()]
        if self._has_pieces:
            is_large = np.fromiter(map(len, payloads), np.int64, len(payloads)) >= _LARGE
            self._load_keys(dict(compress(zip(numbers.tolist(), payloads, strict=True), is_large)))
            payloads = list(compress(payloads, ~is_large))
        if not payloads:
            return
        keys, columns, deadlines = decoded_page(self._kind, self._types, self._due is not None, payloads)
        rows = self._append(keys)
        self._live[rows] = True
        for cells, values in zip(self._cells, columns, strict=True):
            cells.put(rows, values)
        if deadlines is not None:
            self._deadlines.put_numbers(rows, deadlines)

    def _load_keys(self, pages: Mapping[int, bytes]) -> None:
        if not pages:
            return
        rows = self._append(_keys_of(self._kind, self._types, list(pages.values())))
        self._live[rows] = True
        self._lists.begin(rows)
        self._partial |= pages
        self._is_partial[list(pages)] = True

    def _complete(self, rows: Numbers) -> None:
        """Decode the pages with the lists of ``rows``."""
        if self._partial and len(rows):
            lacking = rows[self._lists.lacks(rows)]
            self._complete_pages(np.unique(self._pages_of(self._index.hashes[lacking])))

    def _complete_pages(self, pages: Numbers) -> None:
        pages = pages[self._is_partial[pages]]
        if not len(pages):
            return
        self._is_partial[pages] = False
        payloads = [self._partial.pop(number) for number in pages.tolist()]
        keys, (lists,), _ = decoded_page(self._kind, self._types, False, payloads)
        self._lists.complete(self._lookup(keys), lists)

    @property
    def _lists(self) -> ListCells:
        (cells,) = self._cells
        assert isinstance(cells, ListCells)
        return cells

    def _page(self, number: int) -> bytes:
        page = self._store.get(number)
        if page is None:
            raise CorruptDataError(f"{self._owner}: page {number} is missing.")
        return page

    def _grow(self) -> None:
        before, wanted = self._page_count, min(-(-self.count // self._store.rows), self._store.most)
        if not self._stored:
            self._set_pages(max(wanted, 1))
            self._changed[:] = True
        elif wanted > before:
            new = np.arange(before, wanted)
            divided = np.unique(self._bounded(new & self._mask))
            self._load(divided)
            self._complete_pages(divided)
            loaded, changed, is_partial = self._loaded, self._changed, self._is_partial
            self._set_pages(wanted)
            self._loaded[:before], self._changed[:before], self._is_partial[:before] = loaded, changed, is_partial
            self._changed[divided] = self._changed[before:] = True

    def _save(self) -> None:
        changed = np.flatnonzero(self._changed)
        if not len(changed):
            return
        full = (number for number, page in self._partial.items() if len(pieces_of(page)) >= _MOST_PIECES)
        self._complete_pages(np.array([number for number in full if self._changed[number]], np.int64))
        rows = np.flatnonzero(self._live[: self._index.count])
        pages = self._pages_of(self._index.hashes[rows])
        chosen = self._changed[pages]
        if self._partial:
            chosen &= ~self._is_partial[pages] | (self._lists.sizes(rows) > 0)
        rows, pages = rows[chosen], pages[chosen]
        order = np.argsort(pages.astype(np.uint16) if self._page_count < 1 << 16 else pages, kind="stable")
        rows, pages = rows[order], pages[order]
        bounds = np.append(np.searchsorted(pages, changed), len(pages))
        for number, page in zip(changed.tolist(), encode_pages(self._columns_of(rows), bounds), strict=True):
            before = self._partial.get(number)
            self._store.put(number, page if before is None else with_piece(before, page))
        self._stored = self._page_count
        if self._due is not None:
            times = self.deadlines_of(rows)
            for number, first, last in zip(changed.tolist(), bounds.tolist(), bounds[1:].tolist(), strict=False):
                self._due.put(number, int(times[first:last].min()) if last > first else None)

    def _columns_of(self, rows: Numbers) -> list[pa.Array]:
        keys = self.keys_of(rows)
        columns = [keys.values] if keys.kind == NUMBER else [keys.values, pa.array(keys.hashes.astype(np.int64))]
        columns += (cells.get(rows) for cells in self._cells)
        return columns if self._due is None else [*columns, pa.array(self.deadlines_of(rows))]

    def _clear(self) -> None:
        for number in range(self._stored):
            self._store.remove(number)
        if self._due is not None:
            for number in range(self._page_count):
                self._due.put(number, None)
        self._stored = 0
        self._kind = ""
        self._set_pages(1)

    def _forget(self) -> None:
        self._last = None
        self._index = RowIndex()
        self._keys = None
        self._live = np.zeros(0, np.bool_)
        self._cells = [new_cells(kind) for kind in self._types]
        self._deadlines = FixedCells(pa.int64())
        self._loaded[:] = self._changed[:] = self._is_partial[:] = False
        self._partial: dict[int, bytes] = {}

    def _set_pages(self, count: int) -> None:
        self._page_count = count
        self._mask = (1 << (count - 1).bit_length()) - 1
        self._loaded, self._changed, self._is_partial = np.zeros((3, count), np.bool_)

    def _pages_of(self, hashes: Numbers) -> Numbers:
        mixed = hashes.astype(np.uint64) * _MIXER >> np.uint64(32) & np.uint64(self._mask)
        return self._bounded(mixed.astype(np.int64))

    def _bounded(self, pages: Numbers) -> Numbers:
        bounded: Numbers = np.where(pages < self._page_count, pages, pages & self._mask >> 1)
        return bounded


def decoded_page(
    kind: str, types: Sequence[pa.DataType], has_deadlines: bool, pages: Sequence[bytes]
) -> tuple[Keys, list[pa.Array], Numbers | None]:
    """Decode pages of a table.

    Args:
        kind: The kind of the keys.
        types: The types of the columns.
        has_deadlines: Whether rows have deadlines.
        pages: The pages.

    Returns:
        The keys, the columns, and the deadlines.

    Raises:
        CorruptDataError: The bytes are damaged.
    """
    of_keys, pieces = _types_of_keys(kind), _pieces_of(pages)
    of_deadlines = [pa.int64()] if has_deadlines else []
    columns, _ = decode_pages([*of_keys, *types, *of_deadlines], pieces)
    deadlines = columns.pop().to_numpy() if has_deadlines else None
    keys, values = _stored_keys(kind, columns[: len(of_keys)]), columns[len(of_keys) :]
    if len(pieces) > len(pages):
        keys, values = _with_joined_lists(keys, *values)
    return keys, values, deadlines


def _keys_of(kind: str, types: Sequence[pa.DataType], pages: Sequence[bytes]) -> Keys:
    of_keys, pieces = _types_of_keys(kind), _pieces_of(pages)
    columns, _ = decode_pages([*of_keys, *types], pieces, len(of_keys))
    keys = _stored_keys(kind, columns)
    return keys if len(pieces) == len(pages) else keys.take(_by_key(keys)[1])


def _pieces_of(pages: Sequence[bytes]) -> list[bytes | memoryview]:
    return list(chain.from_iterable(map(pieces_of, pages)))


def _types_of_keys(kind: str) -> list[pa.DataType]:
    return [stored_type(kind)] if kind == NUMBER else [stored_type(kind), pa.int64()]


def _stored_keys(kind: str, columns: Sequence[pa.Array]) -> Keys:
    values, *others = columns
    return Keys.stored(kind, values, others[0].to_numpy().astype(np.uint32) if others else None)


def _with_joined_lists(keys: Keys, lists: pa.ListArray) -> tuple[Keys, list[pa.Array]]:
    """Join the lists of keys that occur several times."""
    order, firsts, bounds = _by_key(keys)
    lists = lists.take(pa.array(order))
    joined = pa.ListArray.from_arrays(lists.offsets.take(pa.array(bounds)), lists.values)
    return keys.take(firsts), [joined]


def _by_key(keys: Keys) -> tuple[Numbers, Numbers, Numbers]:
    """The places of keys, ordered by key; the first place of each key; and the bounds of the keys in the order."""
    places = pc.dictionary_encode(keys.values).indices.to_numpy()
    order, bounds = sorting(places), bounds_of(places, int(places.max(initial=-1)) + 1)
    return order, order[bounds[:-1]], bounds
