"""The metadata of Arrow IPC messages: pyarrow does not show whether a body is compressed."""

from __future__ import annotations

from struct import unpack_from
from typing import Final

# Places of fields in the tables of Arrow's Message.fbs, and members of the union MessageHeader.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DATA: Final = 1  # of a DictionaryBatch: its RecordBatch
_COMPRESSION: Final = 3  # of a RecordBatch


def is_compressed(metadata: bytes) -> bool:
    """Return whether the body of a message is compressed.

    Args:
        metadata: The flatbuffer of the message, ``pyarrow.ipc.Message.metadata``.

    Raises:
        struct.error: It is not a flatbuffer of a message.
    """
    message = _table_at(metadata, 0)
    place = _field(metadata, message, _HEADER_TYPE)
    kind = metadata[place] if place is not None else 0
    header = _field(metadata, message, _HEADER)
    if header is None or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return False
    batch = _table_at(metadata, header)
    if kind == _DICTIONARY_BATCH:
        data = _field(metadata, batch, _DATA)
        if data is None:
            return False
        batch = _table_at(metadata, data)
    return _field(metadata, batch, _COMPRESSION) is not None


def _table_at(data: bytes, place: int) -> int:
    """The place of the table to which the offset at ``place`` refers."""
    (offset,) = unpack_from("<I", data, place)
    return place + int(offset)


def _field(data: bytes, table: int, number: int) -> int | None:
    """The place of a field of a table; None if the table does not have it."""
    (to_fields,) = unpack_from("<i", data, table)
    fields = table - to_fields
    (size,) = unpack_from("<H", data, fields)
    if 4 + 2 * number >= size:
        return None
    (offset,) = unpack_from("<H", data, fields + 4 + 2 * number)
    return table + offset if offset else None
