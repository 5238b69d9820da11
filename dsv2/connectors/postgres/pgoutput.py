"""The messages of ``pgoutput``, the server's own form of logical decoding (version 1 of its protocol).

Pure: bytes in, tuples out. Values are text, as the server writes them, to be turned into values elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dsv2.connectors.postgres.change import ChangeKind
from dsv2.errors import CorruptDataError

__all__ = ("UNTOLD", "Column", "Relation", "RelationChange", "TextRow", "TextValue", "Truncation", "changes")


class _Untold:
    """Stands for a value that the server does not send: a large one that an update has left alone, or, of a row as it
    was before, one that is no part of its key."""

    def __repr__(self) -> str:
        return "UNTOLD"


UNTOLD = _Untold()

TextValue: TypeAlias = bytes | _Untold | None
TextRow: TypeAlias = tuple[TextValue, ...]

_KINDS: Mapping[str, ChangeKind] = {"I": "insert", "U": "update", "D": "delete"}
_EPOCH_MS = 946_684_800_000  # 2000-01-01, from which the server counts


class Column(NamedTuple):
    """A column of a table. ``is_key``: it is part of what identifies a row; ``type``: its type's number."""

    name: str
    is_key: bool
    type: int


@dataclass(frozen=True)
class Relation:
    """A table as it was when the changes were made. ``oid``: its number."""

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class RelationChange:
    """A change of one row. ``old``: the row as it was before, if the server tells any of it.

    ``commit_lsn``, ``commit_ms``: where in the log its transaction was committed, and when, in ms since the epoch.
    """

    relation: Relation
    kind: ChangeKind
    old: TextRow | None
    new: TextRow | None
    commit_lsn: int
    commit_ms: int

    @property
    def tables(self) -> tuple[int, ...]:
        """The numbers of the tables that are concerned."""
        return (self.relation.oid,)


@dataclass(frozen=True)
class Truncation:
    """Some tables were emptied."""

    tables: tuple[int, ...]
    commit_lsn: int


def changes(messages: Iterable[bytes]) -> Iterator[RelationChange | Truncation]:
    """What ``messages``, whole transactions one after the other, tell of tables. Raises ``CorruptDataError``."""
    relations: dict[int, Relation] = {}
    commit_lsn = commit_ms = 0
    for message in messages:
        reader = _Reader(message)
        kind = reader.letter()
        if kind == "B":
            commit_lsn, stamp, _ = reader.unpack(">qqi")
            commit_ms = _EPOCH_MS + stamp // 1000
        elif kind == "R":
            relation = _relation(reader)
            relations[relation.oid] = relation
        elif kind in "IUD":
            (oid,) = reader.unpack(">I")
            yield _change(reader, kind, _known(relations, oid), commit_lsn, commit_ms)
        elif kind == "T":
            count, _ = reader.unpack(">ib")
            yield Truncation(reader.unpack(f">{count}I"), commit_lsn)
        elif kind not in "COYM":  # commits, origins, types and messages tell nothing that is needed
            raise CorruptDataError(f"The server has sent a message of kind {kind!r}, which version 1 does not have.")


def _known(relations: Mapping[int, Relation], oid: int) -> Relation:
    if oid not in relations:
        raise CorruptDataError(f"The server has sent a change of table {oid} and has not described that.")
    return relations[oid]


def _relation(reader: _Reader) -> Relation:
    (oid,) = reader.unpack(">I")
    schema, name = reader.text(), reader.text()
    _, count = reader.unpack(">bh")
    return Relation(oid, schema, name, tuple(_column(reader) for _ in range(count)))


def _column(reader: _Reader) -> Column:
    (flags,) = reader.unpack(">b")
    name = reader.text()
    kind, _ = reader.unpack(">Ii")
    return Column(name, bool(flags & 1), kind)


def _change(reader: _Reader, kind: str, relation: Relation, commit_lsn: int, commit_ms: int) -> RelationChange:
    old = new = None
    while not reader.at_end:
        form, row = reader.letter(), _row(reader)
        if form == "N":
            new = row
        elif form == "O":
            old = row
        else:  # K: only the key; all else is sent as if it were null
            old = tuple(value if column.is_key else UNTOLD for column, value in zip(relation.columns, row, strict=True))
    return RelationChange(relation, _KINDS[kind], old, new, commit_lsn, commit_ms)


def _row(reader: _Reader) -> TextRow:
    (count,) = reader.unpack(">h")
    return tuple(_value(reader) for _ in range(count))


def _value(reader: _Reader) -> TextValue:
    form = reader.letter()
    if form == "n":
        return None
    if form == "u":
        return UNTOLD
    if form == "t":
        return reader.bytes(reader.unpack(">i")[0])
    raise CorruptDataError(f"The server has sent a value in form {form!r}; only text was asked for.")


class _Reader:
    """Takes a message apart, from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._data)

    def letter(self) -> str:
        return self.bytes(1).decode("latin-1")

    def bytes(self, count: int) -> bytes:
        taken = self._data[self._position : self._position + count]
        if len(taken) < count:
            raise CorruptDataError("A message of the server ends too early.")
        self._position += count
        return taken

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def text(self) -> str:
        end = self._data.find(b"\0", self._position)
        if end < 0:
            raise CorruptDataError("A message of the server ends too early.")
        text = self._data[self._position : end].decode()
        self._position = end + 1
        return text
