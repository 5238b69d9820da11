"""Describes what a micro-batch reads of a source, for errors whose record is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsv2.base.record_position import Offset, SplitName
from dsv2.graph import Operator
from dsv2.runtime.sources.offsets import SourceOffset
from dsv2.sources import IndexedSource, Source


def ranges_read(operator: Operator, before: SourceOffset | None, offset: SourceOffset) -> list[str]:
    """Return the ranges that a source reads in the micro-batch between two offsets.

    Args:
        operator: The source.
        before: The offset at which the micro-batch begins. None: the beginning of the source.
        offset: The offset at which it ends.
    """
    source = operator.body
    if before == offset:
        return []
    if isinstance(source, Source):
        return list(_of_splits(operator, source, offset))
    if isinstance(source, IndexedSource):
        start, stop = 0 if before is None else max(before["position"], 0), offset["position"]
        return [f"source {operator.uid!r}, split 0: offset {start} to {stop - 1}"] if stop > start else []
    return [f"source {operator.uid!r}: rows of a DataFrame, which have no offsets"]


def has_read(operator: Operator, position: SourceOffset, split: SplitName, offset: Offset) -> bool:
    """Return whether a source has certainly read a record before it is at ``position``."""
    source = operator.body
    if isinstance(source, IndexedSource):
        return isinstance(offset, int) and offset < position["position"]
    if not isinstance(source, Source):
        return False
    entries = (entry for reader in position["readers"] for entry in reader["splits"])
    held = (source.split_serializer.from_json(entry["at"]) for entry in entries)
    return any(source.split_name(one) == split and source.has_read(one, offset) for one in held)


def _of_splits(operator: Operator, source: Source[Any, Any, Any], offset: SourceOffset) -> Iterator[str]:
    for reader in offset.get("readers", ()):
        for split in reader["splits"]:
            if "from" in split and split["from"] != split["at"]:
                name = source.split_name(source.split_serializer.from_json(split["at"]))
                changes = ", ".join(_changes(split["from"], split["at"]))
                yield f"source {operator.uid!r}, split {name!r}: {changes}"


def _changes(start: Any, stop: Any, name: str = "position") -> Iterator[str]:
    if isinstance(start, dict) and isinstance(stop, dict):
        for key in stop:
            if start.get(key) != stop[key]:
                yield from _changes(start.get(key), stop[key], key)
    else:
        yield f"{name} {start} up to {stop}"
