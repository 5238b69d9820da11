"""Bytes that outlive a process: every frame and every state blob is written and read here.

Layout of a blob, little-endian: magic ``DSV2``, format version (1 byte), kind (1 byte), payload length (4), CRC-32 of
the payload (4), payload. The payload is a pickle that is decoded by an unpickler which builds plain built-in types and
the job's own classes and nothing else, so bytes cannot run code.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, TypeAlias
from zlib import crc32
from zoneinfo import ZoneInfo

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.runtime.types import TypeRegistry

__all__ = ("FORMAT_VERSION", "BlobKind", "Codec")

FORMAT_VERSION = 2
_MAGIC = b"DSV2"
_HEADER = struct.Struct("<4sBBII")

Names: TypeAlias = Mapping[tuple[str, str], Callable[..., Any]]


class BlobKind(IntEnum):
    """What a blob holds, so that one is not taken for the other."""

    FRAME = 1
    STATE = 2
    PAGE = 3


class Codec:
    """Encodes and decodes for one job."""

    def __init__(self, registry: TypeRegistry) -> None:
        self._registry = registry
        self._by_name = True

    def dumps(self, value: Any) -> bytes:
        """``value`` as a bare pickle. Raises ``SerializationError`` if it cannot be one."""
        if self._by_name:
            # A class defined inside a function has no importable name; the job's registry knows it all the same.
            with contextlib.suppress(Exception):
                return pickle.dumps(value, 5)
        data = self.comparable(value)
        self._by_name = False
        return data

    def comparable(self, value: Any) -> bytes:
        """``value`` as a bare pickle, the same whatever was encoded before. Raises as ``dumps``, and is slower."""
        buffer = io.BytesIO()
        try:
            _RegistryPickler(buffer, self._registry).dump(value)
        except Exception as error:  # whatever a __reduce__ or __getstate__ on the way raises
            raise SerializationError(f"A value cannot be turned into bytes: {error}.") from error
        return buffer.getvalue()

    def loads(self, data: bytes, owner: str, names: Names | None = None) -> Any:
        """The value of a bare pickle. ``names``: what some (module, name) stand for, whatever the registry says.

        Raises ``CorruptDataError``, naming ``owner``, for what ``dumps`` cannot make.
        """
        try:
            return _RestrictedUnpickler(io.BytesIO(data), self._registry, names or {}).load()
        except CorruptDataError as error:
            raise CorruptDataError(f"{owner}: {error}") from error
        except Exception as error:
            raise CorruptDataError(f"{owner}: The bytes cannot be decoded: {error}") from error

    def seal(self, kind: BlobKind, value: Any) -> bytes:
        """``value`` as a blob with header and checksum."""
        return self.wrap(kind, self.dumps(value))

    def unseal(self, kind: BlobKind, blob: bytes, owner: str) -> Any:
        """The value of a blob. Raises ``CorruptDataError``, naming ``owner``, if anything about it does not fit."""
        return self.loads(self.unwrap(kind, blob, owner), owner)

    def wrap(self, kind: BlobKind, payload: bytes) -> bytes:
        """A bare pickle as a blob."""
        return _HEADER.pack(_MAGIC, FORMAT_VERSION, kind, len(payload), crc32(payload)) + payload

    def unwrap(self, kind: BlobKind, blob: bytes, owner: str) -> bytes:
        """The bare pickle in a blob, not copied. Raises ``CorruptDataError``, naming ``owner``, as ``unseal`` does."""
        if len(blob) < _HEADER.size:
            raise CorruptDataError(f"{owner}: {len(blob)} bytes are too few for a blob.")
        magic, version, found, length, checksum = _HEADER.unpack_from(blob)
        payload = memoryview(blob)[_HEADER.size :]
        if magic != _MAGIC or found != kind:
            raise CorruptDataError(f"{owner}: these bytes are not a {kind.name.lower()} of dsv2.")
        if version != FORMAT_VERSION:
            raise CorruptDataError(
                f"{owner}: written in format {version}, this version of dsv2 reads format {FORMAT_VERSION}."
            )
        if len(payload) != length or crc32(payload) != checksum:
            raise CorruptDataError(f"{owner}: the bytes are damaged (length or checksum does not fit).")
        return payload  # type: ignore[return-value]  # BytesIO takes any buffer


def _class_named(module: str, name: str) -> type:
    raise NotImplementedError("only a name in pickles: the unpickler answers with the registry's own find")


def _getattr(owner: object, name: str) -> Any:
    # Time zones ask for their constructor in this way; nothing else gets an answer.
    if owner is ZoneInfo and name == "_unpickle":
        return getattr(owner, name)
    raise CorruptDataError(f"The bytes ask for an attribute {name!r}.")


class _RegistryPickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, registry: TypeRegistry) -> None:
        super().__init__(buffer, 5)
        self._registry = registry

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and self._registry.knows(obj):
            return _class_named, (obj.__module__, obj.__qualname__)
        return NotImplemented


class _RestrictedUnpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, registry: TypeRegistry, names: Names) -> None:
        super().__init__(buffer)
        self._find = registry.find
        self._names = {(__name__, "_class_named"): registry.find, ("builtins", "getattr"): _getattr, **names}

    def find_class(self, module: str, name: str) -> Any:
        return self._names.get((module, name)) or self._find(module, name)
