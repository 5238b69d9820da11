"""What waits for partners in an interval join: the rows of one side, in panes by time.

A pane holds what all keys got within a span of event time, so rows go by the pane and no key needs a timer. Only rows
that are owed a result if nobody meets them are looked at one by one, in order of time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import itemgetter
from typing import Any, Final, TypeAlias

from dsv2.spi import Pane, Panes, check_window_end

__all__ = ("MATCHED", "RECORD", "TIME", "BufferedRecord", "JoinBuffer")

BufferedRecord: TypeAlias = list[Any]
"""Timestamp (ms), record, and whether it was met (or has got what it is owed)."""

TIME: Final = 0
RECORD: Final = 1
MATCHED: Final = 2

_time = itemgetter(TIME)


class JoinBuffer:
    """The rows of one side.

    ``latest``: how long after its own time a row may be matched, in ms; may be negative. ``span``: how far
    the partners of one record are apart, in ms. ``emit_unmatched``: rows without a partner are returned by ``due``.
    ``alike``: of rows with the same time one is enough.
    """

    def __init__(self, panes: Panes, side: int, span: int, latest: int, *, emit_unmatched: bool, alike: bool) -> None:
        self._panes = panes
        self._side = side
        self._width = span + 1  # so that the partners of a record are in two panes at most
        self._latest = latest
        self._emit_unmatched = emit_unmatched
        self._alike = alike
        self._in_order: dict[
            int, list[tuple[int, Any, BufferedRecord]]
        ] = {}  # by slot the rows of panes that have come due
        self._bucket: int | None = None  # the pane that ``add`` used last
        self._pane: Pane
        self._layout = (self._width, latest)
        self._move_in()

    def add(self, key: Any, row: BufferedRecord) -> None:
        """Let ``row`` wait."""
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
        if self._alike and any(other[TIME] == time for other in rows):
            return
        if rows and rows[-1][TIME] > time:
            insort(rows, row, key=_time)
        else:
            rows.append(row)
        if self._emit_unmatched:
            self._owe(pane, bucket, key, row)
        elif time + self._latest > pane.deadline:
            pane.deadline = time + self._latest

    def between(self, key: Any, first: int, last: int) -> list[BufferedRecord]:
        """The rows of ``key`` from ``first`` to ``last`` ms, in order of time."""
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

    def remove_met(self, key: Any, gone: list[BufferedRecord]) -> None:
        """Take rows away that ``between`` has returned, and that are marked as met."""
        for bucket in {row[TIME] // self._width for row in gone}:
            pane = self._panes.get(bucket * 2 + self._side)
            if pane is None:
                continue
            pane.live[key] = [row for row in pane.live[key] if not row[MATCHED]]
            if not pane.live[key]:
                del pane.live[key]

    def due(self, slot: int, now: int) -> list[tuple[int, Any, BufferedRecord]]:
        """The pane ``slot`` has come due: it goes, or is put off. Returns time, key and row of those that are owed."""
        unmatched: list[tuple[int, Any, BufferedRecord]] = []
        if self._emit_unmatched and (pane := self._panes.get(slot)) is not None:
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

    def _move_in(self) -> None:
        """Put the rows of an earlier program, which had other bounds, where this one looks for them."""
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
            check_window_end((bucket + 1) * self._width - 1 + self._latest, f"The wait of a record of {time} ms")
        self._pane = self._panes.get(slot) or self._panes.open(
            slot, time + self._latest, by_event=True, layout=self._layout
        )
        self._bucket = bucket

    def _owe(self, pane: Pane, bucket: int, key: Any, row: BufferedRecord) -> None:
        rows = self._in_order.get(bucket * 2 + self._side)
        if rows is not None:
            insort(rows, (row[TIME], key, row), key=_time)
        if row[TIME] + self._latest < pane.deadline:
            self._panes.hasten(pane, row[TIME] + self._latest)

    def _rows_in_order(self, pane: Pane, slot: int) -> list[tuple[int, Any, BufferedRecord]]:
        contents = pane.take_all()  # rows that are owed something will change
        rows = self._in_order.get(slot)
        if rows is None:
            every = [(row[TIME], key, row) for key, of_key in contents.items() for row in of_key]
            rows = self._in_order[slot] = sorted(every, key=_time)
        return rows
