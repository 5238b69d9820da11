"""Blobs: damage is detected, and with a key so are forged bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import FORMAT_VERSION, BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry


class Tweet(NamedTuple):
    topic: str
    time: int


class Pair(NamedTuple):
    left: Any
    right: Any


CLASSES = [Tweet, Pair]
OWN = Codec(TypeRegistry(CLASSES))

# --- Damaged bytes ---------------------------------------------------------------------------------------------------

COLUMNS: list[Sequence[Any]] = [[Tweet("a", 1), Pair(2, None)], [(1, 0, "w", 5)], ()]
BLOB = OWN.seal_columns(BlobKind.FRAME, COLUMNS)


def refusal(blob: bytes) -> str:
    with pytest.raises(CorruptDataError) as caught:
        OWN.unseal_columns(BlobKind.FRAME, blob, "A frame for 'count'")
    owner, _, reason = str(caught.value).partition(": ")
    assert owner == "A frame for 'count'"
    return reason


def test_intact_blob_is_read() -> None:
    assert OWN.unseal_columns(BlobKind.FRAME, BLOB, "test") == [*COLUMNS[:2], []]


def test_every_flipped_bit_is_detected() -> None:
    for bit in range(8 * len(BLOB)):
        flipped = bytearray(BLOB)
        flipped[bit // 8] ^= 1 << bit % 8
        assert refusal(bytes(flipped))


def test_every_missing_or_added_byte_is_detected() -> None:
    for length in range(len(BLOB)):
        assert refusal(BLOB[:length])
        assert refusal(BLOB[length + 1 :])
    assert refusal(BLOB + b"\0") == "the bytes are damaged (length or checksum does not fit)."
    assert refusal(BLOB + BLOB) == "the bytes are damaged (length or checksum does not fit)."
    assert refusal(b"") == "0 bytes are too few for a blob."


def test_state_is_not_read_as_a_frame() -> None:
    assert refusal(OWN.seal(BlobKind.STATE, [])) == "these bytes are not a frame of dsv2."


def test_another_format_version_is_named() -> None:
    newer = BLOB[:4] + bytes([FORMAT_VERSION + 1]) + BLOB[5:]
    assert refusal(newer) == (
        f"written in format {FORMAT_VERSION + 1}, this version of dsv2 reads format {FORMAT_VERSION}."
    )


# --- Signed blobs ----------------------------------------------------------------------------------------------------

KEY, OTHER_KEY = b"k" * 64, b"o" * 64


@pytest.mark.parametrize("kind", [BlobKind.STATE, BlobKind.PAGE])
def test_key_requires_its_own_signature(kind: BlobKind) -> None:
    signed, unsigned = (Codec(TypeRegistry(CLASSES), key) for key in (KEY, None))
    blob = signed.seal(kind, [Tweet("a", 1)])
    assert signed.unseal(kind, blob, "State") == [Tweet("a", 1)]
    for codec, other, reason in (
        (signed, unsigned.seal(kind, 1), "State: it is not signed, and the job has a key. Start with the state_key"),
        (unsigned, blob, "State: it is signed, and the job has no key for it. Start with the state_key"),
        (Codec(TypeRegistry(), OTHER_KEY), blob, "State: the signature does not fit."),
    ):
        with pytest.raises(CorruptDataError) as refused:
            codec.unseal(kind, other, "State")
        assert str(refused.value).startswith(reason)


def test_signature_detects_a_forged_checksum() -> None:
    codec = Codec(TypeRegistry(), KEY)
    blob = codec.seal(BlobKind.STATE, {"alerts": 5})
    payload = codec.dumps({"alerts": 6})
    forged = Codec(TypeRegistry(), OTHER_KEY).wrap(BlobKind.STATE, payload)
    assert len(forged) == len(blob)
    with pytest.raises(CorruptDataError, match="the signature does not fit"):
        codec.unseal(BlobKind.STATE, forged[:14] + blob[14:46] + forged[46:], "State")


def test_signed_state_is_not_read_as_a_page() -> None:
    codec = Codec(TypeRegistry(), KEY)
    with pytest.raises(CorruptDataError, match="these bytes are not a page of dsv2"):
        codec.unseal(BlobKind.PAGE, codec.seal(BlobKind.STATE, 1), "Page")


def test_frames_need_no_signature() -> None:
    columns: list[Sequence[Any]] = [[1], []]
    blob = Codec(TypeRegistry()).seal_columns(BlobKind.FRAME, columns)
    assert Codec(TypeRegistry(), KEY).unseal_columns(BlobKind.FRAME, blob, "Frame") == columns
