"""Decoding of ``pgoutput`` messages: as the protocol describes them, and malformed ones."""

from __future__ import annotations

import struct

import pytest

from dsv2.connectors.postgres.pgoutput import ABSENT, Column, Relation, RelationChange, Truncation, changes
from dsv2.errors import CorruptDataError

ITEMS = Relation(7, "public", "items", (Column("id", True, 23), Column("name", False, 25)))
COMMITTED_MS = 946_684_800_123


def begin(lsn: int, micros: int = 123_456) -> bytes:
    return b"B" + struct.pack(">qqi", lsn, micros, 1)


def relation(of: Relation) -> bytes:
    columns = (
        struct.pack(">b", c.is_key) + c.name.encode() + b"\0" + struct.pack(">Ii", c.type, -1) for c in of.columns
    )
    names = b"R" + struct.pack(">I", of.oid) + of.schema.encode() + b"\0" + of.name.encode() + b"\0"
    return names + (b"f" if of.whole else b"d") + struct.pack(">h", len(of.columns)) + b"".join(columns)


def row(*values: str | None) -> bytes:
    """``None`` is null, and ``"?"`` is an unchanged value."""
    cells = (b"n" if v is None else b"u" if v == "?" else b"t" + struct.pack(">i", len(v)) + v.encode() for v in values)
    return struct.pack(">h", len(values)) + b"".join(cells)


def of_items(kind: bytes, *parts: bytes) -> bytes:
    return kind + struct.pack(">I", 7) + b"".join(parts)


COMMIT = b"C" + b"\0" * 25


def test_row_changes_have_lsn_and_time_of_their_commit() -> None:
    messages = [
        *(begin(100), relation(ITEMS), of_items(b"I", b"N", row("1", None)), COMMIT),
        begin(200),
        of_items(b"U", b"N", row("1", "?")),
        of_items(b"U", b"K", row("1", None), b"N", row("2", "?")),
        of_items(b"U", b"O", row("2", None), b"N", row("2", "b")),
        of_items(b"D", b"K", row("2", None)),
        *(COMMIT, b"O...", b"M..."),
    ]
    assert list(changes(messages)) == [
        RelationChange(ITEMS, "insert", None, (b"1", None), 100, COMMITTED_MS),
        RelationChange(ITEMS, "update", None, (b"1", ABSENT), 200, COMMITTED_MS),
        RelationChange(ITEMS, "update", (b"1", ABSENT), (b"2", ABSENT), 200, COMMITTED_MS),
        RelationChange(ITEMS, "update", (b"2", None), (b"2", b"b"), 200, COMMITTED_MS),
        RelationChange(ITEMS, "delete", (b"2", ABSENT), None, 200, COMMITTED_MS),
    ]


def test_last_description_of_a_table_counts() -> None:
    wider = Relation(7, "public", "items", (*ITEMS.columns, Column("more", False, 16)))
    messages = [begin(1), relation(ITEMS), relation(wider), of_items(b"I", b"N", row("1", "a", "t"))]
    assert [change.relation for change in changes(messages) if isinstance(change, RelationChange)] == [wider]


def type_of(oid: int, schema: str, name: str) -> bytes:
    return b"Y" + struct.pack(">I", oid) + schema.encode() + b"\0" + name.encode() + b"\0"


def test_domains_are_described_by_their_base_types() -> None:
    columns = (Column("day", True, 20001), Column("mood", True, 20002), Column("days", True, 20003))
    sent = relation(Relation(7, "public", "items", columns, whole=True))
    types = [type_of(20001, "", "date"), type_of(20002, "public", "mood"), type_of(20003, "", "_date")]
    later = [type_of(20001, "public", "day"), sent]  # the OID became that of another type
    row_of_three = of_items(b"I", b"N", row("2024-01-01", "ok", "{}"))
    messages = [begin(1), *types, sent, row_of_three, *later, row_of_three]
    found = [change.relation for change in changes(messages) if isinstance(change, RelationChange)]
    assert [[column.base for column in each.columns] for each in found] == [["date", "", "_date"], ["", "", "_date"]]
    assert all(each.whole for each in found)


def test_truncated_tables() -> None:
    assert list(changes([begin(5), b"T" + struct.pack(">ibII", 2, 0, 7, 9)])) == [Truncation((7, 9), 5)]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (of_items(b"I", b"N", row("1", "a"))[:-1], "is truncated"),
        (relation(ITEMS)[:10], "is truncated"),
        (b"I" + struct.pack(">I", 8) + b"N" + row("1"), "a change for table OID 8 before its Relation message"),
        (of_items(b"I", b"N", struct.pack(">h", 1) + b"b\0\0\0\1x"), "a value of format 'b'"),
        (b"S\0", "a pgoutput message of kind 'S'"),
    ],
)
def test_malformed_messages_are_refused(message: bytes, told: str) -> None:
    with pytest.raises(CorruptDataError, match=told):
        list(changes([begin(1), relation(ITEMS), message]))
