"""The positions of sources in Spark's log of offsets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from runtime_spark.checkpoint.record import NO_SOURCE, SourceStreams


def positions_in(logged: Iterable[str | None], streams: Iterable[SourceStreams]) -> dict[str, dict[str, Any]]:
    """Return the offsets of the sources after a micro-batch, by uid.

    Args:
        logged: The offsets that Spark has logged.
        streams: The sources in the order of the log.
    """
    lines = iter(logged)
    positions = {}
    for uid, count in streams:
        offset = _offset([next(lines, None) for _ in range(count)])
        if offset is not None and uid != NO_SOURCE:
            positions[uid] = offset
    return positions


def _offset(lines: Sequence[str | None]) -> dict[str, Any] | None:
    """Return the offset of a source; None if it has not begun.

    A streaming DataFrame has the offsets of its streams, and one of the stream that opens its channels.
    """
    *streams, own = lines
    offset: dict[str, Any] | None = None if own is None else json.loads(own)
    if not streams or offset is None:
        return offset
    return {**offset, "streams": [None if line is None else json.loads(line) for line in streams]}
