"""Our own files in a checkpoint: objects of JSON with a checksum, so that a changed byte is found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

__all__ = ("from_json", "to_json")

_CHECKSUM = "crc32"


def to_json(entry: Mapping[str, Any]) -> bytes:
    """What ``from_json`` reads."""
    return json.dumps({**entry, _CHECKSUM: _checksum(entry)}).encode()


def from_json(data: bytes | None) -> dict[str, Any]:
    """The entry. Raises ``ValueError`` if ``data`` is not whole. An entry without a checksum was written by hand."""
    entry = json.loads(data or b"")
    if not isinstance(entry, dict):
        raise ValueError("it is not a JSON object")
    if entry.pop(_CHECKSUM, None) not in (None, found := _checksum(entry)):
        raise ValueError(f"its {_CHECKSUM} is not {found}: the file was changed")
    return entry


def _checksum(entry: Mapping[str, Any]) -> int:
    return crc32(json.dumps(entry, sort_keys=True).encode())
