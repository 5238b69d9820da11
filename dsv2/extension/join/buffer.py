"""The buffer of one side of an interval join: rows that wait for partners, in panes by event time.

A pane holds the rows of all keys in a range of event time, so rows are evicted by pane and keys need no timers. Only
rows that are emitted if unmatched are visited individually, in order of time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import itemgetter
from typing import Any, TypeAlias

from dsv2.extension.join.contents import MATCHED, TIME
from dsv2.spi import Pane, Panes, check_window_end

BufferedRecord: TypeAlias = list[Any]
"""Timestamp (ms), record, and whether it is matched (or has been emitted as unmatched)."""

_time = itemgetter(TIME)


class JoinBuffer:
    """The buffered rows of one side.

    Args:
        panes: The panes of the subtask.
        side: 0 for the left side, 1 for the right side.
        span: The maximum distance between two partners of one record, in ms.
        latest: How long after its own timestamp a row can be matched, in ms. May be negative.
        by_event: Whether timestamps are in event time, rather than processing time.
        emit_unmatched: ``due`` returns rows without a partner.
        distinct: Keep only one of several rows with the same timestamp.
    """

    def __init__(
        self,
        panes: Panes,
        side: int,
        span: int,
        latest: int,
        *,
        by_event: bool,
        emit_unmatched: bool,
        distinct: bool,
    ) -> None:
        self._panes = panes
        self._side = side
        self._width = span + 1  # the partners of a record are in at most two panes
        self._latest = latest
        self._by_event = by_event
        self._emit_unmatched = emit_unmatched
        self._distinct = distinct
        self._in_order: dict[int, list[tuple[int, Any, BufferedRecord]]] = {}  # by slot the rows of panes that were due
        self._bucket: int | None = None  # the last pane that ``add`` used
        self._pane: Pane
        self._layout = (self._width, latest)
        self._relayout()

    def add(self, key: Any, row: BufferedRecord) -> None:
        """Buffer ``row``."""
        time = row[TIME]
        bucket = time // self._width
        if bucket != self._bucket:
            self._open(bucket, time)
        pane = self._pane
        rows = pane.live.get(key)
        if rows is None:
            rows = pane.take(key)
            if rows is None:
                rows = pane.live[key] = []
        if self._distinct and any(other[TIME] == time for other in rows):
            return
        if rows and rows[-1][TIME] > time:
            insort(rows, row, key=_time)
        else:
            rows.append(row)
        if self._emit_unmatched:
            self._track_unmatched(pane, bucket, key, row)
        elif time + self._latest > pane.deadline:
            pane.deadline = time + self._latest

    def between(self, key: Any, first: int, last: int) -> list[BufferedRecord]:
        """The rows of ``key`` with timestamps from ``first`` to ``last`` ms, in order of time."""
        found: list[BufferedRecord] = []
        width, side = self._width, self._side
        for bucket in range(first // width, last // width + 1):
            pane = self._panes.get(bucket * 2 + side)
            if pane is None:
                continue
            rows = pane.live.get(key)
            if rows is None:
                rows = pane.take(key)
                if rows is None:
                    continue
            if rows[0][TIME] >= first and rows[-1][TIME] <= last:
                found += rows
            else:
                found += [row for row in rows if first <= row[TIME] <= last]
        return found

    def remove_matched(self, key: Any, rows: list[BufferedRecord]) -> None:
        """Remove ``rows``, which ``between`` has returned and which are marked as matched."""
        for bucket in {row[TIME] // self._width for row in rows}:
            pane = self._panes.get(bucket * 2 + self._side)
            assert pane is not None  # ``between`` has found the rows in it
            pane.live[key] = [row for row in pane.live[key] if not row[MATCHED]]
            if not pane.live[key]:
                del pane.live[key]

    def due(self, slot: int, now: int) -> list[tuple[int, Any, BufferedRecord]]:
        """Evict the pane ``slot``, or postpone it. Returns time, key and row of the rows to emit as unmatched."""
        unmatched: list[tuple[int, Any, BufferedRecord]] = []
        pane = self._panes.get(slot)
        if pane is None or pane.deadline > now:
            return unmatched  # its rows have just been moved by ``_relayout``
        if self._emit_unmatched:
            rows = self._rows_in_order(pane, slot)
            stop = bisect_left(rows, now - self._latest + 1, key=_time)
            unmatched = [entry for entry in rows[:stop] if not entry[2][MATCHED]]
            for _, _, row in unmatched:
                row[MATCHED] = True
            del rows[:stop]
            if rows:
                pane.deadline = rows[0][TIME] + self._latest
                return unmatched
        self._panes.drop(slot)
        self._in_order.pop(slot, None)
        self._bucket = None
        return unmatched

    def _relayout(self) -> None:
        """Move rows into the panes of this program if an earlier program with other bounds has stored them."""
        for pane in self._panes:
            if pane.slot % 2 == self._side and pane.layout != self._layout:
                all_rows = pane.take_all()
                self._panes.drop(pane.slot)
                for key, rows in all_rows.items():
                    for row in rows:
                        self.add(key, row)

    def _open(self, bucket: int, time: int) -> None:
        slot = bucket * 2 + self._side
        if self._emit_unmatched:
            check_window_end(
                (bucket + 1) * self._width - 1 + self._latest, f"The join interval of a record with timestamp {time} ms"
            )
        pane = self._panes.get(slot)
        if pane is None:
            pane = self._panes.open(slot, time + self._latest, by_event=self._by_event, layout=self._layout)
        self._pane = pane
        self._bucket = bucket

    def _track_unmatched(self, pane: Pane, bucket: int, key: Any, row: BufferedRecord) -> None:
        rows = self._in_order.get(bucket * 2 + self._side)
        if rows is not None:
            insort(rows, (row[TIME], key, row), key=_time)
        if row[TIME] + self._latest < pane.deadline:
            self._panes.hasten(pane, row[TIME] + self._latest)

    def _rows_in_order(self, pane: Pane, slot: int) -> list[tuple[int, Any, BufferedRecord]]:
        contents = pane.take_all()  # unmatched rows will be modified
        rows = self._in_order.get(slot)
        if rows is None:
            every = [(row[TIME], key, row) for key, of_key in contents.items() for row in of_key]
            rows = self._in_order[slot] = sorted(every, key=_time)
        return rows
