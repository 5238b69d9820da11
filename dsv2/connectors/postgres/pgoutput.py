"""A parser for ``pgoutput``, PostgreSQL's logical replication protocol (version 1).

Values remain in the server's text format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dsv2.connectors.postgres.change import ChangeKind
from dsv2.errors import CorruptDataError


class _Absent:
    """A value that the server does not send: a TOASTed value that an update did not change, or a non-key column of an
    old row."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()

TextValue: TypeAlias = bytes | _Absent | None
TextRow: TypeAlias = Sequence[TextValue]

_KINDS: Mapping[str, ChangeKind] = {"I": "insert", "U": "update", "D": "delete"}
_EPOCH_MS = 946_684_800_000  # 2000-01-01, the server's epoch


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: The name.
        is_key: Whether it is part of the replica identity.
        type: The OID of its type.
        base: The name of the built-in type that a domain has; empty for other types.
    """

    name: str
    is_key: bool
    type: int
    base: str = ""


@dataclass(frozen=True)
class Relation:
    """A table as it was when it was changed, as described by a Relation message.

    Attributes:
        oid: The OID of the table.
        schema: The name of the schema.
        name: The name of the table.
        columns: The columns in their order.
        whole: Whether the replica identity is FULL, so that all columns are part of it.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    whole: bool = False


@dataclass(frozen=True)
class RelationChange:
    """A change of one row.

    Attributes:
        relation: The table.
        kind: "insert", "update" or "delete".
        old: The row before the change, if the server sends any of it.
        new: The row after the change; None for a deletion.
        commit_lsn: The LSN of the transaction's commit.
        commit_ms: The time of the commit, in ms since the epoch.
    """

    relation: Relation
    kind: ChangeKind
    old: TextRow | None
    new: TextRow | None
    commit_lsn: int
    commit_ms: int

    @property
    def tables(self) -> tuple[int, ...]:
        """The OIDs of the changed tables."""
        return (self.relation.oid,)


@dataclass(frozen=True)
class Truncation:
    """A truncation of one or more tables."""

    tables: tuple[int, ...]
    commit_lsn: int


def changes(messages: Iterable[bytes]) -> Iterator[RelationChange | Truncation]:
    """Parse ``messages``, which are complete transactions in order. Raises ``CorruptDataError``."""
    relations: dict[int, Relation] = {}
    bases: dict[int, str] = {}
    commit_lsn = commit_ms = 0
    for message in messages:
        reader = _MessageReader(message)
        kind = reader.letter()
        if kind == "B":
            commit_lsn, stamp, _ = reader.unpack(">qqi")
            commit_ms = _EPOCH_MS + stamp // 1000
        elif kind == "R":
            relation = _relation(reader, bases)
            relations[relation.oid] = relation
        elif kind == "Y":
            (oid,) = reader.unpack(">I")
            schema, name = reader.text(), reader.text()
            bases[oid] = "" if schema else name  # pg_catalog is sent as an empty name
        elif kind in "IUD":
            (oid,) = reader.unpack(">I")
            if oid not in relations:
                raise CorruptDataError(f"Received a change for table OID {oid} before its Relation message.")
            yield _change(reader, kind, relations[oid], commit_lsn, commit_ms)
        elif kind == "T":
            count, _ = reader.unpack(">ib")
            yield Truncation(reader.unpack(f">{count}I"), commit_lsn)
        elif kind not in "COM":  # Commit, Origin and Message are not needed
            raise CorruptDataError(f"Received a pgoutput message of kind {kind!r}, which version 1 does not have.")


def _relation(reader: _MessageReader, bases: Mapping[int, str]) -> Relation:
    (oid,) = reader.unpack(">I")
    schema, name = reader.text(), reader.text()
    whole = reader.letter() == "f"
    (count,) = reader.unpack(">h")
    return Relation(oid, schema, name, tuple(_column(reader, bases) for _ in range(count)), whole)


def _column(reader: _MessageReader, bases: Mapping[int, str]) -> Column:
    (flags,) = reader.unpack(">b")
    name = reader.text()
    kind, _ = reader.unpack(">Ii")
    return Column(name, bool(flags & 1), kind, bases.get(kind, ""))


def _change(reader: _MessageReader, kind: str, relation: Relation, commit_lsn: int, commit_ms: int) -> RelationChange:
    old = new = None
    while not reader.at_end:
        form, row = reader.letter(), _row(reader)
        if form == "N":
            new = row
        elif form == "O":
            old = row
        else:  # K: only the key is sent; all other columns are null
            old = tuple(value if column.is_key else ABSENT for column, value in zip(relation.columns, row, strict=True))
    return RelationChange(relation, _KINDS[kind], old, new, commit_lsn, commit_ms)


def _row(reader: _MessageReader) -> TextRow:
    (count,) = reader.unpack(">h")
    return tuple(_value(reader) for _ in range(count))


def _value(reader: _MessageReader) -> TextValue:
    form = reader.letter()
    if form == "n":
        return None
    if form == "u":
        return ABSENT
    if form == "t":
        return reader.bytes(reader.unpack(">i")[0])
    raise CorruptDataError(f"Received a value of format {form!r}, but only the text format was requested.")


class _MessageReader:
    """Parses the fields of a message in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._data)

    def letter(self) -> str:
        return self.bytes(1).decode("latin-1")

    def bytes(self, count: int) -> bytes:
        field = self._data[self._position : self._position + count]
        if len(field) < count:
            raise CorruptDataError("A pgoutput message is truncated.")
        self._position += count
        return field

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def text(self) -> str:
        end = self._data.find(b"\0", self._position)
        if end < 0:
            raise CorruptDataError("A pgoutput message is truncated.")
        text = self._data[self._position : end].decode()
        self._position = end + 1
        return text
