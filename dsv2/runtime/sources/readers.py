"""What the driver knows of the readers of a source with splits, from one micro-batch to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dsv2.clock import Clock
from dsv2.errors import ContractError
from dsv2.runtime.sources.offsets import ACTIVE, IDLE, NOTHING_SENT, WATERMARK, Report
from dsv2.runtime.sources.split_watermarks import SplitTime, combined
from dsv2.sources import Portion, ReaderInfo, Serializer, WatermarkStrategy
from dsv2.watermark import Watermark
from dsv2.watermark.event_time import SentEventTime

__all__ = ("HeldSplit", "ReaderState", "Readers")


@dataclass(slots=True)
class HeldSplit:
    """A split that a reader holds.

    ``start``: where the reading of this micro-batch begins, None if there is none. ``active_ms``: when it had anything
    to read last. ``paused``: it is too far ahead of others.
    """

    at: Any
    active_ms: int
    start: Any = None
    last: bool = False
    watermark: int | None = None
    idle: bool = False
    paused: bool = False

    def advance(self, portion: Portion[Any]) -> None:
        """Read on, up to the stop of ``portion``."""
        if self.start is None:
            self.start = self.at
        self.at, self.last = portion.stop, portion.last

    def note_time(self, now_ms: int, idle_after_ms: int) -> None:
        """Fall idle, or become active. One that is paused is not idle: it may not read what it has."""
        if self.start is not None or self.paused:
            self.active_ms, self.idle = now_ms, False
        elif idle_after_ms and now_ms - self.active_ms >= idle_after_ms:
            self.idle = True

    def to_json(self, splits: Serializer[Any]) -> dict[str, Any]:
        """As it stands in an offset."""
        start = {} if self.start is None else {"from": splits.to_json(self.start)}
        at, last = splits.to_json(self.at), self.last
        time = {"watermark": self.watermark, "idle": self.idle, "active_ms": self.active_ms}
        return {**start, "at": at, "last": last, **time, "paused": self.paused}


@dataclass(slots=True)
class ReaderState:
    """One reader. ``ended``: the micro-batch with which it ends, None if that has not come.

    ``idle``: what it has told downstream, None if nobody knows. ``sent``: the last watermark of its splits (ms),
    ``sender``: all that it has sent of event time. ``tells``: what it is to tell in this micro-batch, ``watermarks``:
    what it is to send besides, by identifier.
    """

    splits: dict[str, HeldSplit] = field(default_factory=dict)
    no_more_splits: bool = False
    ended: int | None = None
    idle: bool | None = False
    sent: int | None = None
    sender: Sequence[Any] = NOTHING_SENT
    tells: list[str] = field(default_factory=list)
    watermarks: dict[str, int | bool] = field(default_factory=dict)

    def begin_batch(self) -> None:
        """Forget the micro-batch before, and the splits that have ended in it."""
        self.splits = {split_id: held for split_id, held in self.splits.items() if not held.last}
        self.tells = []
        self.watermarks = {}
        for held in self.splits.values():
            held.start = None

    def end_batch(self, batch: int, now_ms: int, strategy: WatermarkStrategy[Any] | None) -> None:
        """Decide what to tell, when it is clear what is read."""
        if self.ended is not None:
            return
        for held in self.splits.values():
            held.note_time(now_ms, 0 if strategy is None else strategy.idle_after_ms)
        if self.no_more_splits and all(held.last for held in self.splits.values()):
            self.ended = batch
        self._tell_status()
        if strategy is not None and strategy.emits and combined(self._times(), self.sent) is not None:
            self.tells.append(WATERMARK)

    def _tell_status(self) -> None:
        # One whose splits have all ended is not idle before it is clear that there are no others.
        idle = all(held.idle for held in self.splits.values())
        if self.idle is not idle and not (idle and self.ended is not None):
            self.tells.append(IDLE if idle else ACTIVE)
            self.idle = idle

    def _times(self) -> Iterable[SplitTime]:
        return (SplitTime(held.watermark, held.idle, held.last) for held in self.splits.values())

    def to_json(self, splits: Serializer[Any]) -> dict[str, Any]:
        """As it stands in an offset."""
        return {
            "splits": [held.to_json(splits) for held in self.splits.values()],
            "ended": self.ended,
            "idle": self.idle,
            "sent": self.sent,
            "sender": self.sender,
            "tells": self.tells,
            "watermarks": self.watermarks,
        }


class Readers:
    """All readers of a source, as the enumerator sees them (``SplitEnumeratorContext``).

    ``before``: the readers of the offset with which the run begins, in which there may be more of them, or fewer.
    """

    def __init__(
        self, parallelism: int, clock: Clock, splits: Serializer[Any], before: Sequence[Mapping[str, Any]]
    ) -> None:
        self.parallelism = parallelism
        self.clock = clock
        self.states = [ReaderState() for _ in range(parallelism)]
        self.limit_per_batch: int | None = None
        self.registered_readers: dict[int, ReaderInfo[Any]] = {}
        self.reported: list[list[HeldSplit]] = [[] for _ in range(parallelism)]
        """By subtask the splits that it held, or has to take over."""
        self._restore(splits, before)
        self._known = {held.at.split_id: held for splits_of_one in self.reported for held in splits_of_one}

    def _restore(self, splits: Serializer[Any], before: Sequence[Mapping[str, Any]]) -> None:
        for subtask, reader in enumerate(before):
            self.reported[subtask % self.parallelism] += [
                HeldSplit(
                    splits.from_json(split["at"]), split["active_ms"], watermark=split["watermark"], idle=split["idle"]
                )
                for split in reader["splits"]
                if not split["last"]
            ]
        if len(before) == self.parallelism:
            for state, reader in zip(self.states, before, strict=True):
                state.ended, state.idle = reader["ended"], reader["idle"]
                state.sent, state.sender = reader["sent"], reader["sender"]
        elif before:
            ended = [reader["ended"] for reader in before]
            going_on = [reader["sender"] for reader in before if reader["ended"] is None]
            for state in self.states:
                state.idle = None
                state.sender = SentEventTime.successor(going_on)
                state.ended = None if None in ended else max(ended)

    def all_held(self) -> list[HeldSplit]:
        """The splits of all readers."""
        return [held for state in self.states for held in state.splits.values()]

    def learn(self, reports: Iterable[Report]) -> None:
        """Take over what readers have found out in the micro-batch before, in which there may have been others."""
        watermarks: dict[str, int | None] = {}
        for report in reports:
            watermarks |= report["splits"]
            if report["parallelism"] == self.parallelism:
                reader = self.states[report["subtask"]]
                reader.sent, reader.sender = report["sent"], report["sender"]
        for held in self.all_held():
            held.watermark = watermarks.get(held.at.split_id, held.watermark)

    def assign_splits(self, assignment: Mapping[int, Sequence[Any]], /) -> None:
        """Give splits to readers."""
        for subtask, splits in assignment.items():
            if subtask not in self.registered_readers:
                raise ContractError(f"Reader {subtask} is not registered, so it cannot be given splits.")
            for split in splits:
                self._assign(subtask, split)

    def _assign(self, subtask: int, split: Any) -> None:
        for other, state in enumerate(self.states):
            if split.split_id in state.splits:
                raise ContractError(f"Split {split.split_id!r} is held by reader {other}: reader {subtask} cannot too.")
        if self.states[subtask].ended is not None:
            raise ContractError(f"Reader {subtask} has come to its end, and now gets {split.split_id!r}.")
        if self.states[subtask].no_more_splits:
            raise ContractError(f"Reader {subtask} was told that no more splits come, and now gets {split.split_id!r}.")
        held = HeldSplit(split, self.clock.now_ms())
        if (known := self._known.pop(split.split_id, None)) is not None:
            held.active_ms, held.watermark, held.idle = known.active_ms, known.watermark, known.idle
        self.states[subtask].splits[split.split_id] = held

    def signal_no_more_splits(self, subtask: int, /) -> None:
        """Promise that this reader gets no further split."""
        self.states[subtask].no_more_splits = True

    def emit_watermark(self, watermark: Watermark, /) -> None:
        """Have all readers send a watermark."""
        for state in self.states:
            if state.ended is None:
                state.watermarks[watermark.identifier] = watermark.value

    @property
    def any_tells(self) -> bool:
        """Whether any reader has anything to tell, for which a micro-batch is needed."""
        return any(state.tells or state.watermarks for state in self.states)
