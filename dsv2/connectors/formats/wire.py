"""Confluent's wire format: a zero byte, the id of the schema, for Protobuf the place of the message, then the data."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from dsv2.connectors.formats.error import FormatError

HEADER_BYTES = 5
_HEADER = struct.Struct(">bI")
_MOST_INDEXES = 100


def header(schema_id: int) -> bytes:
    """Return the bytes before the data of a message that was written with the schema ``schema_id``."""
    return _HEADER.pack(0, schema_id)


def schema_id_of(data: bytes) -> int:
    """Return the id of the schema with which ``data`` was written. Raises ``FormatError``."""
    if len(data) < HEADER_BYTES or data[0] != 0:
        raise FormatError(
            f"the data begins with {bytes(data[:HEADER_BYTES])!r}, not with a zero byte and the id of a schema. If it "
            f"was written without a schema registry, create the decoder without one"
        )
    schema_id: int = _HEADER.unpack_from(data)[1]
    return schema_id


def message_header(schema_id: int, indexes: Sequence[int]) -> bytes:
    """Return the bytes before a Protobuf message. ``indexes``: Its place in the schema, from the outermost message."""
    if list(indexes) == [0]:
        return header(schema_id) + b"\0"  # the common case has a short form
    return header(schema_id) + b"".join(map(_varint, [len(indexes), *indexes]))


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of the Protobuf message in its schema, and where its bytes begin. Raises ``FormatError``."""
    count, position = _read_varint(data, HEADER_BYTES)
    if count == 0:
        return (0,), position
    if not 0 < count <= _MOST_INDEXES:
        raise FormatError(f"the header has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes.append(index)
    return tuple(indexes), position


def _varint(number: int) -> bytes:
    rest, parts = number << 1, bytearray()  # zigzag encoding of a number of 0 or more
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift, byte in zip(range(0, 35, 7), data[position:], strict=False):
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise FormatError("the header ends within its message indexes")
