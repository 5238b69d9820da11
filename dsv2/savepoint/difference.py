"""Compares two savepoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

from msgspec import msgpack

from dsv2.checkpoint.differences import differences
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.metadata import SinkPosition
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.tables import TableId

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


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TableDifference:
    """The number of rows of a table that only the second savepoint has, only the first, or with another value."""

    added: int
    removed: int
    changed: int

    def __add__(self, other: TableDifference) -> TableDifference:
        return TableDifference(self.added + other.added, self.removed + other.removed, self.changed + other.changed)


_NONE = TableDifference(0, 0, 0)


@dataclass(frozen=True, slots=True)
class SavepointDifference:
    """The differences of a second savepoint from a first one.

    Attributes:
        program: The differences between their programs.
        positions: For each source with another position, its offsets in both; None where it has none.
        tables: The tables that differ.
        sinks: For each sink that has another position or target, both; None where it does not exist.
    """

    program: Sequence[str]
    positions: Mapping[str, tuple[Any, Any]]
    tables: Mapping[TableId, TableDifference]
    sinks: Mapping[str, tuple[SinkPosition | None, SinkPosition | None]]

    def __bool__(self) -> bool:
        return bool(self.program or self.positions or self.tables or self.sinks)


def difference(first: SavepointReader, second: SavepointReader) -> SavepointDifference:
    """Compare two savepoints. The rows of one operator at a time are on the local disk, and a part of them in memory.

    A key that has moved to another subtask has not changed.

    Raises:
        CorruptDataError: A file is damaged; names it.
    """
    program = [str(found) for found in differences(first.info.program, second.info.program)]
    uids = sorted({table.id.uid for info in (first.info, second.info) for table in info.tables})
    tables: dict[TableId, TableDifference] = {}
    for uid in uids:
        with RowBuckets(first.rows(uid)) as before, RowBuckets(second.rows(uid)) as after:
            found: dict[TableId, TableDifference] = {}
            for rows_before, rows_after in zip(before, after, strict=True):
                for table, counts in _of_operator(_by_table(uid, rows_before), _by_table(uid, rows_after)).items():
                    found[table] = found.get(table, _NONE) + counts
        tables |= dict(sorted(found.items(), key=lambda of_table: (of_table[0].kind, of_table[0].state or "")))
    positions = _changes(first.info.offsets, second.info.offsets)
    return SavepointDifference(
        program, positions, tables, _changes(first.info.sink_positions, second.info.sink_positions)
    )


_Value: TypeAlias = bytes | tuple[bytes | None, ...] | None
"""The value of a row, or those of several rows, sorted: on streams without keys, subtasks may have the same key."""

_Rows: TypeAlias = dict[TableId, dict[tuple[Any, ...], _Value]]


def _by_table(uid: str, rows: Iterable[StateRow]) -> _Rows:
    tables: _Rows = {}
    for row in rows:
        table = tables.setdefault(TableId.of(uid, row.kind, row.state), {})
        identity = _identity(row)
        table[identity] = _joined(table[identity], row.value) if identity in table else row.value
    return tables


def _joined(values: _Value, value: bytes | None) -> _Value:
    several = values if isinstance(values, tuple) else (values,)
    return tuple(sorted((*several, value), key=lambda one: one or b""))


def _identity(row: StateRow) -> tuple[Any, ...]:
    return (row.state, row.key) if row.kind.has_key else (row.subtask, row.state, row.kind)


def _of_operator(first: _Rows, second: _Rows) -> dict[TableId, TableDifference]:
    found = {}
    for table in first.keys() | second.keys():
        before, after = first.get(table, {}), second.get(table, {})
        both = before.keys() & after.keys()
        changed = sum(before[key] != after[key] for key in both)
        counts = TableDifference(len(after) - len(both), len(before) - len(both), changed)
        if counts != _NONE:
            found[table] = counts
    return found


def _changes(first: Mapping[str, V], second: Mapping[str, V]) -> dict[str, tuple[V | None, V | None]]:
    pairs = {uid: (first.get(uid), second.get(uid)) for uid in sorted(first.keys() | second.keys())}
    return {uid: (before, after) for uid, (before, after) in pairs.items() if before != after}
