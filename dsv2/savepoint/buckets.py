"""Rows on the local disk, divided by their keys, so that rows with equal keys can be compared without much memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from tempfile import SpooledTemporaryFile
from zlib import crc32

from msgspec import msgpack

from dsv2.runtime.state.rows import RowKind, StateRow

_BUCKETS = 128
_IN_MEMORY = 1 << 18  # bytes of a bucket
_ROWS_AT_ONCE = 1 << 12
_LENGTH_BYTES = 8


class RowBuckets:
    """Stores rows, and returns them in buckets. Rows with the same key are in the same bucket, also of another object.

    A context manager, which deletes the files.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: Iterable[StateRow]) -> None:
        with ExitStack() as stack:
            self._files = [stack.enter_context(SpooledTemporaryFile(_IN_MEMORY)) for _ in range(_BUCKETS)]
            left = iter(rows)
            while some := list(islice(left, _ROWS_AT_ONCE)):
                self._add(some)
            self._stack = stack.pop_all()

    def __enter__(self) -> RowBuckets:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[list[StateRow]]:
        for file in self._files:
            end = file.tell()
            file.seek(0)
            rows: list[StateRow] = []
            while file.tell() < end:
                length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
                for subtask, kind, *others in msgpack.decode(file.read(length)):
                    rows.append(StateRow(subtask, RowKind(kind), *others))
            yield rows

    def _add(self, rows: Iterable[StateRow]) -> None:
        buckets: dict[int, list[StateRow]] = {}
        for row in rows:
            buckets.setdefault(crc32(row.key or b"") % _BUCKETS, []).append(row)
        for number, of_bucket in buckets.items():
            data = msgpack.encode(of_bucket)
            self._files[number].write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
