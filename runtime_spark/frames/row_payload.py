"""Rows of a savepoint as the payload of a frame: an Arrow stream, because rows are read and routed as columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.tables import COLUMNS

_UID = b"uid"
_TYPES = (pa.int32(), pa.string(), pa.string(), pa.binary(), pa.binary())
_SCHEMA = pa.schema([*zip(COLUMNS, _TYPES, strict=True)])
_KINDS = {kind.value: kind for kind in RowKind}

EMPTY_ROWS = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in _TYPES], schema=_SCHEMA)  # imports no pandas


def encode_rows(uid: str, rows: pa.RecordBatch, codec: Codec) -> bytes:
    """Encode rows of the operator ``uid``, with the columns ``COLUMNS``."""
    schema, sink = _SCHEMA.with_metadata({_UID: uid.encode()}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        columns = [column.cast(field.type) for column, field in zip(rows.columns, schema, strict=True)]
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return codec.wrap(BlobKind.FRAME, sink.getvalue().to_pybytes())


def decode_rows(payload: bytes, codec: Codec, owner: str) -> tuple[str, Iterator[StateRow]]:
    """Return the uid of the operator, and its rows. ``owner``: For errors.

    Raises:
        CorruptDataError: The payload is damaged.
    """
    try:
        with pa.ipc.open_stream(codec.unwrap(BlobKind.FRAME, payload, owner)) as stream:
            uid, rows = stream.schema.metadata[_UID].decode(), stream.read_all()
        subtasks, kinds, *others = (column.to_pylist() for column in rows.columns)
        return uid, map(StateRow, subtasks, [_KINDS[kind] for kind in kinds], *others)
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise CorruptDataError(f"{owner}: rows are damaged: {error!r}.") from error
