"""The rules by which the watermarks of one identifier are combined, each by its definition.

Another combination, or another kind of watermark, is added here and in ``cases.py``: the explorer and the invariants
only use what these classes have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from operator import gt, ne
from typing import Any, NamedTuple, Protocol, TypeAlias

from dsv2.watermark import VectorClock
from dsv2.watermark.event_time import EVENT_TIME, PROCESSING_TIME

LONG_MIN = -(2**63)
Status: TypeAlias = str
"""Of a channel or an input: "active", "idle" or "ended"."""
Frozen: TypeAlias = tuple[Any, ...]
"""State that can be a part of a key."""


class Fold(NamedTuple):
    """A combination function.

    Attributes:
        name: Its name.
        combine: Combines one or more values.
        values: What channels send.
        beyond: Whether the result of the channels that are left, the first argument, is delivered because a channel has
            become inactive, after the second argument was.
        is_idempotent: Whether copies of a value are the same as the value, so that it is forwarded.
        is_absorbing: Whether a value that is part of a combination changes nothing if it is combined with it again.
    """

    name: str
    combine: Callable[[Sequence[Any]], Any]
    values: Sequence[Any]
    beyond: Callable[[Any, Any], bool] = gt
    is_idempotent: bool = True
    is_absorbing: bool = True

    @property
    def takes_last(self) -> bool:
        """True if the result is the value that arrived last, from whichever channel."""
        return self.name == "last"

    def includes(self, combined: Any, value: Any) -> bool:
        """Return whether ``value`` may have contributed to ``combined``."""
        if self.takes_last:
            return bool(combined == value)
        return not self.is_absorbing or bool(self.combine([combined, value]) == combined)


def _of_two(combine: Callable[[Any, Any], Any]) -> Callable[[Sequence[Any]], Any]:
    return lambda values: reduce(combine, values)


def _by_entry(best: Callable[[Iterable[int]], int]) -> Callable[[Sequence[Any]], Any]:
    def combine(vectors: Sequence[Any]) -> Any:
        names = {name for vector in vectors for name in vector}
        return VectorClock({name: best(vector[name] for vector in vectors if name in vector) for name in names})

    return combine


_VECTORS = (VectorClock({"a": 1}), VectorClock({"a": 2, "b": 1}), VectorClock({"b": 2}))
_SETS = (frozenset("a"), frozenset("b"), frozenset("ab"))
FOLDS = {
    fold.name: fold
    for fold in (
        Fold("min", _of_two(lambda a, b: a if a < b else b), (1, 2, 3)),
        Fold("max", _of_two(lambda a, b: a if a > b else b), (1, 2, 3)),
        Fold("and", _of_two(lambda a, b: a and b), (False, True)),
        Fold("or", _of_two(lambda a, b: a or b), (False, True)),
        Fold("greatest text", _of_two(lambda a, b: a if a > b else b), ("a", "b", "c")),
        Fold("union", _of_two(lambda a, b: a | b), _SETS),
        Fold("intersection", _of_two(lambda a, b: a & b), _SETS),
        Fold("least entries", _by_entry(min), _VECTORS),
        Fold("greatest entries", _by_entry(max), _VECTORS),
        Fold("last", lambda values: values[-1], (1, 2, 3)),
        Fold("median", lambda values: sorted(values)[(len(values) + 1) // 2 - 1], (1, 2, 3), ne, is_absorbing=False),
        Fold("sum", sum, (1, 2, 3), ne, is_idempotent=False, is_absorbing=False),
        Fold("count", len, (1, 2), ne, is_idempotent=False, is_absorbing=False),
        Fold("product", _of_two(lambda a, b: a * b % 5), (1, 2, 3), ne, is_idempotent=False, is_absorbing=False),
    )
}
"""All of them. The first four are those of Flink."""


class Rule(NamedTuple):
    """The declaration of one identifier.

    Attributes:
        every: Whether each arrival is delivered, changed or not.
        lifetime: The number of moves of the clock for which a value counts.
        per_key: Whether each value is about a key.
    """

    identifier: str
    fold: Fold
    wait: bool = False
    aligned: bool = False
    across: bool = False
    every: bool = False
    lifetime: int | None = None
    per_key: bool = False


class Combining(Protocol):
    """The watermarks of one identifier over several channels (or inputs). ``statuses``: of all channels."""

    def sent(self, channel: int, value: Any, statuses: Sequence[Status]) -> list[Any]:
        """``channel`` has sent ``value``. Returns what is delivered."""

    def became(self, channel: int, before: Status, statuses: Sequence[Status]) -> list[Any]:
        """The status of ``channel`` was ``before``, and has changed. Returns what is delivered."""

    def frozen(self) -> Frozen:
        """The state."""

    @property
    def buffered(self) -> int:
        """The number of rounds that a channel is ahead of the others, at most."""


def new_combining(rule: Rule, channels: int, state: Frozen | None = None) -> Combining:
    """The watermarks of ``rule.identifier``, none so far or with a ``frozen`` state."""
    if rule.identifier == EVENT_TIME:
        return EventTime(channels, *(state or ()))
    if rule.aligned:
        return _Rounds(rule, *(state or ()))
    if rule.fold.takes_last:
        return _Last(rule, *(state or ()))
    if rule.lifetime is not None:
        return Expiring(rule, rule.lifetime, *(state or ()))
    return _Plain(rule, *(state or ()))


def _active(statuses: Sequence[Status]) -> list[int]:
    return [channel for channel, status in enumerate(statuses) if status == "active"]


def is_idle(statuses: Sequence[Status], times: Sequence[int]) -> bool:
    """Return whether what receives from these channels (or inputs) is idle. ``times``: their event times.

    One that follows the clock does not keep it active while another one is idle that may still send event time.
    """
    if "active" not in statuses:
        return "idle" in statuses
    timed = [status for status, time in zip(statuses, times, strict=True) if time != PROCESSING_TIME]
    return "active" not in timed and "idle" in timed


def furthest(times: Iterable[int]) -> int:
    """The greatest of ``times``, without those that follow the clock."""
    return max((time for time in times if time != PROCESSING_TIME), default=LONG_MIN)


class _Unaligned:
    buffered = 0


class _Plain(_Unaligned):
    """The combination of the last values, delivered when it changes.

    A channel that is idle or has ended is not waited for. Its last value is part of one combination, and neutral after
    that, but what has been delivered is not taken back because of that.
    """

    def __init__(
        self,
        rule: Rule,
        values: Collection[tuple[int, Any]] = (),
        new: Collection[int] = (),
        due: bool = False,
        last: Any = None,
    ) -> None:
        self._rule = rule
        self._values = dict(values)
        self._new = set(new)  # channels whose last value is part of no combination
        self._due = due  # a value has arrived, or a channel is active again
        self._last = last

    def sent(self, channel: int, value: Any, statuses: Sequence[Status]) -> list[Any]:
        self._values[channel] = value
        self._new.add(channel)
        self._due = True
        return self._delivered(statuses, every=self._rule.every)

    def became(self, channel: int, before: Status, statuses: Sequence[Status]) -> list[Any]:
        self._due = self._due or statuses[channel] == "active"
        return self._delivered(statuses, every=False)

    def _delivered(self, statuses: Sequence[Status], *, every: bool) -> list[Any]:
        active, fold = _active(statuses), self._rule.fold.combine
        if self._rule.wait and any(channel not in self._values for channel in active):
            return []
        present = [self._values[channel] for channel in active if channel in self._values]
        absent = [self._values[channel] for channel in sorted(self._new) if channel not in active]
        delivered = []
        if self._due and (present or absent):
            combined = fold([*present, *absent])
            self._due = False
            self._new.clear()
            if every or combined != self._last:
                delivered.append(combined)
                self._last = combined
        if present and (self._last is None or self._rule.fold.beyond(fold(present), self._last)):
            self._last = fold(present)
            delivered.append(self._last)
        return delivered

    def frozen(self) -> Frozen:
        return tuple(sorted(self._values.items())), tuple(sorted(self._new)), self._due, self._last


class Expiring(_Plain):
    """The combination of the values that have not expired.

    What has expired is neutral, even if the result is a step back. If no value is left, the next one is delivered in
    any case. An update that changes nothing is passed on once at each point in time, so that it lives on.
    """

    def __init__(
        self,
        rule: Rule,
        lifetime: int,
        values: Collection[tuple[int, Any]] = (),
        new: Collection[int] = (),
        due: bool = False,
        last: Any = None,
        ages: Collection[tuple[int, int]] = (),
        passed_on: bool = False,
    ) -> None:
        super().__init__(rule, values, new, due, last)
        self._lifetime = lifetime
        self._ages = dict(ages)
        self._passed_on = passed_on  # a value was, at this point in time
        self._updated = False

    def move_clock(self) -> None:
        self._ages = {channel: age + 1 for channel, age in self._ages.items()}
        self._passed_on = False

    def sent(self, channel: int, value: Any, statuses: Sequence[Status]) -> list[Any]:
        self._ages[channel] = 0
        self._updated = True
        return self._noted(super().sent(channel, value, statuses))

    def became(self, channel: int, before: Status, statuses: Sequence[Status]) -> list[Any]:
        return self._noted(super().became(channel, before, statuses))

    def expire(self, statuses: Sequence[Status]) -> list[Any]:
        """The end of a step. Returns what is delivered."""
        gone = [channel for channel, age in self._ages.items() if age >= self._lifetime]
        if not gone:
            return []
        for channel in gone:
            del self._ages[channel], self._values[channel]
            self._new.discard(channel)
        if not any(channel in self._values for channel in _active(statuses)):
            self._last = None
        now = self._now(statuses)
        if now is None or now == self._last:
            return []
        self._last = now
        return self._noted([now])

    def repeated(self, statuses: Sequence[Status]) -> list[Any]:
        """Return the values that are passed on again after an update."""
        updated, self._updated = self._updated, False
        if not updated or self._passed_on or self._last is None or self._now(statuses) != self._last:
            return []
        return self._noted([self._last])

    def _now(self, statuses: Sequence[Status]) -> Any:
        present = [self._values.get(channel) for channel in _active(statuses)]
        counted = [value for value in present if value is not None]
        waits = self._rule.wait and len(counted) < len(present)
        return self._rule.fold.combine(counted) if counted and not waits else None

    def _noted(self, values: list[Any]) -> list[Any]:
        self._passed_on = self._passed_on or bool(values)
        return values

    def frozen(self) -> Frozen:
        return (*super().frozen(), tuple(sorted(self._ages.items())), self._passed_on)


class _Last(_Unaligned):
    """The value that arrived last."""

    def __init__(self, rule: Rule, last: Any = None) -> None:
        self._every = rule.every
        self._last = last

    def sent(self, channel: int, value: Any, statuses: Sequence[Status]) -> list[Any]:
        if value == self._last and not self._every:
            return []
        self._last = value
        return [value]

    def became(self, channel: int, before: Status, statuses: Sequence[Status]) -> list[Any]:
        return []

    def frozen(self) -> Frozen:
        return (self._last,)


class _Rounds:
    """One delivery for each round: as soon as every active channel has sent its watermark of the round."""

    def __init__(self, rule: Rule, rounds: Collection[tuple[int, tuple[Any, ...]]] = ()) -> None:
        self._fold = rule.fold.combine
        self._rounds = dict(rounds)

    @property
    def buffered(self) -> int:
        return max(map(len, self._rounds.values()), default=0)

    def sent(self, channel: int, value: Any, statuses: Sequence[Status]) -> list[Any]:
        self._rounds[channel] = (*self._rounds.get(channel, ()), value)
        return self._delivered(statuses)

    def became(self, channel: int, before: Status, statuses: Sequence[Status]) -> list[Any]:
        return self._delivered(statuses)

    def _delivered(self, statuses: Sequence[Status]) -> list[Any]:
        delivered = []
        while self._rounds and all(channel in self._rounds for channel in _active(statuses)):
            delivered.append(self._fold([values[0] for _, values in sorted(self._rounds.items())]))
            self._rounds = {channel: values[1:] for channel, values in self._rounds.items() if len(values) > 1}
        return delivered

    def frozen(self) -> Frozen:
        return (tuple(sorted(self._rounds.items())),)


class EventTime(_Unaligned):
    """The least event time of the active channels, which never decreases.

    A channel that is active again counts only after it has caught up. If no channel is active, event time is that of
    the furthest one. A channel that follows the clock is neutral, unless all do that have not ended.
    """

    def __init__(
        self, channels: int, times: Sequence[int] = (), behind: Collection[int] = (), last: int = LONG_MIN
    ) -> None:
        self._times = list(times) or [LONG_MIN] * channels
        self._behind = set(behind)
        self._last = last

    @property
    def times(self) -> Sequence[int]:
        """Those of the channels."""
        return self._times

    def sent(self, channel: int, value: int, statuses: Sequence[Status]) -> list[int]:
        if value != PROCESSING_TIME and (statuses[channel] == "idle" or value <= self._times[channel]):
            return []
        self._times[channel] = value
        if value >= self._last:
            self._behind.discard(channel)
        return self._least(statuses)

    def became(self, channel: int, before: Status, statuses: Sequence[Status]) -> list[int]:
        self._behind.discard(channel)
        if statuses[channel] == "active" and self._times[channel] < self._last:
            self._behind.add(channel)
        return self._least(statuses)

    def _least(self, statuses: Sequence[Status]) -> list[int]:
        live = {time for status, time in zip(statuses, self._times, strict=True) if status != "ended"}
        if live == {PROCESSING_TIME}:
            return self._reached(PROCESSING_TIME)
        active = [channel for channel in _active(statuses) if self._times[channel] != PROCESSING_TIME]
        counted = [self._times[channel] for channel in active if channel not in self._behind]
        if not active:
            return self._reached(furthest(self._times))
        return self._reached(min(counted)) if counted else []

    def _reached(self, time: int) -> list[int]:
        if time <= self._last:
            return []
        self._last = time
        return [time]

    def frozen(self) -> Frozen:
        return tuple(self._times), tuple(sorted(self._behind)), self._last
