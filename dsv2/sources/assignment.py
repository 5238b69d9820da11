"""The enumerator that most sources share: one authority on who reads what, of which nothing is lost (FLIP-537).

A split stays with its reader until the parallelism changes; then all splits are given out anew. At every start the
splits that are not there any more (topics no longer subscribed) are dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from dsv2.arguments import as_milliseconds
from dsv2.errors import CorruptDataError
from dsv2.sources.assigners import SplitAssigner
from dsv2.sources.serializers import JsonValue, Serializer
from dsv2.sources.source import (
    LEAST_PER_BATCH,
    Portion,
    ReaderInfo,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)

__all__ = ("AssigningEnumerator", "AssignmentState", "AssignmentStateSerializer", "SplitDiscovery")

SplitT = TypeVar("SplitT", bound=SourceSplit)


class SplitDiscovery(ABC, Generic[SplitT]):
    """What an ``AssigningEnumerator`` asks the outside world, on the driver."""

    @abstractmethod
    def discover(self) -> Collection[SplitT]:
        """All splits that there are, each at its beginning, in an order that is always the same."""

    def refresh(self) -> None:
        """Take a new look at how far splits can be read; called as ``SplitEnumerator.refresh``, before ``discover``."""

    def ready(self, waiting: Sequence[SplitT], limit: int | None, /) -> Sequence[SplitT]:
        """Those of ``waiting``, which no reader has been chosen for, that are to be read now: by default, all.

        Asked before every micro-batch, so that splits that end may be read one after the other. ``limit``: what it may
        hold at most, over all splits, in the unit of ``Portion.size``; None: no limit.
        """
        return waiting

    @abstractmethod
    def advance(self, split: SplitT, limit: int | None, /) -> Portion[SplitT] | None:
        """As ``SplitEnumerator.advance``."""

    def pause_or_resume_splits(self, splits_to_pause: Sequence[SplitT], splits_to_resume: Sequence[SplitT], /) -> None:
        """As ``SupportsPauseOrResumeSplits.pause_or_resume_splits``."""

    def notify_checkpoint_complete(self, splits: Sequence[SplitT], /) -> None:
        """As ``SplitEnumerator.notify_checkpoint_complete``."""

    def close(self) -> None:
        """Release what was taken."""


@dataclass(frozen=True)
class AssignmentState(Generic[SplitT]):
    """What is known of all splits, but for the positions of those that readers hold.

    ``discovered``: whether a first look was taken. ``owners``: the global assignment, by split id, of what is not read
    to its end, for ``parallelism`` readers. ``pending``: splits that have an owner
    who has not got them yet, by subtask. ``unassigned``: those without an owner. ``finished``: ids of what was read.
    """

    parallelism: int
    discovered: bool
    owners: Mapping[str, int]
    pending: Mapping[int, tuple[SplitT, ...]]
    unassigned: tuple[SplitT, ...]
    finished: tuple[str, ...]


class AssignmentStateSerializer(Generic[SplitT]):
    """An ``AssignmentState`` as JSON, of splits that ``splits`` writes."""

    def __init__(self, splits: Serializer[SplitT]) -> None:
        self._splits = splits

    def to_json(self, value: AssignmentState[SplitT], /) -> JsonValue:
        """The fields by name."""
        write = self._splits.to_json
        return {
            "parallelism": value.parallelism,
            "discovered": value.discovered,
            "owners": dict(value.owners),
            "pending": {str(subtask): [write(split) for split in splits] for subtask, splits in value.pending.items()},
            "unassigned": [write(split) for split in value.unassigned],
            "finished": list(value.finished),
        }

    def from_json(self, json: JsonValue, /) -> AssignmentState[SplitT]:
        """The state of ``to_json``. Raises ``CorruptDataError`` for anything else."""
        read = self._splits.from_json
        match json:
            case {
                "parallelism": int(parallelism),
                "discovered": bool(discovered),
                "owners": dict(owners),
                "pending": dict(pending),
                "unassigned": list(unassigned),
                "finished": list(finished),
            }:
                return AssignmentState(
                    parallelism,
                    discovered,
                    {split_id: subtask for split_id, subtask in owners.items() if isinstance(subtask, int)},
                    {
                        int(subtask): tuple(map(read, splits))
                        for subtask, splits in pending.items()
                        if isinstance(splits, list)
                    },
                    tuple(map(read, unassigned)),
                    tuple(split_id for split_id in finished if isinstance(split_id, str)),
                )
        raise CorruptDataError(f"{json} is not the state of an AssigningEnumerator.")


class AssigningEnumerator(SplitEnumerator[SplitT, AssignmentState[SplitT]], Generic[SplitT]):
    """Finds splits by ``discovery`` and has ``assigner`` choose their readers.

    ``bounded``: the splits are those that are there when the job first starts. Otherwise new ones are looked for at
    each start, and every ``discovery_interval`` if that is given. ``limit_per_batch``, ``least_per_batch``: as in
    ``SplitEnumerator``. For sources that are ``SupportsSplitReassignmentOnRecovery``.
    """

    def __init__(
        self,
        ctx: SplitEnumeratorContext[SplitT],
        restored: AssignmentState[SplitT] | None,
        discovery: SplitDiscovery[SplitT],
        assigner: SplitAssigner[SplitT],
        *,
        bounded: bool,
        discovery_interval: timedelta | None = None,
        limit_per_batch: int | None = None,
        least_per_batch: int = LEAST_PER_BATCH,
    ) -> None:
        self._ctx = ctx
        self._limit = limit_per_batch
        self._least = least_per_batch
        self._discovery = discovery
        self._assigner = assigner
        self._bounded = bounded
        self._interval_ms: int | None = None
        if discovery_interval is not None:
            self._interval_ms = as_milliseconds(discovery_interval, "discovery_interval", at_least=1)
        self._found: dict[str, SplitT] | None = None  # by the last look, until it is made use of
        self._next_look: int | None = ctx.clock.now_ms()
        self._looked = False
        self._settled = False  # whether all readers have told what they held, and a first look was taken
        self._owners: dict[str, int] = {}
        self._pending: dict[int, dict[str, SplitT]] = {subtask: {} for subtask in range(ctx.parallelism)}
        self._unassigned: dict[str, SplitT] = {}
        self._finished: dict[str, None] = {}
        if restored is not None:
            self._restore(restored)

    def _restore(self, restored: AssignmentState[SplitT]) -> None:
        self._finished = dict.fromkeys(restored.finished)
        if self._bounded and restored.discovered:
            self._looked, self._next_look = True, None
        if restored.parallelism == self._ctx.parallelism:
            self._owners = dict(restored.owners)
        for split in (*restored.unassigned, *(split for splits in restored.pending.values() for split in splits)):
            self._take(split)

    def add_reader(self, reader: ReaderInfo[SplitT], /) -> None:
        for split in reader.reported_splits_on_registration:
            owner = self._owners.get(split.split_id)
            if not self._settled or owner == reader.subtask:  # else another one has it by now, or it was dropped
                self._take(split)
        self._settle()

    def add_splits_back(self, splits: Sequence[SplitT], subtask: int, /) -> None:
        for split in splits:
            if self._owners.get(split.split_id) == subtask:
                self._take(split)  # it waits for this reader

    def refresh(self) -> None:
        self._discovery.refresh()
        now = self._ctx.clock.now_ms()
        if self._next_look is not None and now >= self._next_look:
            self._found = {split.split_id: split for split in self._discovery.discover()}
            self._next_look = None if self._bounded or self._interval_ms is None else now + self._interval_ms
            self._looked = True
        self._settle()

    def hand_out(self) -> None:
        self._settle()

    @property
    def limit_per_batch(self) -> int | None:
        return self._limit

    @property
    def least_per_batch(self) -> int:
        return self._least

    def advance(self, split: SplitT, limit: int | None, /) -> Portion[SplitT] | None:
        portion = self._discovery.advance(split, limit)
        if portion is not None and portion.last:
            del self._owners[split.split_id]
            if not self._bounded:
                self._finished[split.split_id] = None
        return portion

    def snapshot_state(self) -> AssignmentState[SplitT]:
        return AssignmentState(
            self._ctx.parallelism,
            self._looked,
            dict(self._owners),
            {subtask: tuple(splits.values()) for subtask, splits in self._pending.items() if splits},
            tuple(self._unassigned.values()),
            tuple(self._finished),
        )

    def pause_or_resume_splits(self, splits_to_pause: Sequence[SplitT], splits_to_resume: Sequence[SplitT], /) -> None:
        """As ``SupportsPauseOrResumeSplits.pause_or_resume_splits``."""
        self._discovery.pause_or_resume_splits(splits_to_pause, splits_to_resume)

    def notify_checkpoint_complete(self, splits: Sequence[SplitT], /) -> None:
        self._discovery.notify_checkpoint_complete(splits)

    def close(self) -> None:
        self._discovery.close()

    def _take(self, split: SplitT) -> None:
        """Keep a split that no reader holds, for its owner if it has one."""
        owner = self._owners.get(split.split_id)
        places = self._unassigned if owner is None else self._pending[owner]
        places.setdefault(split.split_id, split)

    def _settle(self) -> None:
        """Give out what can be given out. Nobody gets anything before everybody has told what he held."""
        if not self._settled:
            if not self._looked or len(self._ctx.registered_readers) < self._ctx.parallelism:
                return
            if self._found is not None:
                self._drop_missing(self._found)
            self._settled = True
        if self._found is not None:
            self._take_new(self._found)
        self._assign(self._unassigned if self._found is None else self._found)
        self._found = None
        self._hand_over()

    def _drop_missing(self, there: Mapping[str, SplitT]) -> None:
        self._owners = {split_id: owner for split_id, owner in self._owners.items() if split_id in there}
        for waiting in (self._unassigned, *self._pending.values()):
            for split_id in waiting.keys() - there.keys():
                del waiting[split_id]

    def _take_new(self, there: Mapping[str, SplitT]) -> None:
        self._finished = {split_id: None for split_id in self._finished if split_id in there}
        for split_id, split in there.items():
            if split_id not in self._owners and split_id not in self._finished:
                self._take(split)

    def _assign(self, order: Iterable[str]) -> None:
        waiting = [self._unassigned[split_id] for split_id in order if split_id in self._unassigned]
        limits = [limit for limit in (self._limit, self._ctx.limit_per_batch) if limit is not None]
        splits = self._discovery.ready(waiting, min(limits, default=None))
        held = Counter(self._owners.values())
        chosen = self._assigner.assign(splits, {subtask: held[subtask] for subtask in range(self._ctx.parallelism)})
        for split, owner in zip(splits, chosen, strict=True):
            self._owners[split.split_id] = owner
            self._pending[owner][split.split_id] = split
            del self._unassigned[split.split_id]

    def _hand_over(self) -> None:
        for subtask in sorted(self._ctx.registered_readers):
            if splits := self._pending[subtask]:
                self._ctx.assign_splits({subtask: tuple(splits.values())})
                splits.clear()
            if self._bounded and not self._unassigned:
                self._ctx.signal_no_more_splits(subtask)
