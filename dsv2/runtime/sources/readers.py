"""The driver's view of the readers of a source with splits, from one micro-batch to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dsv2.base.clock import Clock
from dsv2.errors import ContractError
from dsv2.runtime.sources.offsets import ACTIVE, IDLE, NOTHING_SENT, WATERMARK, ReplayedValue, Report
from dsv2.runtime.sources.split_watermarks import SplitTime, combined, value_to_json
from dsv2.sources import Portion, ReaderInfo, Serializer, WatermarkStrategy
from dsv2.watermark import KeyedWatermark, Watermark
from dsv2.watermark.event_time import SentEventTime


@dataclass(slots=True)
class HeldSplit:
    """A split assigned to a reader.

    Attributes:
        at: Its position after the current micro-batch.
        active_ms: When it last had data, in ms.
        start: Where the current micro-batch starts to read it. None: it is not read.
        last: Whether it ends with the current micro-batch.
        watermark: Its event time in ms, or None.
        idle: Whether it is idle.
        paused: Whether alignment has paused it.
        moved_ms: When it was last read, in ms. None: never.
    """

    at: Any
    active_ms: int
    start: Any = None
    last: bool = False
    watermark: int | None = None
    idle: bool = False
    paused: bool = False
    moved_ms: int | None = None

    def advance(self, portion: Portion[Any]) -> None:
        """Move the position to the stop of ``portion``."""
        if self.start is None:
            self.start = self.at
        self.at, self.last = portion.stop, portion.last

    def note_time(self, now_ms: int, idle_after_ms: int) -> None:
        """Update the idle status. A paused split is not idle, because it may have data."""
        if self.start is not None:
            self.moved_ms = now_ms
        if self.start is not None or self.paused:
            self.active_ms, self.idle = now_ms, False
        elif idle_after_ms and now_ms - self.active_ms >= idle_after_ms:
            self.idle = True

    def to_json(self, splits: Serializer[Any]) -> dict[str, Any]:
        """Return the split's part of an offset."""
        start = {} if self.start is None else {"from": splits.to_json(self.start)}
        at, last = splits.to_json(self.at), self.last
        time = {"watermark": self.watermark, "idle": self.idle, "active_ms": self.active_ms}
        return {**start, "at": at, "last": last, **time, "paused": self.paused}


@dataclass(slots=True)
class ReaderState:
    """The state of one reader.

    Attributes:
        splits: Its splits by id.
        no_more_splits: Whether the enumerator has promised to assign no further splits.
        ended: The micro-batch with which it ended, or None.
        idle: The status that it last sent downstream. None: unknown.
        sent: The last watermark of its splits that it has sent, in ms.
        sender: The event time that it has sent (``SentEventTime.snapshot``).
        signals: The statuses and watermark to emit in this micro-batch.
        watermarks: Watermarks of the enumerator to emit in this micro-batch, by identifier.
        replays: Values of dead letters to decode again in this micro-batch.
    """

    splits: dict[str, HeldSplit] = field(default_factory=dict)
    no_more_splits: bool = False
    ended: int | None = None
    idle: bool | None = False
    sent: int | None = None
    sender: Sequence[Any] = NOTHING_SENT
    signals: list[str] = field(default_factory=list)
    watermarks: dict[str, Any] = field(default_factory=dict)
    replays: list[ReplayedValue] = field(default_factory=list)

    def begin_batch(self) -> None:
        """Reset what belongs to the previous micro-batch, and remove the splits that ended in it."""
        self.splits = {split_id: held for split_id, held in self.splits.items() if not held.last}
        self.signals = []
        self.watermarks = {}
        self.replays = []
        for held in self.splits.values():
            held.start = None

    def end_batch(self, batch: int, now_ms: int, strategy: WatermarkStrategy[Any] | None) -> None:
        """Decide which statuses and watermark to emit. Called after all splits have been advanced."""
        if self.ended is not None:
            return
        for held in self.splits.values():
            held.note_time(now_ms, 0 if strategy is None else strategy.idle_after_ms)
        if self.no_more_splits and all(held.last for held in self.splits.values()):
            self.ended = batch
        self._update_status()
        if strategy is not None and strategy.emits and combined(self._times(), self.sent) is not None:
            self.signals.append(WATERMARK)

    def _update_status(self) -> None:
        # A reader without splits is idle, but not if it ends.
        idle = all(held.idle for held in self.splits.values())
        if self.idle is not idle and not (idle and self.ended is not None):
            self.signals.append(IDLE if idle else ACTIVE)
            self.idle = idle

    def _times(self) -> Iterable[SplitTime]:
        return (SplitTime(held.watermark, held.idle, held.last) for held in self.splits.values())

    def to_json(self, splits: Serializer[Any]) -> dict[str, Any]:
        """Return the reader's part of an offset."""
        replays = {"replays": msgspec.to_builtins(self.replays)} if self.replays else {}
        return {
            **replays,
            "splits": [held.to_json(splits) for held in self.splits.values()],
            "ended": self.ended,
            "idle": self.idle,
            "sent": self.sent,
            "sender": self.sender,
            "signals": self.signals,
            "watermarks": self.watermarks,
        }


class Readers:
    """All readers of a source, as the enumerator sees them (``SplitEnumeratorContext``).

    Args:
        parallelism: The number of readers.
        clock: The wall clock.
        splits: Serializes splits.
        before: The readers in the offset from which the run starts. Their number may differ.
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
        """The splits that each subtask held in the offset, or takes over from another subtask."""
        self._restore(splits, before)
        self._known = {held.at.split_id: held for splits_of_one in self.reported for held in splits_of_one}

    def _restore(self, splits: Serializer[Any], before: Sequence[Mapping[str, Any]]) -> None:
        for subtask, reader in enumerate(before):
            self.reported[subtask % self.parallelism] += [
                HeldSplit(
                    splits.from_json(split["at"]),
                    split["active_ms"],
                    watermark=split["watermark"],
                    idle=split["idle"],
                    moved_ms=split["active_ms"],
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
            continuing = [reader["sender"] for reader in before if reader["ended"] is None]
            for state in self.states:
                state.idle = None
                state.sender = SentEventTime.successor(continuing)
                state.ended = None if None in ended else max(ended)

    def all_held(self) -> list[HeldSplit]:
        """Return the splits of all readers."""
        return [held for state in self.states for held in state.splits.values()]

    def learn(self, reports: Iterable[Report]) -> None:
        """Apply the reports of the previous micro-batch, in which the number of readers may have been different."""
        watermarks: dict[str, int | None] = {}
        for report in reports:
            watermarks |= report["splits"]
            if report["parallelism"] == self.parallelism:
                reader = self.states[report["subtask"]]
                reader.sent, reader.sender = report["sent"], report["sender"]
        for held in self.all_held():
            held.watermark = watermarks.get(held.at.split_id, held.watermark)

    def assign_splits(self, assignment: Mapping[int, Sequence[Any]], /) -> None:
        """Assign splits to readers, by subtask. Raises ``ContractError`` for an invalid assignment."""
        for subtask, splits in assignment.items():
            if subtask not in self.registered_readers:
                raise ContractError(f"Splits cannot be assigned to reader {subtask}, which is not registered.")
            for split in splits:
                self._assign(subtask, split)

    def _assign(self, subtask: int, split: Any) -> None:
        for other, state in enumerate(self.states):
            if split.split_id in state.splits:
                raise ContractError(
                    f"Split {split.split_id!r} is assigned to reader {other} and cannot be assigned to {subtask} too."
                )
        if self.states[subtask].ended is not None:
            raise ContractError(f"Split {split.split_id!r} cannot be assigned to reader {subtask}, which has ended.")
        if self.states[subtask].no_more_splits:
            raise ContractError(
                f"Split {split.split_id!r} cannot be assigned to reader {subtask} after signal_no_more_splits."
            )
        held = HeldSplit(split, self.clock.now_ms())
        if (known := self._known.pop(split.split_id, None)) is not None:
            held.active_ms, held.watermark, held.idle = known.active_ms, known.watermark, known.idle
            held.moved_ms = known.moved_ms
        self.states[subtask].splits[split.split_id] = held

    def signal_no_more_splits(self, subtask: int, /) -> None:
        """Promise that no further splits are assigned to this reader."""
        self.states[subtask].no_more_splits = True

    def emit_watermark(self, watermark: Watermark, /) -> None:
        """Let all readers emit a watermark. Raises ``ContractError`` for one about a key."""
        if isinstance(watermark, KeyedWatermark):
            raise ContractError(
                f"An enumerator cannot emit the per-key watermark {watermark.identifier!r}, because all readers "
                f"would emit it. Emit it in a function."
            )
        for state in self.states:
            if state.ended is None:
                state.watermarks[watermark.identifier] = value_to_json(watermark)

    def replay(self, values: Iterable[ReplayedValue]) -> None:
        """Distribute values of dead letters, each to the reader that has read it, unless that one has ended."""
        continuing = [state for state in self.states if state.ended is None]
        for value in values:
            own = self.states[value.subtask % self.parallelism]
            (own if own.ended is None else continuing[value.subtask % len(continuing)]).replays.append(value)

    @property
    def has_signals(self) -> bool:
        """True if any reader has signals or replays to emit, which require a micro-batch."""
        return any(state.signals or state.watermarks or state.replays for state in self.states)
