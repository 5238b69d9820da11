"""Offsets of sources with splits: what stands in them, and what readers are to do by them.

An offset is JSON. It says how far every split was read, what the readers of the micro-batch that ends there are to
read and to tell, and what the enumerator knows: it is both the order for that micro-batch and the checkpoint behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dsv2.sources import Serializer
from dsv2.watermark.event_time import SentEventTime

__all__ = (
    "ACTIVE",
    "BEFORE_START",
    "IDLE",
    "NOTHING_SENT",
    "WATERMARK",
    "SourceOffset",
    "ReaderOrder",
    "Report",
    "SplitOrder",
    "WatermarkOrder",
    "content",
    "orders",
)

SourceOffset: TypeAlias = dict[str, Any]

BEFORE_START: Final[SourceOffset] = {"batch": -1}
"""Where a job is that has not begun."""

# What a reader tells downstream besides its records: the first before them, the others behind.
ACTIVE: Final = "active"
WATERMARK: Final = "watermark"
IDLE: Final = "idle"

NOTHING_SENT: Final = SentEventTime().snapshot()
"""Of event time, by a reader that has just begun."""

Report: TypeAlias = dict[str, Any]
"""What a reader has found out in a micro-batch, as JSON: ``source`` (uid), ``batch``, ``subtask``, ``parallelism``,
``splits`` (watermark by id), ``sent`` (the last watermark of its splits), ``sender`` (``SentEventTime.snapshot``)."""


@dataclass(frozen=True, slots=True)
class SplitOrder:
    """A split in one micro-batch. It is read from ``start`` to ``stop``; not at all if ``start`` is None.

    ``watermark``: its event time so far (ms), None if there is none. ``last``: it ends.
    """

    start: Any
    stop: Any
    last: bool
    watermark: int | None
    idle: bool


@dataclass(frozen=True, slots=True)
class WatermarkOrder:
    """A watermark that the enumerator has every reader send."""

    identifier: str
    value: int | bool


@dataclass(frozen=True, slots=True)
class ReaderOrder:
    """What one reader does in one micro-batch, or in a BATCH job: ``steps``, in this order.

    ``first``: the job begins; ``last``: the reader ends. ``sent``: the watermark of its splits that it has sent last
    (ms). ``tells``: what to send besides the records. ``now_ms``: when this was decided on. ``sender``: what the reader
    has sent of event time at all (``SentEventTime.snapshot``).
    """

    subtask: int
    batch: int
    steps: tuple[SplitOrder | WatermarkOrder, ...]
    first: bool
    last: bool
    sent: int | None = None
    tells: tuple[str, ...] = ()
    now_ms: int = 0
    sender: tuple[Any, ...] = NOTHING_SENT

    @property
    def splits(self) -> Sequence[SplitOrder]:
        """All that it holds, read or not."""
        return [step for step in self.steps if isinstance(step, SplitOrder)]

    @property
    def portions(self) -> Sequence[SplitOrder]:
        """The splits of which something is read."""
        return [split for split in self.splits if split.start is not None]

    @property
    def has_work(self) -> bool:
        """Whether there is anything to do."""
        sends = any(isinstance(step, WatermarkOrder) for step in self.steps)
        return bool(self.portions or sends or self.first or self.last or self.tells)


def orders(offset: SourceOffset, splits: Serializer[Any]) -> list[ReaderOrder]:
    """What the readers do in the micro-batch that ends at ``offset``; without those that have nothing to do."""
    batch = offset["batch"]
    found = [
        ReaderOrder(
            subtask,
            batch,
            (
                *(WatermarkOrder(identifier, value) for identifier, value in reader["watermarks"].items()),
                *(_split_order(split, splits) for split in reader["splits"]),
            ),
            batch == 0,
            reader["ended"] == batch,
            reader["sent"],
            tuple(reader["tells"]),
            offset["now_ms"],
            tuple(reader["sender"]),
        )
        for subtask, reader in enumerate(offset["readers"])
    ]
    return [order for order in found if order.has_work]


def _split_order(split: Mapping[str, Any], splits: Serializer[Any]) -> SplitOrder:
    start = splits.from_json(split["from"]) if "from" in split else None
    return SplitOrder(start, splits.from_json(split["at"]), split["last"], split["watermark"], split["idle"])


def content(offset: SourceOffset) -> tuple[Any, ...]:
    """What cannot wait for a later offset: two that have the same need no micro-batch between them."""
    readers = [
        ([split["at"] for split in reader["splits"] if not split["last"]], reader["ended"])
        for reader in offset.get("readers", ())
    ]
    return offset.get("enumerator"), readers
