"""Runs of columns on their way into a frame: small ones together, as every frame has its price."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from dsv2.columnar import Columnar, WholeNumbers

__all__ = ("COLUMNAR_FRAME_RECORDS", "GatheredColumns")

COLUMNAR_FRAME_RECORDS: Final = 1 << 15
"""In a frame at most: records are smaller in columns, and there is more to a frame."""
_BYTES: Final = 1 << 20  # that are kept in memory, from which on a frame takes no more


class GatheredColumns:
    """The records of one frame, with their timestamps (ms), if they have any."""

    __slots__ = ("_bytes", "_runs", "_timestamps", "count")

    def __init__(self) -> None:
        self._runs: list[Columnar[Any]] = []
        self._timestamps: list[Sequence[int | None] | None] = []
        self._bytes = 0
        self.count = 0

    def fits(self, records: Columnar[Any], timestamps: Sequence[int | None] | None) -> bool:
        """Whether ``records`` may be in one frame with those that are here."""
        if not self._runs:
            return True
        alike = self._runs[0].kind is records.kind and type(self._timestamps[0]) is type(timestamps)
        return alike and self._bytes < _BYTES and self.count + len(records) <= COLUMNAR_FRAME_RECORDS

    def add(self, records: Columnar[Any], timestamps: Sequence[int | None] | None) -> None:
        """Put records that fit behind the others."""
        self._runs.append(records)
        self._timestamps.append(timestamps)
        self._bytes += records.kept_bytes
        self.count += len(records)

    def take(self) -> tuple[Columnar[Any], Sequence[int | None] | None]:
        """All of them; there is at least one. What follows begins anew."""
        runs, self._runs = self._runs, []
        timestamps, self._timestamps = self._timestamps, []
        self._bytes = self.count = 0
        return runs[0].joined(runs[1:]), _joined(timestamps)


def _joined(timestamps: Sequence[Sequence[int | None] | None]) -> Sequence[int | None] | None:
    """Those of several runs, which are all of one type."""
    first, *more = timestamps
    if first is None or not more:
        return first
    if isinstance(first, WholeNumbers):
        return first.joined(more)  # type: ignore[arg-type]
    return list(chain.from_iterable(timestamps))  # type: ignore[arg-type]
