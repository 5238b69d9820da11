"""Joins computed the slow way: every record is kept, and compared with all others."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from dsv2.extension.window import WindowStrategy
from dsv2.watermark.event_time import LONG_MIN
from tests.oracles.windows import SlowWindows, Stamped


class Row(NamedTuple):
    """A record of either side, identified by ``number``."""

    key: str
    number: int
    timestamp: int


Joined: TypeAlias = tuple[tuple[Row | None, Row | None], int | None]
"""A pair and its timestamp."""

_LEFT, _RIGHT = 0, 1


class SlowJoin:
    """Rows of a key, whenever they arrive, or within a ``lifetime`` in ms.

    ``renews``: a match restarts the lifetime of a row.
    """

    def __init__(self, lifetime: int | None, renews: bool) -> None:
        self._lifetime = lifetime
        self._renews = renews
        self._now = 0
        self._rows: list[tuple[int, Row]] = []
        self._since: dict[Row, int] = {}

    def wait(self, ms: int) -> None:
        """Advance the clock."""
        self._now += ms

    def take(self, side: int, row: Row) -> list[Joined]:
        """Return the results when a row of ``side`` arrives."""
        partners = [r for s, r in self._rows if s != side and r.key == row.key and self._lives(r)]
        if self._renews:
            self._since.update(dict.fromkeys(partners, self._now))
        self._rows.append((side, row))
        self._since[row] = self._now
        return [((row, other) if side == _LEFT else (other, row), row.timestamp) for other in partners]

    def _lives(self, row: Row) -> bool:
        return self._lifetime is None or self._now < self._since[row] + self._lifetime


class SlowIntervalJoin:
    """``left + lower <= right <= left + upper``, with the given join type. Never forgets.

    Without ``upper``, the number of the left row is the last right timestamp.
    """

    def __init__(self, join_type: str, lower: int, upper: int | None) -> None:
        self._type = join_type
        self._lower = lower
        self._upper = upper
        self._rows: tuple[list[Row], list[Row]] = ([], [])
        self._met: set[tuple[int, Row]] = set()
        self._padded: set[tuple[int, Row]] = set()
        self.late: list[tuple[int, Row]] = []

    def take(self, side: int, row: Row, now: int) -> list[Joined]:
        """Return the results when a row of ``side`` arrives at event time ``now``."""
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
        """Return the results when event time reaches ``now``: rows that can no longer match."""
        return list(self._lonely(now))

    def _fit(self, side: int, row: Row, other: Row) -> bool:
        left, right = (row, other) if side == _LEFT else (other, row)
        return left.key == right.key and left.timestamp + self._lower <= right.timestamp <= self._last(_LEFT, left)

    def _last(self, side: int, row: Row) -> int:
        if side == _RIGHT:
            return row.timestamp - self._lower
        return row.number if self._upper is None else row.timestamp + self._upper

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
                last = self._last(side, row)
                if last <= now and (side, row) not in self._met | self._padded:
                    self._padded.add((side, row))
                    yield ((row, None) if side == _LEFT else (None, row)), max(row.timestamp, last)


class SlowWindowJoin:
    """Rows of a key in the same window, with the given join type."""

    def __init__(self, join_type: str, strategy: WindowStrategy) -> None:
        self._type = join_type
        self._windows = SlowWindows(strategy, inputs=2)
        self.late: list[tuple[int, Row]] = []

    def take(self, side: int, row: Row) -> list[Joined]:
        """Return the results when a row of ``side`` arrives."""
        return self._join(self._windows.record(row.key, row, row.timestamp, side))

    def move_to(self, time: int) -> list[Joined]:
        """Return the results when event time moves to ``time``."""
        return self._join(self._windows.advance(time))

    def pass_time(self, now: int) -> list[Joined]:
        """Return the results when the clock moves to ``now``."""
        return self._join(self._windows.pass_time(now))

    def _join(self, told: list[Stamped]) -> list[Joined]:
        results: list[Joined] = []
        for (what, *_, last_but_one, last), timestamp in told:
            if what == "trigger":
                results += [(pair, timestamp) for pair in self._pairs(last_but_one, last)]
            elif what != "clear":
                self.late.append((_LEFT if what == "late1" else _RIGHT, last))
        return results

    def _pairs(self, left: tuple[Row, ...], right: tuple[Row, ...]) -> list[tuple[Row | None, Row | None]]:
        pairs: list[tuple[Row | None, Row | None]] = []
        if self._type in ("inner", "left", "right", "full"):
            pairs += [(one, other) for one in left for other in right]
        if self._type in ("left", "full", "anti") and not right:
            pairs += [(one, None) for one in left]
        if self._type in ("right", "full") and not left:
            pairs += [(None, other) for other in right]
        if self._type == "semi" and right:
            pairs += [(one, None) for one in left]
        return pairs


class SlowRunningWindowJoin:
    """Rows of a key in the same window, each pair when its second row arrives. The rest when the window ends."""

    def __init__(self, join_type: str, size: int, slide: int) -> None:
        self._type = join_type
        self._size = size
        self._slide = slide
        self._rows: dict[tuple[int, str], tuple[list[Row], list[Row]]] = {}
        self.late: list[tuple[int, Row]] = []

    def take(self, side: int, row: Row, now: int) -> list[Joined]:
        """Return the results when a row of ``side`` arrives at event time ``now``."""
        starts = [start for start in range(-100, 100, self._slide) if start <= row.timestamp < start + self._size]
        starts = [start for start in starts if start + self._size - 1 > now]
        if not starts:
            self.late.append((side, row))
        results: list[Joined] = []
        for start in starts:
            rows = self._rows.setdefault((start, row.key), ([], []))
            pairs: list[tuple[Row | None, Row | None]]
            pairs = [(row, other) if side == _LEFT else (other, row) for other in rows[1 - side]]
            if self._type == "semi" and side == _LEFT:
                pairs = [(row, None)] if rows[_RIGHT] else []
            elif self._type == "semi":
                pairs = [(left, None) for left in rows[_LEFT] if not rows[_RIGHT]]
            elif self._type == "anti":
                pairs = []
            results += [(pair, row.timestamp) for pair in pairs]
            rows[side].append(row)
        return results

    def move_to(self, now: int) -> list[Joined]:
        """Return the results when event time reaches ``now``: rows without a partner."""
        results: list[Joined] = []
        for start, key in [window for window in self._rows if window[0] + self._size - 1 <= now]:
            lefts, rights = self._rows.pop((start, key))
            pairs: list[tuple[Row | None, Row | None]] = []
            if not rights and self._type in ("left", "full", "anti"):
                pairs += [(left, None) for left in lefts]
            if not lefts and self._type in ("right", "full"):
                pairs += [(None, right) for right in rights]
            results += [(pair, start + self._size - 1) for pair in pairs]
        return results


class SlowTemporalJoin:
    """Probe rows (side 0) with the latest rows of their key (side 1), after the end of the snapshot.

    A number below 0 deletes.

    Args:
        join_type: ``"inner"`` or ``"left"``.
        channels: The number of channels of the build side that must end the snapshot.
        rows: How many rows a key may have. The number of a row says which it replaces or deletes.
        lifetime: How long a row lives by the clock, in ms.
    """

    def __init__(self, join_type: str, channels: int, rows: int = 1, lifetime: int | None = None) -> None:
        self._type = join_type
        self._rows = rows
        self._lifetime = lifetime
        self._clock = 0
        self._told: list[tuple[int, Row, int]] = []
        self._channels = channels
        self._over: set[int] = set()

    @property
    def over(self) -> bool:
        """True if the snapshot has ended."""
        return len(self._over) == self._channels

    @property
    def waiting(self) -> int:
        """The number of waiting probe rows."""
        return 0 if self.over else len(self._probes())

    @property
    def keys(self) -> set[str]:
        """The keys that have a row now."""
        return {key for key in {row.key for _, row, _ in self._told} if self._rows_of(key)}

    def wait(self, ms: int) -> None:
        """Advance the clock."""
        self._clock += ms

    def take(self, side: int, row: Row) -> list[Joined]:
        """Return the results when a row of ``side`` arrives."""
        self._told.append((side, row, self._clock))
        return self._join(row) if self.over and side == _LEFT else []

    def end_snapshot(self, channel: int) -> list[Joined]:
        """Return the results when a channel of the build side ends its part of the snapshot, or ends itself."""
        was_over = self.over
        self._over.add(channel)
        if was_over or not self.over:
            return []
        return [joined for probe in self._probes() for joined in self._join(probe)]

    def _probes(self) -> list[Row]:
        return [row for side, row, _ in self._told if side == _LEFT]

    def _join(self, probe: Row) -> list[Joined]:
        rows: list[Row | None] = [*self._rows_of(probe.key)]
        if not rows and self._type == "left":
            rows.append(None)
        return [((probe, row), probe.timestamp) for row in rows]

    def _rows_of(self, key: str) -> list[Row]:
        found: dict[int, tuple[Row, int]] = {}
        for side, row, since in self._told:
            if side == _RIGHT and row.key == key:
                found.pop(abs(row.number) % self._rows, None)
                if row.number >= 0:
                    found[row.number % self._rows] = row, since
        lifetime = self._lifetime
        return [row for row, since in found.values() if lifetime is None or self._clock < since + lifetime]


class SlowVersionedJoin:
    """Left rows with the version of their key (side 1) at their time, as far as event time. Never forgets.

    A number below 0 deletes. ``lifetime``: how long the versions of a key live by the clock after one arrived or became
    valid.
    """

    def __init__(self, join_type: str, lifetime: int | None = None) -> None:
        self._type = join_type
        self._lifetime = lifetime
        self._versions: list[Row] = []
        self._waiting: list[Row] = []
        self._changed: dict[str, int] = {}
        self._event_time = LONG_MIN
        self._clock = 0
        self.late: list[tuple[int, Row]] = []

    def wait(self, ms: int) -> None:
        """Advance the clock."""
        self._clock += ms
        if self._lifetime is not None:
            self._versions = [row for row in self._versions if self._clock < self._changed[row.key] + self._lifetime]

    def take(self, side: int, row: Row) -> None:
        """Take a row of ``side``."""
        if side == _LEFT:
            is_late = row.timestamp <= self._event_time
        else:
            is_late = any(row.timestamp < other.timestamp <= self._event_time for other in self._of(row.key))
        if is_late:
            self.late.append((side, row))
        elif side == _LEFT:
            self._waiting.append(row)
        else:
            self._versions.append(row)
            self._changed[row.key] = self._clock

    def move_to(self, now: int) -> list[Joined]:
        """Return the results when event time reaches ``now``, in order of time."""
        self._changed |= {row.key: self._clock for row in self._versions if self._event_time < row.timestamp <= now}
        self._event_time = now
        due = sorted((row for row in self._waiting if row.timestamp <= now), key=_timestamp)
        self._waiting = [row for row in self._waiting if row.timestamp > now]
        pairs = [((left, self._at(left)), left.timestamp) for left in due]
        return [joined for joined in pairs if joined[0][1] is not None or self._type == "left"]

    def _of(self, key: str) -> list[Row]:
        return [row for row in self._versions if row.key == key]

    def _at(self, left: Row) -> Row | None:
        valid = sorted((row for row in self._of(left.key) if row.timestamp <= left.timestamp), key=_timestamp)
        return valid[-1] if valid and valid[-1].number >= 0 else None


_timestamp = attrgetter("timestamp")
