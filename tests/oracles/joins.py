"""What joins give, worked out the slow way: every record is remembered, and compared with all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

__all__ = ("Joined", "Row", "SlowIntervalJoin", "SlowWindowJoin")


class Row(NamedTuple):
    """A record of either side; ``number`` tells it from others."""

    key: str
    number: int
    timestamp: int


Joined: TypeAlias = tuple[tuple[Row | None, Row | None], int]
"""A pair, and its timestamp."""

_LEFT, _RIGHT = 0, 1


class SlowIntervalJoin:
    """``left + lower <= right <= left + upper``, of the type called ``join_type``. Never forgets."""

    def __init__(self, join_type: str, lower: int, upper: int) -> None:
        self._type = join_type
        self._lower = lower
        self._upper = upper
        self._rows: tuple[list[Row], list[Row]] = ([], [])
        self._met: set[tuple[int, Row]] = set()
        self._padded: set[tuple[int, Row]] = set()
        self.late: list[tuple[int, Row]] = []

    def take(self, side: int, row: Row, now: int) -> list[Joined]:
        """A row of ``side`` arrives when event time is ``now``: what comes of it."""
        if row.timestamp <= now:
            self.late.append((side, row))
            return []
        partners = [other for other in self._rows[1 - side] if self._fit(side, row, other)]
        results = self._pairs(side, row, partners)
        self._rows[side].append(row)
        if partners:
            self._met |= {(side, row), *((1 - side, other) for other in partners)}
        return results + self.move_to(now)

    def move_to(self, now: int) -> list[Joined]:
        """Event time is ``now``: who has been alone for long enough."""
        return list(self._lonely(now))

    def _fit(self, side: int, row: Row, other: Row) -> bool:
        left, right = (row, other) if side == _LEFT else (other, row)
        return left.key == right.key and left.timestamp + self._lower <= right.timestamp <= left.timestamp + self._upper

    def _pairs(self, side: int, row: Row, partners: list[Row]) -> list[Joined]:
        if self._type == "anti" or not partners:
            return []
        if self._type != "semi":
            pairs = [(row, other) if side == _LEFT else (other, row) for other in partners]
            return [((left, right), max(left.timestamp, right.timestamp)) for left, right in pairs]
        if side == _LEFT:
            first = min(other.timestamp for other in partners)
            return [((row, None), max(row.timestamp, first))]
        met_now = [other for other in partners if (_LEFT, other) not in self._met]
        return [((left, None), max(left.timestamp, row.timestamp)) for left in met_now]

    def _lonely(self, now: int) -> Iterator[Joined]:
        sides = {"left": [_LEFT], "right": [_RIGHT], "full": [_LEFT, _RIGHT], "anti": [_LEFT]}.get(self._type, [])
        for side in sides:
            for row in self._rows[side]:
                last = row.timestamp + (self._upper if side == _LEFT else -self._lower)
                if last <= now and (side, row) not in self._met | self._padded:
                    self._padded.add((side, row))
                    yield ((row, None) if side == _LEFT else (None, row)), max(row.timestamp, last)


class SlowWindowJoin:
    """Rows of a key that are in the same window, each ``size`` long, one every ``slide``; or in sessions of ``gap``."""

    def __init__(self, join_type: str, *, size: int = 0, slide: int = 0, lateness: int = 0, gap: int = 0) -> None:
        self._type = join_type
        self._size = size
        self._slide = slide
        self._lateness = lateness
        self._gap = gap
        self._windows: dict[tuple[str, int, int], tuple[list[Row], list[Row]]] = {}
        self._now = -1
        self.late: list[tuple[int, Row]] = []

    def take(self, side: int, row: Row, now: int) -> list[Joined]:
        """A row of ``side`` arrives when event time is ``now``: what comes of it."""
        windows = self._session_of(row, now) if self._gap else self._windows_of(row, now)
        if not windows:
            self.late.append((side, row))
        for window in windows:
            self._windows.setdefault(window, ([], []))[side].append(row)
        return [joined for window in windows if window[2] - 1 <= now for joined in self._fire(window)]

    def move_to(self, now: int) -> list[Joined]:
        """Event time is ``now``: the windows that have ended meanwhile."""
        ended = [window for window in self._windows if self._now < window[2] - 1 <= now]
        self._now = max(self._now, now)
        results = [joined for window in ended for joined in self._fire(window)]
        self._windows = {w: rows for w, rows in self._windows.items() if w[2] - 1 + self._lateness > now}
        return results

    def _windows_of(self, row: Row, now: int) -> list[tuple[str, int, int]]:
        starts = [n * self._slide for n in range(-20, 40)]
        windows = [(row.key, s, s + self._size) for s in starts if s <= row.timestamp < s + self._size]
        return [window for window in windows if window[2] - 1 + self._lateness > now]

    def _session_of(self, row: Row, now: int) -> list[tuple[str, int, int]]:
        start, end = row.timestamp, row.timestamp + self._gap
        touched = [w for w in self._windows if w[0] == row.key and w[1] <= end and start <= w[2]]
        if not touched and end - 1 <= now:
            return []
        rows = [self._windows.pop(window) for window in touched]
        merged = (row.key, min([start, *(w[1] for w in touched)]), max([end, *(w[2] for w in touched)]))
        self._windows[merged] = ([r for left, _ in rows for r in left], [r for _, right in rows for r in right])
        return [merged]

    def _fire(self, window: tuple[str, int, int]) -> list[Joined]:
        left, right = self._windows[window]
        pairs: list[tuple[Row | None, Row | None]] = []
        if self._type in ("inner", "left", "right", "full"):
            pairs += [(one, other) for one in left for other in right]
        if self._type in ("left", "full", "anti") and not right:
            pairs += [(one, None) for one in left]
        if self._type in ("right", "full") and not left:
            pairs += [(None, other) for other in right]
        if self._type == "semi" and right:
            pairs += [(one, None) for one in left]
        return [(pair, window[2] - 1) for pair in pairs]
