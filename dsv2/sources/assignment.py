"""Sources whose splits an enumerator assigns to their readers (FLIP-537).

The enumerator that most sources share owns the assignment. A split stays with its reader until the parallelism changes,
when all splits are reassigned. At every start, splits that no longer exist (for example of topics that are no longer
subscribed) are dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from dsv2.checks.arguments import as_milliseconds
from dsv2.errors import CorruptDataError
from dsv2.sources.assigners import HashSplitAssigner, SplitAssigner
from dsv2.sources.serializers import JsonValue, Serializer
from dsv2.sources.source import (
    LEAST_PER_BATCH,
    Portion,
    ReaderInfo,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
    SupportsSplitReassignmentOnRecovery,
)

T_co = TypeVar("T_co", covariant=True)
SplitT = TypeVar("SplitT", bound=SourceSplit)


class SplitDiscovery(ABC, Generic[SplitT]):
    """The source-specific part of an ``AssigningEnumerator``. Used on the driver."""

    @abstractmethod
    def discover(self) -> Collection[SplitT]:
        """Return all existing splits, each at its beginning, always in the same order."""

    def refresh(self) -> None:
        """Look up how far splits can be read. Called like ``SplitEnumerator.refresh``, before ``discover``."""

    def ready(self, waiting: Sequence[SplitT], limit: int | None, /) -> Sequence[SplitT]:
        """Choose the splits to assign now. Called before every micro-batch.

        Override it to read finite splits one after the other. By default, all splits are assigned.

        Args:
            waiting: The splits without a reader.
            limit: The maximum size of the micro-batch, over all splits, in the unit of ``Portion.size``. None: no
                limit.

        Returns:
            Some of ``waiting``.
        """
        return waiting

    @abstractmethod
    def advance(self, split: SplitT, limit: int | None, /) -> Portion[SplitT] | None:
        """See ``SplitEnumerator.advance``."""

    def lag(self, split: SplitT, /) -> int | None:
        """See ``SplitEnumerator.lag``."""
        return None

    def wait(self, splits: Sequence[SplitT], timeout: timedelta, /) -> bool | None:
        """See ``SplitEnumerator.wait``."""
        return None

    def pause_or_resume_splits(self, splits_to_pause: Sequence[SplitT], splits_to_resume: Sequence[SplitT], /) -> None:
        """See ``SupportsPauseOrResumeSplits.pause_or_resume_splits``."""

    def notify_checkpoint_complete(self, splits: Sequence[SplitT], /) -> None:
        """See ``SplitEnumerator.notify_checkpoint_complete``."""

    def close(self) -> None:
        """Release all resources."""


@dataclass(frozen=True)
class AssignmentState(Generic[SplitT]):
    """The state of an ``AssigningEnumerator``. The positions of splits held by readers are stored elsewhere.

    Attributes:
        parallelism: The number of readers.
        discovered: Whether splits have been discovered at least once.
        owners: The subtask of each unfinished split that is assigned, by split id.
        pending: Splits that are assigned but not yet sent to their reader, by subtask.
        unassigned: Splits without a reader.
        finished: The ids of splits that have been read to their end.
    """

    parallelism: int
    discovered: bool
    owners: Mapping[str, int]
    pending: Mapping[int, tuple[SplitT, ...]]
    unassigned: tuple[SplitT, ...]
    finished: tuple[str, ...]

    @property
    def unfinished(self) -> list[str]:
        """The ids of all discovered splits that have not been read to their end."""
        return [*self.owners, *(split.split_id for split in self.unassigned)]


class AssignmentStateSerializer(Generic[SplitT]):
    """Serializes an ``AssignmentState`` to JSON.

    Args:
        splits: The serializer of splits.
    """

    def __init__(self, splits: Serializer[SplitT]) -> None:
        self._splits = splits

    def to_json(self, value: AssignmentState[SplitT], /) -> JsonValue:
        """Return the fields by name."""
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
        """Restore a state from the result of ``to_json``. Raises ``CorruptDataError`` for anything else."""
        try:
            stored = msgspec.convert(json, AssignmentState[Any], str_keys=True)
        except msgspec.ValidationError as error:
            raise CorruptDataError(f"{json} is not the state of an AssigningEnumerator: {error}.") from error
        read = self._splits.from_json
        pending = {subtask: tuple(map(read, splits)) for subtask, splits in stored.pending.items()}
        return replace(stored, pending=pending, unassigned=tuple(map(read, stored.unassigned)))


class AssigningEnumerator(SplitEnumerator[SplitT, AssignmentState[SplitT]], Generic[SplitT]):
    """Discovers splits and assigns them to readers. For sources that are ``SupportsSplitReassignmentOnRecovery``.

    Args:
        ctx: The context of the enumerator.
        restored: The state to restore; None when the job first starts.
        discovery: Discovers splits and determines how far they can be read.
        assigner: Chooses the readers of splits.
        bounded: Whether splits are discovered only when the job first starts. Otherwise they are discovered at every
            start and every ``discovery_interval``.
        discovery_interval: How often to discover splits. None: only when the job starts.
        limit_per_batch: See ``SplitEnumerator.limit_per_batch``.
        least_per_batch: See ``SplitEnumerator.least_per_batch``.
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
        self._found: dict[str, SplitT] | None = None  # the result of the last discovery, until it is processed
        self._next_discovery: int | None = ctx.clock.now_ms()
        self._discovered = False
        self._reconciled = False  # whether all readers have reported their splits and splits have been discovered
        self._owners: dict[str, int] = {}
        self._pending: dict[int, dict[str, SplitT]] = {subtask: {} for subtask in range(ctx.parallelism)}
        self._unassigned: dict[str, SplitT] = {}
        self._finished: dict[str, None] = {}
        if restored is not None:
            self._restore(restored)

    def _restore(self, restored: AssignmentState[SplitT]) -> None:
        self._finished = dict.fromkeys(restored.finished)
        if self._bounded and restored.discovered:
            self._discovered, self._next_discovery = True, None
        if restored.parallelism == self._ctx.parallelism:
            self._owners = dict(restored.owners)
        for split in (*restored.unassigned, *(split for splits in restored.pending.values() for split in splits)):
            self._add(split)

    def add_reader(self, reader: ReaderInfo[SplitT], /) -> None:
        for split in reader.reported_splits_on_registration:
            owner = self._owners.get(split.split_id)
            if not self._reconciled or owner == reader.subtask:  # otherwise it was reassigned or dropped
                self._add(split)
        self._assign_if_reconciled()

    def add_splits_back(self, splits: Sequence[SplitT], subtask: int, /) -> None:
        for split in splits:
            if self._owners.get(split.split_id) == subtask:
                self._add(split)  # pending until this reader registers again

    def refresh(self) -> None:
        self._discovery.refresh()
        now = self._ctx.clock.now_ms()
        if self._next_discovery is not None and now >= self._next_discovery:
            self._found = {split.split_id: split for split in self._discovery.discover()}
            self._next_discovery = None if self._bounded or self._interval_ms is None else now + self._interval_ms
            self._discovered = True
        self._assign_if_reconciled()

    def hand_out(self) -> None:
        self._assign_if_reconciled()

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

    def lag(self, split: SplitT, /) -> int | None:
        return self._discovery.lag(split)

    def wait(self, splits: Sequence[SplitT], timeout: timedelta, /) -> bool | None:
        return self._discovery.wait(splits, timeout)

    def snapshot_state(self) -> AssignmentState[SplitT]:
        return AssignmentState(
            self._ctx.parallelism,
            self._discovered,
            dict(self._owners),
            {subtask: tuple(splits.values()) for subtask, splits in self._pending.items() if splits},
            tuple(self._unassigned.values()),
            tuple(self._finished),
        )

    def pause_or_resume_splits(self, splits_to_pause: Sequence[SplitT], splits_to_resume: Sequence[SplitT], /) -> None:
        """See ``SupportsPauseOrResumeSplits.pause_or_resume_splits``."""
        self._discovery.pause_or_resume_splits(splits_to_pause, splits_to_resume)

    def notify_checkpoint_complete(self, splits: Sequence[SplitT], /) -> None:
        self._discovery.notify_checkpoint_complete(splits)

    def close(self) -> None:
        self._discovery.close()

    def _add(self, split: SplitT) -> None:
        """Add a split that no reader holds to the pending splits of its owner, or to the unassigned ones."""
        owner = self._owners.get(split.split_id)
        splits = self._unassigned if owner is None else self._pending[owner]
        splits.setdefault(split.split_id, split)

    def _assign_if_reconciled(self) -> None:
        """Assign splits, once every reader has registered and reported its splits."""
        if not self._reconciled:
            if not self._discovered or len(self._ctx.registered_readers) < self._ctx.parallelism:
                return
            if self._found is not None:
                self._drop_missing(self._found)
            self._reconciled = True
        if self._found is not None:
            self._add_new(self._found)
        self._assign(self._unassigned if self._found is None else self._found)
        self._found = None
        self._send_pending()

    def _drop_missing(self, found: Mapping[str, SplitT]) -> None:
        self._owners = {split_id: owner for split_id, owner in self._owners.items() if split_id in found}
        for waiting in (self._unassigned, *self._pending.values()):
            for split_id in waiting.keys() - found.keys():
                del waiting[split_id]

    def _add_new(self, found: Mapping[str, SplitT]) -> None:
        self._finished = {split_id: None for split_id in self._finished if split_id in found}
        for split_id, split in found.items():
            if split_id not in self._owners and split_id not in self._finished:
                self._add(split)

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

    def _send_pending(self) -> None:
        for subtask in sorted(self._ctx.registered_readers):
            if splits := self._pending[subtask]:
                self._ctx.assign_splits({subtask: tuple(splits.values())})
                splits.clear()
            if self._bounded and not self._unassigned:
                self._ctx.signal_no_more_splits(subtask)


class AssigningSource(
    Source[T_co, SplitT, AssignmentState[SplitT]], SupportsSplitReassignmentOnRecovery, ABC, Generic[T_co, SplitT]
):
    """A source whose enumerator is an ``AssigningEnumerator``.

    It requires ``bounded``, ``split_serializer``, ``create_discovery`` and ``create_reader``.

    Attributes:
        discovery_interval: The interval at which an unbounded source looks for new splits. None (default): only when
            the job starts.
        limit_per_batch: See ``SplitEnumerator.limit_per_batch``. None (default): no limit.
        least_per_batch: See ``SplitEnumerator.least_per_batch``.
    """

    discovery_interval: timedelta | None = None
    limit_per_batch: int | None = None
    least_per_batch: int = LEAST_PER_BATCH

    @abstractmethod
    def create_discovery(
        self, ctx: SplitEnumeratorContext[SplitT], restored: AssignmentState[SplitT] | None, /
    ) -> SplitDiscovery[SplitT]:
        """Create the source-specific part of the enumerator. See ``create_enumerator``."""

    @property
    def assigner(self) -> SplitAssigner[SplitT]:
        """The assigner of splits to readers."""
        return HashSplitAssigner()

    def create_enumerator(
        self, ctx: SplitEnumeratorContext[SplitT], restored: AssignmentState[SplitT] | None, /
    ) -> SplitEnumerator[SplitT, AssignmentState[SplitT]]:
        return AssigningEnumerator(
            ctx,
            restored,
            self.create_discovery(ctx, restored),
            self.assigner,
            bounded=self.bounded,
            discovery_interval=self.discovery_interval,
            limit_per_batch=self.limit_per_batch,
            least_per_batch=self.least_per_batch,
        )

    @property
    def enumerator_state_serializer(self) -> Serializer[AssignmentState[SplitT]]:
        return AssignmentStateSerializer(self.split_serializer)


class ReadingSource(AssigningSource[T_co, SplitT], SourceReader[T_co, SplitT], ABC, Generic[T_co, SplitT]):
    """A source that reads its splits itself, in copies in tasks."""

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[T_co, SplitT]:
        return self


class SplitSource(ReadingSource[T_co, SplitT], SplitDiscovery[SplitT], ABC, Generic[T_co, SplitT]):
    """A source that requires only ``bounded``, ``split_serializer``, ``discover``, ``advance`` and ``read``.

    ``discover``, ``refresh`` and ``advance`` are called on one copy of the source on the driver, ``read`` on other
    copies in tasks. Keep open resources in fields that are not pickled; ``close`` is called on each copy.
    """

    def create_discovery(
        self, ctx: SplitEnumeratorContext[SplitT], restored: AssignmentState[SplitT] | None, /
    ) -> SplitDiscovery[SplitT]:
        return self
