"""Rows of a savepoint as the payload of a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.state.rows import RowKind, StateRow

__all__ = ("decode_rows", "encode_rows")

_COLUMNS = 1 + len(StateRow._fields)


def encode_rows(rows: Sequence[tuple[str, StateRow]], codec: Codec) -> bytes:
    """Encode rows, each with the uid of its operator."""
    plain = [(uid, row.subtask, row.kind.value, row.state, row.key, row.value) for uid, row in rows]
    return codec.seal_columns(BlobKind.FRAME, list(zip(*plain, strict=True)) or [()] * _COLUMNS)


def decode_rows(payload: bytes, codec: Codec, owner: str) -> Iterator[tuple[str, StateRow]]:
    """Return the rows, each with the uid of its operator. ``owner``: For errors."""
    for uid, subtask, kind, *rest in zip(*codec.unseal_columns(BlobKind.FRAME, payload, owner), strict=True):
        yield uid, StateRow(subtask, RowKind(kind), *rest)
