"""What the driver does for a source with splits: who reads what, and how far, from one micro-batch to the next.

An offset is JSON. It says how far every split was read, what the readers of the micro-batch that ends there are to
read, and what the enumerator knows: it is both the order for that micro-batch and the checkpoint behind it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dsv2.clock import Clock
from dsv2.errors import ContractError, Dsv2Error, JobError
from dsv2.graph import Operator
from dsv2.sources import (
    Portion,
    ReaderInfo,
    Serializer,
    Source,
    SplitEnumerator,
    SupportsSplitReassignmentOnRecovery,
)

__all__ = ("BEFORE_START", "Offset", "ReaderOrder", "SourceCoordinator", "SplitPortion", "orders")

Offset: TypeAlias = dict[str, Any]

BEFORE_START: Offset = {"batch": -1}
"""Where a job is that has not begun."""


@dataclass(frozen=True, slots=True)
class SplitPortion:
    """What is read of a split in one micro-batch."""

    start: Any
    stop: Any


@dataclass(frozen=True, slots=True)
class ReaderOrder:
    """What one reader does in one micro-batch. ``first``: the job begins; ``last``: the reader ends."""

    subtask: int
    batch: int
    portions: tuple[SplitPortion, ...]
    first: bool
    last: bool


def orders(offset: Offset, splits: Serializer[Any]) -> list[ReaderOrder]:
    """What the readers do in the micro-batch that ends at ``offset``; without those that have nothing to do."""
    batch = offset["batch"]
    return [
        ReaderOrder(subtask, batch, portions, batch == 0, reader["ended"] == batch)
        for subtask, reader in enumerate(offset["readers"])
        if (portions := _portions(reader, splits)) or batch == 0 or reader["ended"] == batch
    ]


def _portions(reader: Mapping[str, Any], splits: Serializer[Any]) -> tuple[SplitPortion, ...]:
    return tuple(
        SplitPortion(splits.from_json(split["from"]), splits.from_json(split["at"]))
        for split in reader["splits"]
        if "from" in split
    )


@dataclass(slots=True)
class _Held:
    """A split that a reader holds. ``start``: where the reading of this micro-batch begins, None if there is none."""

    at: Any
    start: Any = None
    last: bool = False

    def begin_batch(self) -> None:
        self.start = None

    def advance(self, portion: Portion[Any]) -> None:
        if self.start is None:
            self.start = self.at
        self.at, self.last = portion.stop, portion.last


@dataclass(slots=True)
class _Reader:
    """``ended``: the micro-batch with which it ends, None if that has not come."""

    splits: dict[str, _Held] = field(default_factory=dict)
    no_more_splits: bool = False
    ended: int | None = None


class _Context:
    """The enumerator's view (``SplitEnumeratorContext``)."""

    def __init__(self, parallelism: int, clock: Clock) -> None:
        self.parallelism = parallelism
        self.clock = clock
        self.readers = [_Reader() for _ in range(parallelism)]
        self.registered_readers: dict[int, ReaderInfo[Any]] = {}

    def assign_splits(self, assignment: Mapping[int, Sequence[Any]], /) -> None:
        """Give splits to readers."""
        for subtask, splits in assignment.items():
            if subtask not in self.registered_readers:
                raise ContractError(f"Reader {subtask} is not registered, so it cannot be given splits.")
            for split in splits:
                self._assign(subtask, split)

    def _assign(self, subtask: int, split: Any) -> None:
        for other, reader in enumerate(self.readers):
            if split.split_id in reader.splits:
                raise ContractError(f"Split {split.split_id!r} is held by reader {other}: reader {subtask} cannot too.")
        if self.readers[subtask].no_more_splits:
            raise ContractError(f"Reader {subtask} was told that no more splits come, and now gets {split.split_id!r}.")
        self.readers[subtask].splits[split.split_id] = _Held(split)

    def signal_no_more_splits(self, subtask: int, /) -> None:
        """Promise that this reader gets no further split."""
        self.readers[subtask].no_more_splits = True


class SourceCoordinator:
    """Decides on the micro-batches of one source, one after the other (Flink ``SourceCoordinator``)."""

    def __init__(self, source: Source[Any, Any, Any], operator: Operator, parallelism: int, clock: Clock) -> None:
        self._source = source
        self._operator = operator
        self._parallelism = parallelism
        self._clock = clock
        self._splits: Serializer[Any] = source.split_serializer
        self._states: Serializer[Any] = source.enumerator_state_serializer
        self._offset: Offset | None = None
        self._context: _Context
        self._enumerator: SplitEnumerator[Any, Any]

    def next(self, offset: Offset, limit: int | None, *, refresh: bool = True) -> Offset:
        """Where the micro-batch behind ``offset`` ends; ``offset`` itself if nothing is new.

        ``limit``: what it may hold, in the source's unit. ``refresh``: take a new look at what there is.
        """
        if offset != self._offset:
            self._start(offset)
            refresh = True
        batch = offset["batch"] + 1
        self._begin_batch()
        if refresh:
            with self._calling("refresh"):
                self._enumerator.refresh()
        self._plan(limit, batch)
        for reader in self._context.readers:
            if reader.no_more_splits and reader.ended is None and all(held.last for held in reader.splits.values()):
                reader.ended = batch
        there = self._snapshot(batch)
        if _content(there) == _content(offset):
            return offset
        self._offset = there
        return there

    @property
    def ended(self) -> bool:
        """Whether all readers have been told to end."""
        return self._offset is not None and all(reader.ended is not None for reader in self._context.readers)

    def close(self) -> None:
        """Close the enumerator, if there is one."""
        if self._offset is not None:
            self._offset = None
            with self._calling("close"):
                self._enumerator.close()

    def _start(self, offset: Offset) -> None:
        self.close()
        self._context = _Context(self._parallelism, self._clock)
        restored = None if offset == BEFORE_START else self._states.from_json(offset["enumerator"])
        with self._calling("create_enumerator"):
            self._enumerator = self._source.create_enumerator(self._context, restored)
        self._offset = offset
        with self._calling("start"):
            self._enumerator.start()
        self._register(offset.get("readers", []))

    def _register(self, before: list[dict[str, Any]]) -> None:
        """Register all readers, with what those of the run before held. It may have had more of them, or fewer."""
        reported: list[list[Any]] = [[] for _ in range(self._parallelism)]
        for subtask, reader in enumerate(before):
            held = [self._splits.from_json(split["at"]) for split in reader["splits"] if not split["last"]]
            reported[subtask % self._parallelism] += held
        self._keep_ended([reader["ended"] for reader in before])
        for subtask, splits in enumerate(reported):
            if isinstance(self._source, SupportsSplitReassignmentOnRecovery):
                info = ReaderInfo(subtask, tuple(splits))
            else:
                info = ReaderInfo(subtask)
                self._context.readers[subtask].splits = {split.split_id: _Held(split) for split in splits}
            self._context.registered_readers[subtask] = info
            with self._calling("add_reader"):
                self._enumerator.add_reader(info)

    def _keep_ended(self, before: list[int | None]) -> None:
        if len(before) == self._parallelism:
            for reader, ended in zip(self._context.readers, before, strict=True):
                reader.ended = ended
        elif before and None not in before:
            for reader in self._context.readers:
                reader.ended = max(ended for ended in before if ended is not None)

    def _begin_batch(self) -> None:
        for reader in self._context.readers:
            reader.splits = {split_id: held for split_id, held in reader.splits.items() if not held.last}
            for held in reader.splits.values():
                held.begin_batch()

    def _plan(self, limit: int | None, batch: int) -> None:
        """Advance all splits within ``limit``: each round gives those that have more to read an equal share."""
        left = [held for reader in self._context.readers for held in reader.splits.values()]
        first = batch % len(left) if left else 0
        left = left[first:] + left[:first]  # so that a small limit reaches every split in its turn
        while left and (limit is None or limit > 0):
            share = None if limit is None else max(1, limit // len(left))
            eager = []
            for held in left:
                if limit is not None and limit <= 0:
                    break
                portion = self._advance(held, share)
                if portion is None:
                    continue
                held.advance(portion)
                if limit is not None:
                    limit -= portion.size
                    if not portion.last:
                        eager.append(held)
            left = eager

    def _advance(self, held: _Held, limit: int | None) -> Portion[Any] | None:
        with self._calling("advance"):
            portion = self._enumerator.advance(held.at, limit)
            if portion is not None and portion.stop.split_id != held.at.split_id:
                raise ContractError(f"{held.at} cannot be read up to {portion.stop}, which is another split.")
        return portion

    def _snapshot(self, batch: int) -> Offset:
        with self._calling("snapshot_state"):
            state = self._states.to_json(self._enumerator.snapshot_state())
        readers = [
            {"splits": [self._write(held) for held in reader.splits.values()], "ended": reader.ended}
            for reader in self._context.readers
        ]
        # As it comes back from Spark's log, tuples as lists.
        written: Offset = json.loads(json.dumps({"batch": batch, "enumerator": state, "readers": readers}))
        return written

    def _write(self, held: _Held) -> dict[str, Any]:
        written = {"at": self._splits.to_json(held.at), "last": held.last}
        return written if held.start is None else {"from": self._splits.to_json(held.start), **written}

    @contextmanager
    def _calling(self, callback: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            ours = isinstance(error, Dsv2Error)
            told = str(error) if ours else f"{type(error).__qualname__}: {error}\n{_traceback(error)}"
            raise JobError(
                f"The source {self._operator}, defined at {self._operator.location}, failed on the driver, in "
                f"{callback}: {told}"
            ) from error


def _content(offset: Offset) -> tuple[Any, ...]:
    """What an offset says, but for the micro-batch: two that differ in nothing else need none between them."""
    readers = [
        ([split["at"] for split in reader["splits"] if not split["last"]], reader["ended"])
        for reader in offset.get("readers", ())
    ]
    return offset.get("enumerator"), readers


def _traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error))
