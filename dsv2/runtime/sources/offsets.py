"""Offsets of sources with splits, and the orders for readers that are derived from them.

An offset is JSON. It contains the position of every split, what the readers read and emit in the micro-batch that ends
there, and the state of the enumerator. So it is both the order for that micro-batch and the checkpoint after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec

from dsv2.base.record_position import Offset, RecordPosition, SplitName
from dsv2.runtime.sources.split_watermarks import value_from_json
from dsv2.sources import Serializer
from dsv2.watermark.event_time import SentEventTime

SourceOffset: TypeAlias = dict[str, Any]

BEFORE_START: Final[SourceOffset] = {"batch": -1}
"""The offset of a job that has not started."""

# What a reader emits in addition to its records: ACTIVE before them, the others after them.
ACTIVE: Final = "active"
WATERMARK: Final = "watermark"
IDLE: Final = "idle"

_REPLAYS: Final = "replays"
_FAILURES: Final = "failures"

NOTHING_SENT: Final = SentEventTime().snapshot()
"""The event time sent by a reader that has just started."""

Report: TypeAlias = dict[str, Any]
"""The report of a reader about a micro-batch, as JSON: ``source`` (uid), ``batch``, ``subtask``, ``parallelism``,
``splits`` (watermark by id), ``sent`` (the last watermark of its splits), ``sender`` (``SentEventTime.snapshot``),
``failures`` (values that it has skipped), ``failures_before`` (those of all readers in earlier micro-batches)."""


@dataclass(frozen=True, slots=True)
class SplitOrder:
    """A split in one micro-batch.

    Attributes:
        start: Where reading starts. None: the split is not read.
        stop: Where reading stops.
        last: Whether the split ends there.
        watermark: Its event time so far in ms, or None.
        idle: Whether the split is idle.
    """

    start: Any
    stop: Any
    last: bool
    watermark: int | None
    idle: bool


@dataclass(frozen=True, slots=True)
class WatermarkOrder:
    """A watermark of the enumerator that every reader emits."""

    identifier: str
    value: Any


@dataclass(frozen=True, slots=True)
class ReplayedValue:
    """The value of a dead letter of the source, which a reader decodes again.

    Attributes:
        letter: The id of the letter.
        subtask: The reader that could not decode it.
        split: The name of its split.
        offset: Its offset in the split.
        payload: The encoded value and timestamp.
    """

    letter: str
    subtask: int
    split: SplitName
    offset: Offset
    payload: bytes


@dataclass(frozen=True, slots=True)
class ReaderOrder:
    """The work of one reader in one micro-batch, or in a BATCH job.

    Attributes:
        subtask: The index of the reader.
        batch: The micro-batch.
        steps: What to do, in this order.
        first: Whether the job starts with this micro-batch.
        last: Whether the reader ends with it.
        sent: The last watermark of its splits that it has sent, in ms.
        signals: What to emit in addition to the records: ``ACTIVE``, ``WATERMARK``, ``IDLE``.
        now_ms: The time at which the micro-batch was planned, in ms.
        sender: The event time that the reader has sent (``SentEventTime.snapshot``).
        replays: The values of dead letters to decode again, before everything else.
        failures_before: How many values all readers have skipped in earlier micro-batches. Known only if they report.
    """

    subtask: int
    batch: int
    steps: tuple[SplitOrder | WatermarkOrder, ...]
    first: bool
    last: bool
    sent: int | None = None
    signals: tuple[str, ...] = ()
    now_ms: int = 0
    sender: tuple[Any, ...] = NOTHING_SENT
    replays: tuple[ReplayedValue, ...] = ()
    failures_before: int = 0

    @property
    def splits(self) -> Sequence[SplitOrder]:
        """All splits of the reader, including splits that are not read."""
        return [step for step in self.steps if isinstance(step, SplitOrder)]

    @property
    def portions(self) -> Sequence[SplitOrder]:
        """The splits that are read."""
        return [split for split in self.splits if split.start is not None]

    @property
    def has_work(self) -> bool:
        """True if the reader has anything to do."""
        sends = any(isinstance(step, WatermarkOrder) for step in self.steps)
        return bool(self.portions or sends or self.first or self.last or self.signals or self.replays)


def orders(offset: SourceOffset, splits: Serializer[Any]) -> list[ReaderOrder]:
    """Return the orders of the micro-batch that ends at ``offset``, without readers that have nothing to do."""
    batch = offset["batch"]
    found = [
        ReaderOrder(
            subtask,
            batch,
            (
                *(WatermarkOrder(name, value_from_json(value)) for name, value in reader["watermarks"].items()),
                *(_split_order(split, splits) for split in reader["splits"]),
            ),
            batch == 0,
            reader["ended"] == batch,
            reader["sent"],
            tuple(reader["signals"]),
            offset["now_ms"],
            tuple(reader["sender"]),
            tuple(replays_in(reader)),
            failures_in(offset),
        )
        for subtask, reader in enumerate(offset["readers"])
    ]
    return [order for order in found if order.has_work]


def _split_order(split: Mapping[str, Any], splits: Serializer[Any]) -> SplitOrder:
    start = splits.from_json(split["from"]) if "from" in split else None
    return SplitOrder(start, splits.from_json(split["at"]), split["last"], split["watermark"], split["idle"])


def failures_in(offset: SourceOffset, reports: Iterable[Report] = ()) -> int:
    """Return how many values all readers have skipped before the micro-batch that ends at ``offset``.

    ``reports``: Those on this micro-batch, to add its failures.
    """
    return int(offset.get(_FAILURES, 0) + sum(report.get(_FAILURES, 0) for report in reports))


def with_replays(offset: SourceOffset, values: Iterable[ReplayedValue]) -> SourceOffset:
    """Return ``offset`` so that the micro-batch after it also decodes values of dead letters again."""
    return {**offset, _REPLAYS: [*offset.get(_REPLAYS, ()), *msgspec.to_builtins(list(values))]}


def replays_in(entry: Mapping[str, Any]) -> list[ReplayedValue]:
    """Return the values of dead letters to decode again: after an offset, or by one of its readers."""
    return msgspec.convert(entry.get(_REPLAYS, []), list[ReplayedValue])


def has_ended(offset: SourceOffset) -> bool:
    """Return whether a source with splits, or an indexed one, has been read to its end."""
    readers = offset.get("readers", ())
    of_splits = bool(readers) and all(reader["ended"] is not None for reader in readers)
    return of_splits or bool(offset.get("ended"))


def content(offset: SourceOffset) -> tuple[Any, ...]:
    """Return the part of an offset that requires a micro-batch when it changes."""
    readers = [
        ([split["at"] for split in reader["splits"] if not split["last"]], reader["ended"])
        for reader in offset.get("readers", ())
    ]
    return offset.get("enumerator"), readers


class Positions:
    """The positions of the records of one batch in the source. Offsets are determined when they are needed."""

    def __init__(self, source: str, split: SplitName, offsets: Callable[[], Sequence[Offset]]) -> None:
        """``source``: The uid of the source. ``offsets``: Returns the offset of each record."""
        self._source = source
        self._split = split
        self._offsets = offsets

    @cached_property
    def offsets(self) -> Sequence[Offset]:
        """The offset of each record."""
        return self._offsets()

    def at(self, index: int) -> RecordPosition:
        """The position of the record at ``index`` of the batch."""
        return RecordPosition(self._source, self._split, self.offsets[index])

    def packed(self, index: int) -> tuple[str, SplitName, Offset]:
        """The parts of the position of the record at ``index``."""
        return self._source, self._split, self.offsets[index]

    def taken(self, indices: Sequence[int]) -> Positions:
        """The positions of the records at ``indices``."""
        return Positions(self._source, self._split, lambda: [self.offsets[index] for index in indices])

    def after(self, first: int) -> Positions:
        """The positions of the records from ``first`` on."""
        return Positions(self._source, self._split, lambda: self.offsets[first:])
