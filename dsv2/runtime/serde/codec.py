"""Encodes and decodes all bytes that outlive a process: frames and state blobs.

Layout of a blob, little-endian: magic ``DSV2``, format version (1 byte), kind (1 byte; the highest bit is set if the
blob is signed), payload length (4), CRC-32 of the payload (4), signature if there is one (32), payload. The payload is
MessagePack: trees of plain values that describe columns of data (``dsv2.runtime.serde.nodes``). They are decoded field
by field, using only the data classes of the job. They cannot name functions, so bytes cannot run code.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

import msgspec

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.runtime.serde import nodes
from dsv2.runtime.serde.data_types import DataTypes
from dsv2.runtime.serde.decoder import ColumnDecoder, atoms_of
from dsv2.runtime.serde.encoder import BUFFER, ColumnEncoder, NoTreeError, node_of
from dsv2.runtime.serde.nested import Undecoded

FORMAT_VERSION = 5
_MAGIC = b"DSV2"
_HEADER = struct.Struct("<4sBBII")
_SIGNED = 0x80
_TEXTS, _SHORT = (bytes, str), 1 << 16
_SIGNATURE_BYTES = 32
SIGNED_HEADER_BYTES = _HEADER.size + _SIGNATURE_BYTES
"""The size of the header of a signed blob, including the signature."""


def _buffer(code: int, data: memoryview) -> bytearray:
    if code != BUFFER:
        raise CorruptDataError(f"{code} is not an extension that dsv2 writes.")
    return bytearray(data)


_pack = msgspec.msgpack.Encoder().encode
_pack_into = msgspec.msgpack.Encoder().encode_into
_unpack = msgspec.msgpack.Decoder(ext_hook=_buffer).decode
_ATOM = _pack((nodes.ATOMS, [0]))[:-1]
"""The bytes before a value that MessagePack itself distinguishes."""

T = TypeVar("T")

References: TypeAlias = Mapping[str, Callable[[str], Any]]
"""Functions that find an object by its name, by the kind of the ``Reference``."""


class BlobKind(IntEnum):
    """The contents of a blob."""

    FRAME = 1
    STATE = 2
    PAGE = 3
    LETTER = 4


class Codec:
    """Encodes and decodes the values of one job.

    A *column* is a sequence of independent values. An object shared by two of them is duplicated. Within a value,
    shared objects stay shared, and a value may contain itself.
    """

    def __init__(self, types: DataTypes, key: bytes | None = None) -> None:
        """Create a codec.

        Args:
            types: The data classes of the job.
            key: Signs blobs that outlive the job. Blobs that are not signed with it are rejected.
        """
        self._types = types
        self._key = key
        self._encoder = ColumnEncoder(types)

    def dumps(self, value: Any) -> bytes:
        """Serialize ``value``. Raises ``SerializationError`` if it is not data."""
        kind = type(value)
        # Most keys and values of savepoints, one call for each. The bytes are copied, so large values are not.
        if kind in nodes.ATOMIC and (kind not in _TEXTS or len(value) < _SHORT):
            try:
                return _ATOM + _pack(value)
            except (OverflowError, UnicodeEncodeError):
                pass  # it requires the careful form
        return self._dumps(lambda encoder: node_of(value, encoder), _pack)

    def dumps_columns(self, columns: Sequence[Sequence[Any]]) -> bytes:
        """Serialize columns of any lengths. Raises ``SerializationError`` if a value is not data."""
        return self._dumps(lambda encoder: [self._column(values, encoder) for values in columns], _pack)

    def loads(self, data: bytes, owner: str, references: References | None = None) -> Any:
        """Deserialize the result of ``dumps``.

        Args:
            data: The bytes.
            owner: Names the data in error messages.
            references: Finds objects of the runtime, to which only fields of functions refer.

        Raises:
            CorruptDataError: The bytes are not a result of ``dumps``.
        """
        if data[: len(_ATOM)] == _ATOM:
            try:
                value = _unpack(data[len(_ATOM) :])
                if type(value) in nodes.ATOMIC:
                    return value
            except Exception:
                pass  # raised again below, with the owner
        decoder = ColumnDecoder(self._types, references or {}, len(data))
        return _read(data, owner, lambda node: _only(decoder.column(node)))

    def loads_nested(self, nested: Undecoded | bytes, owner: str, references: References | None = None) -> Any:
        """Decode a value that was ``Nested``, or its bytes. Parameters and errors are those of ``loads``."""
        if not isinstance(nested, Undecoded):
            return self.loads(nested, owner, references)
        decoder = ColumnDecoder(self._types, references or {}, nested.limit)
        return _decoded(nested.node, owner, lambda node: _only(decoder.column(node)))

    def dumps_nested(self, nested: Undecoded | bytes) -> bytes:
        """Return what ``dumps`` would return for a value that was ``Nested``; bytes as they are."""
        return _pack(nested.node) if isinstance(nested, Undecoded) else nested

    def loads_columns(self, data: bytes, owner: str) -> list[Sequence[Any]]:
        """Deserialize the result of ``dumps_columns``. Raises ``CorruptDataError`` as ``loads`` does."""
        types, limit = self._types, len(data)

        def column(node: Any) -> Sequence[Any]:
            if (atoms := atoms_of(node)) is not None:  # most columns of most pages
                return atoms
            return ColumnDecoder(types, {}, limit, lambda part: self.loads(part, "A value")).column(node)

        return _read(data, owner, lambda found: list(map(column, found)))

    def _dumps(self, nodes_of: Callable[[ColumnEncoder], Any], pack: Callable[[Any], T]) -> T:
        try:
            try:
                return pack(nodes_of(self._encoder))
            except (OverflowError, UnicodeEncodeError):
                return pack(nodes_of(ColumnEncoder(self._types, careful=True)))
        except SerializationError:
            raise
        except Exception as error:  # properties and registered functions may raise anything
            raise SerializationError(f"A value cannot be serialized: {error}.") from error

    def _column(self, values: Sequence[Any], encoder: ColumnEncoder) -> Any:
        try:
            return encoder.column(values)
        except NoTreeError:
            return nodes.SEPARATE, list(map(self.dumps, values))

    def seal(self, kind: BlobKind, value: Any) -> bytes:
        """Serialize ``value`` as a blob with header and checksum."""
        return self.wrap(kind, self.dumps(value))

    def seal_in_place(self, kind: BlobKind, value: Any) -> bytearray:
        """Serialize ``value`` like ``seal``, into one buffer that is not copied: large state takes its size once."""
        size = _HEADER.size if self._key is None else SIGNED_HEADER_BYTES
        blob = bytearray(size)
        self._dumps(lambda encoder: node_of(value, encoder), lambda node: _pack_into(node, blob, size))
        with memoryview(blob)[size:] as payload:
            header = self._header(kind, payload)
        blob[:size] = header
        return blob

    def unseal(self, kind: BlobKind, blob: bytes | memoryview, owner: str) -> Any:
        """Deserialize the value of a blob.

        Raises:
            CorruptDataError: The blob is damaged, or of another kind, format or key; names ``owner``.
        """
        return self.loads(self.unwrap(kind, blob, owner), owner)

    def seal_columns(self, kind: BlobKind, columns: Sequence[Sequence[Any]]) -> bytes:
        """Serialize columns as a blob, like ``seal``."""
        return self.wrap(kind, self.dumps_columns(columns))

    def unseal_columns(self, kind: BlobKind, blob: bytes, owner: str) -> list[Sequence[Any]]:
        """Deserialize the columns of a blob, like ``unseal``."""
        return self.loads_columns(self.unwrap(kind, blob, owner), owner)

    def wrap(self, kind: BlobKind, payload: bytes) -> bytes:
        """Wrap the result of ``dumps`` in a blob."""
        return self._header(kind, payload) + payload

    def _header(self, kind: BlobKind, payload: bytes | memoryview) -> bytes:
        if self._key is None or kind is BlobKind.FRAME:  # frames do not outlive a micro-batch
            return _HEADER.pack(_MAGIC, FORMAT_VERSION, kind, len(payload), crc32(payload))
        header = _HEADER.pack(_MAGIC, FORMAT_VERSION, kind | _SIGNED, len(payload), crc32(payload))
        return header + _signature(self._key, header, payload)

    def unwrap(self, kind: BlobKind, blob: bytes | memoryview, owner: str) -> bytes:
        """Return the payload of a blob without copying it. Raises ``CorruptDataError`` as ``unseal`` does."""
        if len(blob) < _HEADER.size:
            raise CorruptDataError(f"{owner}: {len(blob)} bytes are too few for a blob.")
        magic, version, found, length, checksum = _HEADER.unpack_from(blob)
        is_signed = bool(found & _SIGNED)
        payload = memoryview(blob)[_HEADER.size + is_signed * _SIGNATURE_BYTES :]
        if magic != _MAGIC or found & ~_SIGNED != kind:
            raise CorruptDataError(f"{owner}: these bytes are not a {kind.name.lower()} of dsv2.")
        if version != FORMAT_VERSION:
            raise CorruptDataError(
                f"{owner}: written in format {version}, this version of dsv2 reads format {FORMAT_VERSION}."
            )
        if len(payload) != length or crc32(payload) != checksum:
            raise CorruptDataError(f"{owner}: the bytes are damaged (length or checksum does not fit).")
        if (is_signed or self._key is not None) and kind is not BlobKind.FRAME:
            self._check_signature(is_signed, memoryview(blob), payload, owner)
        return payload  # type: ignore[return-value]  # decoders take any buffer

    def _check_signature(self, is_signed: bool, blob: memoryview, payload: memoryview, owner: str) -> None:
        if is_signed != (self._key is not None):
            has = "is signed, and the job has no key for it" if is_signed else "is not signed, and the job has a key"
            raise CorruptDataError(f"{owner}: it {has}. Start with the state_key that the checkpoint was begun with.")
        header, signature = bytes(blob[: _HEADER.size]), bytes(blob[_HEADER.size : -len(payload) or None])
        if self._key is not None and not compare_digest(signature, _signature(self._key, header, payload)):
            raise CorruptDataError(f"{owner}: the signature does not fit. It was changed, or written with another key.")


def tuple_header(width: int) -> bytes:
    """The bytes with which ``dumps`` encodes a tuple, before those of its ``width`` values, each as ``dumps`` has it.

    The tuple must not be wider than ``MAX_WIDTH``.
    """
    return _pack((nodes.TUPLES, [None] * width))[:-width]


def _signature(key: bytes, header: bytes, payload: bytes | memoryview) -> bytes:
    digest = blake2b(header, key=key, digest_size=_SIGNATURE_BYTES)
    digest.update(payload)
    return digest.digest()


def _read(data: bytes, owner: str, values_of: Callable[[Any], T]) -> T:
    return _decoded(data, owner, lambda read: values_of(_unpack(read)))


def _decoded(data: Any, owner: str, values_of: Callable[[Any], T]) -> T:
    try:
        return values_of(data)
    except CorruptDataError as error:
        raise CorruptDataError(f"{owner}: {error}") from error
    except Exception as error:
        raise CorruptDataError(f"{owner}: The bytes cannot be decoded: {error}") from error


def _only(values: Sequence[Any]) -> Any:
    (value,) = values
    return value
