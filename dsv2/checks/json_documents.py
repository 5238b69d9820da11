"""The files of dsv2 in a checkpoint: JSON objects with a checksum, which reveals a changed byte.

A file has the type of a dataclass or ``msgspec.Struct``, which says what it must contain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import msgspec

from dsv2.base.folders import Folder, ReadableFolder
from dsv2.base.type_variables import T
from dsv2.errors import CorruptDataError

_CHECKSUM = "crc32"


def to_json(entry: Mapping[str, Any]) -> bytes:
    """Encode ``entry`` for ``from_json``."""
    return json.dumps({**entry, _CHECKSUM: _checksum(entry)}).encode()


def from_json(data: bytes | None) -> dict[str, Any]:
    """Decode the result of ``to_json``. An entry without a checksum was written by hand, and is accepted.

    Raises:
        ValueError: ``data`` is damaged.
    """
    try:
        entry = json.loads(data or b"")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(entry, dict):
        raise ValueError("it is not a JSON object")
    if entry.pop(_CHECKSUM, None) not in (None, found := _checksum(entry)):
        raise ValueError(f"its {_CHECKSUM} is not {found}: the file was changed")
    return entry


def encoded(document: object) -> bytes:
    """Encode a dataclass or struct for ``decoded``."""
    return to_json(msgspec.to_builtins(document))


def decoded(data: bytes | None, kind: type[T]) -> T:
    """Decode the result of ``encoded``. Parts that ``kind`` does not have are ignored.

    Raises:
        ValueError: ``data`` is damaged, or a part has another type; names the part.
    """
    return msgspec.convert(from_json(data), kind)


def write_document(folder: Folder, name: str, document: object) -> None:
    """Write a file for ``read_document``."""
    folder.write(name, encoded(document))


def read_document(folder: ReadableFolder, name: str, kind: type[T], remedy: str) -> T | None:
    """Read a file; None if it does not exist.

    Args:
        folder: Where it is.
        name: Its name.
        kind: Its type.
        remedy: What it is for, and what to do if it is damaged. Sentences for the error.

    Raises:
        CorruptDataError: The file is damaged; names it.
    """
    data = folder.read(name)
    if data is None:
        return None
    try:
        return decoded(data, kind)
    except ValueError as error:
        raise CorruptDataError(f"{folder.place(name)} is damaged: {error}. {remedy}") from error


def read_existing(folder: ReadableFolder, name: str, kind: type[T], remedy: str) -> T:
    """Like ``read_document``, for a file that must exist. Raises ``CorruptDataError`` also if it is missing."""
    found = read_document(folder, name, kind, remedy)
    if found is None:
        raise CorruptDataError(f"{folder.place(name)} is missing. {remedy}")
    return found


def _checksum(entry: Mapping[str, Any]) -> int:
    return crc32(json.dumps(entry, sort_keys=True).encode())
