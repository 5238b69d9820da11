"""Encodes the files of dsv2 in a checkpoint: JSON objects with a checksum, which reveals a changed byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

__all__ = ("from_json", "to_json")

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


def _checksum(entry: Mapping[str, Any]) -> int:
    return crc32(json.dumps(entry, sort_keys=True).encode())
