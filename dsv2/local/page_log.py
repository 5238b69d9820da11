"""The log of a local checkpoint: a transaction for each micro-batch, with the pages that it has changed.

The log is a series of segments. Each begins with the places of all pages, so a start reads the last segment only. A
transaction is on the disk before anything follows it. When more than half of the log is outdated, each transaction also
moves some pages from the oldest segment, until that can be deleted. So the cost of a micro-batch depends on what it
changes.

A record of a segment is a header, a head (MessagePack), and a body (bytes)::

    BASE      the notes of the last transaction, and the places of all pages
    PAGES     pages of a transaction that is too large for one record
    COMMIT    a transaction: changed notes, and pages; the other bytes of its body are read by the next start only
    MARK      the last transaction is complete: nothing needs its other bytes any more
"""

from __future__ import annotations

import struct
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from dsv2.errors import CorruptDataError
from dsv2.local.page_index import Extent, MapName, PageMap
from dsv2.local.segment_files import SegmentFiles

_HEADER = struct.Struct("=IBIQII")  # magic, kind, length of the head and of the body, checksums of both and of these
_MAGIC = 0x32565344
_BLOCK = 512  # bytes, the least that a disk writes
_SPILLED_BYTES = 8 << 20
_LEAST_SEGMENT = 16 << 20
_SEGMENTS = 8  # of this size, all pages would fit in so many
_CLEANED = 4  # times the bytes that a transaction writes
_LEAST_CLEANED = 1 << 16

H = TypeVar("H", bound=Struct)


class _Kind(IntEnum):
    BASE = 1
    PAGES = 2
    COMMIT = 3
    MARK = 4


class _Pages(NamedTuple):
    """Changes of a map: the numbers and sizes of pages in the order of the body, and the numbers of removed pages."""

    name: MapName
    numbers: bytes
    sizes: bytes
    removed: bytes


class _Transaction(Struct, frozen=True, array_like=True):
    """The head of ``PAGES`` and ``COMMIT``. ``replaced``: How often the transaction has removed all pages so far."""

    replaced: int
    pages: list[_Pages]
    notes: dict[str, bytes] = {}
    others: list[int] = []


class _StoredMap(NamedTuple):
    name: MapName
    places: bytes
    sizes: bytes


class _Base(Struct, frozen=True, array_like=True):
    """The head of ``BASE``."""

    notes: dict[str, bytes]
    maps: list[_StoredMap]


class _Record(NamedTuple):
    kind: _Kind
    head: bytes
    body: Extent
    end: int


class LogPlace(NamedTuple):
    """A log, and the last micro-batch that it may have. None: it may have any.

    Attributes:
        folder: The folder of its segments.
        batch_id: The last micro-batch. Transactions have the note ``BATCH``.
    """

    folder: str
    batch_id: int | None = None


class StoredLogs(NamedTuple):
    """The logs with the state of a job. ``own``: Whether those who restore it write to the same logs."""

    logs: list[LogPlace]
    own: bool


BATCH: Final = "batch"
"""The note with the number of the micro-batch."""


class PageLog:
    """The log in ``folder``. ``recover`` is called first.

    Args:
        folder: The folder of its segments.
        durable: Whether a transaction is forced to the disk.
    """

    def __init__(self, folder: str, *, durable: bool = True) -> None:
        self._files = SegmentFiles(folder, durable=durable)
        self._maps: dict[MapName, PageMap] = {}
        self._former: dict[MapName, PageMap] = {}  # the stored pages, if the next transaction replaces all of them
        self._replaced = 0  # how often it has done so
        self._changed: dict[MapName, PageMap] = {}
        self._new_bytes = 0
        self._has_begun = False  # the next transaction, with a record in the last segment
        self._live_bytes = 0
        self._cleaner: Iterator[int] | None = None
        self._emptied: list[int] = []  # segments without pages that are to be deleted
        self._end = 0  # of the transactions that were read of the last segment
        self._lock = threading.RLock()  # other threads pin transactions
        self._pinned: list[PinnedPages] = []
        self.notes: dict[str, bytes] = {}
        """The notes of the last transaction. Empty: there is no transaction."""
        self.others: list[bytes] = []
        """The other bytes of the last transaction, if ``is_marked`` is False."""
        self.is_marked = True
        """True if ``mark`` was called after the last transaction."""

    @property
    def size(self) -> int:
        """The size of the log in bytes."""
        return sum(self._files.sizes.values())

    def names(self) -> list[MapName]:
        """Return the names of the stored maps."""
        return list(self._stored_maps)

    def stored(self, name: MapName) -> PageReader:
        """Return the pages of a map as of the last transaction, also after ``replace_all``."""
        return PageReader(self._files, self._stored_maps.get(name) or PageMap(name), {})

    def replace_all(self) -> None:
        """Remove all pages with the next transaction. Those that ``stored`` has returned can be read until then."""
        with self._lock:
            if not self._replaced:
                self._former = self._maps
            self._replaced += 1
            self._maps, self._changed, self._new_bytes = {}, {}, 0

    def get(self, name: MapName, number: int) -> bytes | None:
        """Return a page with the changes since the last transaction; None if there is none."""
        found = self._maps.get(name)
        if found is None or number in found.removed:
            return None
        if (data := found.new.get(number)) is not None:
            return data
        place = found.spilled.get(number) or found.place(number)
        return None if place is None else self._files.read(*place)

    def put(self, name: MapName, number: int, data: bytes) -> None:
        """Change a page."""
        self._to_change(name).put(number, data)
        self._new_bytes += len(data)
        if self._new_bytes > _SPILLED_BYTES:
            self._write(_Kind.PAGES)

    def remove(self, name: MapName, number: int) -> None:
        """Remove a page."""
        self._to_change(name).remove(number)

    def commit(self, notes: Mapping[str, bytes], others: Sequence[bytes]) -> None:
        """Write the changes as a transaction.

        Args:
            notes: Small values by name that have changed since the last transaction.
            others: Bytes that belong to this transaction only.

        Raises:
            JobError: The file system has no space left, for example. The log is as before.
        """
        if not self._replaced:
            self._clean(_CLEANED * (self._new_bytes + sum(map(len, others))))
        self._write(_Kind.COMMIT, notes, others)
        self._files.sync()
        with self._lock:
            self._apply()
            self.notes = {**self.notes, **notes}
        self.others, self.is_marked = [*others], False

    def mark(self) -> None:
        """Record that the last transaction is complete. The next one implies it, so this is not forced to the disk."""
        self._append(_Kind.MARK, b"", b"")
        self.others, self.is_marked = [], True
        with self._lock:  # ``pinned`` opens the segments
            for segment in self._emptied:
                self._files.delete(segment)
        self._emptied.clear()

    @contextmanager
    def pinned(self) -> Iterator[PinnedPages]:
        """Give another thread access to the last transaction, until the context ends. The log may change meanwhile."""
        with self._lock:
            maps = {name: one for name, one in self._stored_maps.items() if one.count}
            pinned = PinnedPages(self._files.new_reader(), maps, self.notes)
            self._pinned.append(pinned)
        try:
            yield pinned
        finally:
            with self._lock:
                self._pinned.remove(pinned)
            pinned.close()

    def recover(self, *, writes: bool, accepts: Callable[[Mapping[str, bytes]], bool] = lambda notes: True) -> None:
        """Read the last transaction.

        Args:
            writes: Whether this process will append to the log, so that a transaction that is not complete is removed.
            accepts: Whether a transaction with these notes counts as complete. If the last one does not, the one before
                it is read, and the last one is removed as well.

        Raises:
            CorruptDataError: The log is damaged.
        """
        self._files.find()
        last = self._files.last
        if last < 0:
            return
        self._end = self._recover_transactions(last, self._recover_base(last), accepts)
        if writes and self._end < self._files.sizes[last]:
            self._files.truncate(last, self._end)

    def follow(self, batch_id: int) -> bool:
        """Read what another process has appended since ``recover``, up to a micro-batch.

        Returns whether this is now the last transaction. If not, the log is to be opened again: a segment has begun.
        """
        last = self._files.last
        self._files.find()
        if self._files.last == last >= 0:
            with self._lock:
                self._end = self._recover_transactions(last, self._end, _up_to(batch_id))
        return self.notes.get(BATCH) == str(batch_id).encode()

    @property
    def lacks_segments(self) -> bool:
        """True if pages are in segments that do not exist."""
        return any(one.segments() - self._files.sizes.keys() for one in self._stored_maps.values())

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    @property
    def _stored_maps(self) -> dict[MapName, PageMap]:
        return self._former if self._replaced else self._maps

    @property
    def _segment_bytes(self) -> int:
        return max(_LEAST_SEGMENT, self._live_bytes // _SEGMENTS)

    def _to_change(self, name: MapName) -> PageMap:
        found = self._changed.get(name)
        if found is None:
            found = self._changed[name] = self._maps.setdefault(name, PageMap(name))
        return found

    def _begin_segment(self) -> None:
        if self._files.last >= 0:
            self._files.sync()
        maps = [_StoredMap(one.name, *one.stored()) for one in self._stored_maps.values() if one.count]
        self._files.begin(_record(_Kind.BASE, msgspec.msgpack.encode(_Base(self.notes, maps)), b""))

    def _write(self, kind: _Kind, notes: Mapping[str, bytes] | None = None, others: Sequence[bytes] = ()) -> None:
        """Write the changes that are not in the log."""
        is_full = self._files.last < 0 or self._files.sizes[self._files.last] >= self._segment_bytes
        if is_full and self.is_marked and not self._has_begun:  # all that a start needs is in one segment
            self._begin_segment()
        is_last = kind is _Kind.COMMIT
        changed = [one for one in self._changed.values() if one.new or (is_last and one.removed)]
        pages = [
            _Pages(
                one.name,
                array("Q", one.new).tobytes(),
                array("I", map(len, one.new.values())).tobytes(),
                array("Q", sorted(one.removed)).tobytes() if is_last else b"",
            )
            for one in changed
        ]
        head = _Transaction(self._replaced, pages, {**(notes or {})}, [*map(len, others)])
        body = b"".join([*(data for one in changed for data in one.new.values()), *others])
        segment, offset, _ = self._append(kind, msgspec.msgpack.encode(head), body)
        for one in changed:
            for number, data in one.new.items():
                one.spilled[number] = Extent(segment, offset, len(data))
                offset += len(data)
            one.new.clear()
        self._new_bytes = 0
        self._has_begun = not is_last

    def _append(self, kind: _Kind, head: bytes, body: bytes) -> Extent:
        """Append a record, and return the place of its body."""
        offset = self._files.append(_record(kind, head, body))
        return Extent(self._files.last, offset + _HEADER.size + len(head), len(body))

    def _apply(self) -> None:
        """Make all changes a part of the last transaction."""
        if self._replaced:
            self._former, self._replaced, self._live_bytes, self._cleaner = {}, 0, 0, None
        for one in self._changed.values():
            for pinned in self._pinned:
                pinned.keep(one)
            self._live_bytes += one.apply()
            if not one.count:
                self._maps.pop(one.name, None)
        self._changed.clear()

    def _clean(self, budget: int) -> None:
        """Move pages out of the oldest segments. Those that are empty then are deleted by ``mark``."""
        budget = max(budget, _LEAST_CLEANED)
        used = {segment: size for segment, size in self._files.sizes.items() if segment not in self._emptied}
        while budget > 0 and sum(used.values()) > self._allowed_bytes and len(used) > 1:
            oldest = min(used)
            if self._cleaner is None:
                self._cleaner = self._moved(oldest)
            for step in self._cleaner:
                budget -= step
                if budget <= 0:
                    return
            self._cleaner = None
            self._emptied.append(oldest)
            del used[oldest]

    @property
    def _allowed_bytes(self) -> int:
        return 2 * (self._live_bytes + self._segment_bytes)

    def _moved(self, segment: int) -> Iterator[int]:
        """Move the pages in ``segment`` that are valid. Yields the bytes that were looked at."""
        offset = 0
        while (record := self._record(segment, offset, whole=False)) is not None:
            if record.kind in (_Kind.PAGES, _Kind.COMMIT):
                for name, number, place in _places(_decoded(record.head, _Transaction), record.body):
                    one = self._maps.get(name)
                    if one is not None and one.place(number) == place and not _is_changed(one, number):
                        self.put(name, number, self._files.read(*place))
                    yield place.size
            yield record.end - offset - record.body.size
            offset = record.end

    def _recover_base(self, segment: int) -> int:
        """Read the places of all pages, and return their end."""
        record = self._record(segment, 0)
        if record is None or record.kind is not _Kind.BASE:
            raise self._damage(segment, 0)
        base = _decoded(record.head, _Base)
        self.notes = base.notes
        self._maps = {name: PageMap(name, places, sizes) for name, places, sizes in base.maps}
        self._live_bytes = sum(one.size() for one in self._maps.values())
        return record.end

    def _recover_transactions(self, segment: int, offset: int, accepts: Callable[[Mapping[str, bytes]], bool]) -> int:
        """Read the transactions of a segment, and return the end of the last one."""
        end = offset
        while (record := self._record(segment, offset)) is not None:
            offset = record.end
            if record.kind is _Kind.MARK:
                self.others, self.is_marked = [], True
                end = offset
                continue
            head = _decoded(record.head, _Transaction)
            if record.kind is _Kind.COMMIT and not accepts(head.notes):
                break
            while head.replaced > self._replaced:
                self.replace_all()
            for name, number, place in _places(head, record.body):
                one = self._to_change(name)
                one.removed.discard(number)
                one.spilled[number] = place
            for pages in head.pages:
                for number in array("Q", pages.removed):
                    self._to_change(pages.name).remove(number)
            if record.kind is _Kind.COMMIT:
                self._apply()
                self.notes |= head.notes
                self.others, self.is_marked = self._others(head, record.body), False
                end = offset
        if end < offset:  # the process died before the transaction was complete
            self._discard()
        return end

    def _discard(self) -> None:
        """Undo the changes since the last transaction."""
        for one in self._changed.values():
            one.spilled.clear()
            one.removed.clear()
        if self._replaced:
            self._maps, self._former, self._replaced = self._former, {}, 0
        self._changed = {}

    def _others(self, head: _Transaction, body: Extent) -> list[bytes]:
        start = body.offset + body.size - sum(head.others)
        data = self._files.read(body.segment, start, sum(head.others))
        return [data[end - size : end] for end, size in zip(accumulate(head.others), head.others, strict=True)]

    def _record(self, segment: int, offset: int, *, whole: bool = True) -> _Record | None:
        """Read a record without its body.

        Args:
            segment: The segment.
            offset: Where the record begins.
            whole: Whether to check the body.

        Returns:
            The record; None at the end of the segment, or if the process or the machine stopped while it was written.

        Raises:
            CorruptDataError: It is damaged.
        """
        left = self._files.sizes[segment] - offset
        start = self._files.read(segment, offset, _HEADER.size)
        size = 0
        if _is_header(start):
            _, kind, of_head, of_body, checksum, _ = _HEADER.unpack(start)
            size = _HEADER.size + of_head + of_body
            head = self._files.read(segment, offset + _HEADER.size, of_head)
            body = Extent(segment, offset + size - of_body, of_body)
            if size <= left and (not whole or crc32(self._files.read(*body), crc32(head)) == checksum):
                return _Record(_Kind(kind), head, body, offset + size)
        data = self._files.read(segment, offset, left)
        if _has_mark(data) or (_HEADER.size <= left >= size and not _lacks_block(data, offset)):
            raise self._damage(segment, offset)
        return None

    def _damage(self, segment: int, offset: int) -> CorruptDataError:
        return CorruptDataError(
            f"{self._files.path(segment)} is damaged at byte {offset}. Restore the checkpoint from a backup, or start "
            f"from a new checkpoint_location."
        )


class PageReader:
    """The stored pages of a map.

    Args:
        files: Reads the segments.
        pages: The pages.
        kept: The former places of those that later transactions have changed.
    """

    def __init__(self, files: SegmentFiles, pages: PageMap, kept: Mapping[int, Extent | None]) -> None:
        self._files = files
        self._pages = pages
        self._kept = kept

    def get(self, number: int) -> bytes | None:
        """Return a page; None if there is none."""
        now = self._pages.place(number)  # first: if a transaction has changed it, the former place is kept already
        place = self._kept.get(number, now)
        return None if place is None else self._files.read(*place)

    def numbers(self) -> Iterator[int]:
        """Iterate over the numbers of the pages."""
        return self._pages.numbers()


class PinnedPages:
    """The pages of a transaction, for a thread other than that of the log. Later transactions do not change them.

    A transaction that follows first keeps here the places of the pages that it changes. So the index is not copied.

    Args:
        files: Reads the segments.
        maps: The maps, which the log changes.
        notes: The notes of the transaction.
    """

    def __init__(self, files: SegmentFiles, maps: dict[MapName, PageMap], notes: Mapping[str, bytes]) -> None:
        self.notes = notes
        self._files = files
        self._maps = maps
        self._kept: dict[MapName, dict[int, Extent | None]] = {name: {} for name in maps}

    def names(self) -> list[MapName]:
        """Return the names of the maps."""
        return list(self._maps)

    def stored(self, name: MapName) -> PageReader:
        """Return the pages of a map."""
        return PageReader(self._files, self._maps.get(name) or PageMap(name), self._kept.get(name, {}))

    def keep(self, pages: PageMap) -> None:
        """Keep the places of the pages that a transaction is about to change."""
        if self._maps.get(pages.name) is pages:
            kept = self._kept[pages.name]
            for number in (*pages.spilled, *pages.removed):
                kept.setdefault(number, pages.place(number))

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def open_log(place: LogPlace, *, durable: bool, writes: bool) -> PageLog:
    """Open a log, and read its last transaction. Later ones than that of its micro-batch are removed.

    Raises:
        CorruptDataError: The log is damaged, or lacks the micro-batch.
    """
    log, last = PageLog(place.folder, durable=durable), place.batch_id
    log.recover(writes=writes, accepts=_up_to(last))
    if last is not None and log.notes.get(BATCH) != str(last).encode():
        raise CorruptDataError(
            f"{place.folder} is damaged: it does not have micro-batch {last}. Restore the checkpoint from a backup, or "
            f"start from a new checkpoint_location."
        )
    return log


def _up_to(batch_id: int | None) -> Callable[[Mapping[str, bytes]], bool]:
    return lambda notes: batch_id is None or int(notes[BATCH]) <= batch_id


def _is_header(start: bytes) -> bool:
    if len(start) < _HEADER.size:
        return False
    magic, *_, checksum = _HEADER.unpack(start)
    return bool(magic == _MAGIC and checksum == crc32(start[:-4]))


def _has_mark(data: bytes) -> bool:
    """Return whether there is a mark in ``data``, so that the transactions in it were complete."""
    start, place = struct.pack("=IB", _MAGIC, _Kind.MARK), -1
    while (place := data.find(start, place + 1)) >= 0:
        if _is_header(data[place : place + _HEADER.size]):
            return True
    return False


def _lacks_block(data: bytes, offset: int) -> bool:
    """Return whether one of the blocks of a disk is blank in ``data``, which begins at ``offset``."""
    first = _BLOCK - offset % _BLOCK
    bounds = [0, *range(first, len(data), _BLOCK), len(data)]
    return any(not any(data[start:end]) for start, end in pairwise(bounds))


def _record(kind: _Kind, head: bytes, body: bytes) -> bytes:
    start = _HEADER.pack(_MAGIC, kind, len(head), len(body), crc32(body, crc32(head)), 0)[:-4]
    return b"".join([start, crc32(start).to_bytes(4, sys.byteorder), head, body])


def _is_changed(pages: PageMap, number: int) -> bool:
    return number in pages.new or number in pages.spilled or number in pages.removed


def _places(head: _Transaction, body: Extent) -> Iterator[tuple[MapName, int, Extent]]:
    """Return the places of the pages in a record, with the names of their maps and their numbers."""
    offset = body.offset
    for pages in head.pages:
        for number, size in zip(array("Q", pages.numbers), array("I", pages.sizes), strict=True):
            yield pages.name, number, Extent(body.segment, offset, size)
            offset += size


def _decoded(head: bytes, kind: type[H]) -> H:
    try:
        return msgspec.msgpack.decode(head, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptDataError(f"The checkpoint was written by another version of dsv2: {error}.") from error
