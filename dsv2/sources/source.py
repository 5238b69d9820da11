"""The source API with splits (Flink FLIP-27), adapted to micro-batches.

A split is an immutable value with a position, such as a Kafka partition at an offset or a file at a byte. On the
driver, the enumerator plans each micro-batch: it determines a start and a stop for each split, which are the same split
at two positions. In the tasks, readers read exactly this range. So a repeated micro-batch reads the same records, and
the offsets, which are JSON, contain all state of the source.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from dsv2.base.clock import Clock
from dsv2.base.record_position import Offset, SplitName
from dsv2.base.type_variables import T_co
from dsv2.model.record_batch import RecordBatch
from dsv2.sources.base import BaseSource
from dsv2.sources.serializers import Serializer
from dsv2.sources.split_batch import SplitBatch
from dsv2.watermark import Watermark


class SourceSplit(Protocol):
    """A part of a source with a read position. Immutable, usually a frozen dataclass (Flink ``SourceSplit``)."""

    @property
    def split_id(self) -> str:
        """The unique id of the split within its source. It does not depend on the position."""


LEAST_PER_BATCH = 100
"""The default of ``SplitEnumerator.least_per_batch``, in records. Fewer records do not shorten a micro-batch."""

SplitT = TypeVar("SplitT", bound=SourceSplit)
SplitT_contra = TypeVar("SplitT_contra", bound=SourceSplit, contravariant=True)
StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Portion(Generic[SplitT]):
    """The part of a split that a micro-batch reads.

    Attributes:
        stop: The split at the position where the next micro-batch continues.
        size: The size of the portion, in the unit of the source's limits (records, bytes or files).
        last: Whether the split ends at ``stop``.
    """

    stop: SplitT
    size: int = 1
    last: bool = False


@dataclass(frozen=True)
class ReaderInfo(Generic[SplitT]):
    """A registered reader (Flink ``ReaderInfo``).

    Attributes:
        subtask: The index of the reader.
        reported_splits_on_registration: The splits that the reader held when the job stopped, at their positions.
            Empty for sources that are not ``SupportsSplitReassignmentOnRecovery``, whose readers keep their splits.
    """

    subtask: int
    reported_splits_on_registration: tuple[SplitT, ...] = ()


class SplitEnumeratorContext(Protocol[SplitT]):
    """The interface of the job to an enumerator (Flink ``SplitEnumeratorContext``)."""

    @property
    def parallelism(self) -> int:
        """The number of readers of the source, registered or not."""

    @property
    def clock(self) -> Clock:
        """The job's clock. Enumerators must not use any other clock."""

    @property
    def limit_per_batch(self) -> int | None:
        """The job's limit for the next micro-batch, over all splits, in the unit of ``Portion.size``.

        None: no limit. The enumerator's own limit applies as well.
        """

    @property
    def registered_readers(self) -> Mapping[int, ReaderInfo[SplitT]]:
        """The registered readers, by subtask."""

    def assign_splits(self, assignment: Mapping[int, Sequence[SplitT]], /) -> None:
        """Assign splits to readers.

        Args:
            assignment: The new splits of each reader, by subtask.

        Raises:
            ContractError: A reader is not registered, or another reader holds a split.
        """

    def signal_no_more_splits(self, subtask: int, /) -> None:
        """Signal that this reader gets no more splits. It ends when it has read the splits that it holds."""

    def emit_watermark(self, watermark: Watermark, /) -> None:
        """Emit a declared watermark from every reader that has not ended, at the beginning of the next micro-batch."""


class SplitEnumerator(ABC, Generic[SplitT, StateT]):
    """Assigns splits to readers and plans how far they are read. Runs on the driver.

    At every start of a job, the runtime calls ``start`` and then ``add_reader`` for each reader. Before every
    micro-batch, it calls ``refresh`` or ``hand_out``, then ``advance`` for each split that a reader holds, and then
    ``snapshot_state``. At the end of the run, it calls ``close``, unless the process is killed. An exception of any of
    these methods fails the job with a ``JobError``.

    Source: Flink ``SplitEnumerator``.
    """

    def start(self) -> None:
        """Called once, before any other method."""

    @abstractmethod
    def add_reader(self, reader: ReaderInfo[SplitT], /) -> None:
        """Handle the registration of a reader, at the start of the job or after the reader has failed."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SplitT], subtask: int, /) -> None:
        """Handle the failure of a reader.

        Args:
            splits: The splits that were assigned to the reader since the last checkpoint.
            subtask: The index of the reader.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Look for new splits and new data. Called before every micro-batch.

        Under ``Trigger.available_now()`` it is called before the first micro-batch only: the run reads the data that
        is available then.
        """

    def hand_out(self) -> None:
        """Assign splits that are waiting, without looking for new ones. Called instead of ``refresh``."""

    @property
    def limit_per_batch(self) -> int | None:
        """The maximum size of a micro-batch of a STREAMING job, over all splits, in the unit of ``Portion.size``.

        None: no limit. The limit is divided fairly between splits; a share that a split does not use goes to others.
        """
        return None

    @property
    def least_per_batch(self) -> int:
        """The initial and minimum size of micro-batches under ``target_batch_duration`` of ``Trigger``.

        In the unit of ``Portion.size``. Choose a size below which a micro-batch does not become shorter.
        """
        return LEAST_PER_BATCH

    @property
    def can_pause_splits(self) -> bool:
        """True if single splits can be paused. By default, if the enumerator has ``pause_or_resume_splits``."""
        return isinstance(self, SupportsPauseOrResumeSplits)

    @abstractmethod
    def advance(self, split: SplitT, limit: int | None, /) -> Portion[SplitT] | None:
        """Determine how far a split can be read, according to the last ``refresh``.

        It may be called several times for a micro-batch, each time with the stop of the previous call.

        Args:
            split: The split at the position up to which it has been read.
            limit: The maximum size of the portion. The source may exceed it to make progress. None: no limit.

        Returns:
            The next portion; None if there is nothing new. A portion of size 0 up to the same position means the same.
        """

    def lag(self, split: SplitT, /) -> int | None:
        """Return the number of records that were available at the last ``refresh`` after the position of ``split``.

        For the progress of the job. Called after ``advance``, for splits that readers hold. It should not ask an
        external system. None (default): unknown.
        """
        return None

    def wait(self, splits: Sequence[SplitT], timeout: timedelta, /) -> bool | None:
        """Wait until one of ``splits`` can be read further. The local runtime calls it while it has nothing to do.

        Args:
            splits: The splits that readers hold, at their positions, without paused ones.
            timeout: The longest wait, some milliseconds.

        Returns:
            Whether there is something to read, as far as is known. None (default): the enumerator cannot wait, so it
            is asked with ``refresh`` and ``advance`` all the time.
        """
        return None

    @abstractmethod
    def snapshot_state(self) -> StateT:
        """Return the state that ``Source.create_enumerator`` receives when the job restarts."""

    def notify_checkpoint_complete(self, splits: Sequence[SplitT], /) -> None:
        """Called when all data before ``splits`` has been processed and will not be read again.

        Use it to report progress to external systems. It is called some time after the micro-batch, and not for the
        last micro-batch of a run.

        Args:
            splits: All splits that readers hold.
        """

    def close(self) -> None:
        """Release all resources."""


@runtime_checkable
class SupportsPauseOrResumeSplits(Protocol[SplitT_contra]):
    """An enumerator that supports pausing individual splits, for watermark alignment (FLIP-217).

    In Flink, readers implement this. Here a reader exists for one micro-batch only, and a paused split is not advanced.
    """

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[SplitT_contra], splits_to_resume: Sequence[SplitT_contra], /
    ) -> None:
        """Release or reacquire the resources of splits. ``advance`` is not called for paused splits."""


class SourceReaderContext(Protocol):
    """The interface of the job to a reader (Flink ``SourceReaderContext``).

    Signals are emitted after the records that the reader has yielded so far.
    """

    @property
    def subtask(self) -> int:
        """The index of the reader, from 0."""

    @property
    def parallelism(self) -> int:
        """The number of readers."""

    def emit_watermark(self, watermark: Watermark, /) -> None:
        """Emit a watermark. Raises ``UndeclaredWatermarkError`` if the source does not declare it."""

    def mark_idle(self) -> None:
        """Mark the reader as idle until ``mark_active``. Downstream operators do not wait for its watermarks."""

    def mark_active(self) -> None:
        """Mark the reader as active again."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the source, which the job's progress shows.

        Args:
            name: The name of the counter.
            amount: The amount to add.
        """


class SourceReader(ABC, Generic[T_co, SplitT_contra]):
    """Reads portions of splits in a task. It is created for one micro-batch and closed at its end.

    Source: Flink ``SourceReader``.
    """

    @abstractmethod
    def read(self, start: SplitT_contra, stop: SplitT_contra, /) -> Iterator[RecordBatch[T_co]]:
        """Yield all records from ``start`` up to ``stop``. Usually a generator.

        It must yield the same records at every call, because a micro-batch may be repeated. Portions of several splits
        are read one after the other.

        Args:
            start: The split at the position where the portion begins.
            stop: The split at the position where the portion ends.

        Returns:
            Batches of some thousands of records, or about 1 MB: ``SplitBatch`` if values are decoded or have offsets.
        """

    def close(self) -> None:
        """Release all resources. Also called after a failure."""


class Source(BaseSource[T_co], Generic[T_co, SplitT, StateT]):
    """A source with splits. ``SplitSource`` is a simpler way to implement one.

    The source is pickled and sent to the driver's enumerator and to the readers, which open clients and connections.

    Source: Flink ``Source``.
    """

    @property
    def record_types(self) -> Collection[type]:
        """The classes of records that the source creates, which programs then need not register."""
        return ()

    @abstractmethod
    def create_enumerator(
        self, ctx: SplitEnumeratorContext[SplitT], restored: StateT | None, /
    ) -> SplitEnumerator[SplitT, StateT]:
        """Create the enumerator.

        Args:
            ctx: The context of the enumerator.
            restored: The state of the previous enumerator; None when the job first starts.
        """

    @abstractmethod
    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[T_co, SplitT]:
        """Create a reader for one micro-batch."""

    @property
    @abstractmethod
    def split_serializer(self) -> Serializer[SplitT]:
        """The serializer of splits. ``DataclassSerializer`` is suitable for most."""

    def split_name(self, split: SplitT, /) -> SplitName:
        """The name of a split in errors, dead letters and ``skip_records``. It does not depend on the position."""
        return split.split_id

    def decode_again(self, value: Any, split: SplitName, /) -> SplitBatch[T_co]:
        """Return a batch with one value, that of a dead letter, as a reader yields it. It is decoded by the job.

        Called in a task when dead letters of the source are processed again. By default they cannot be.

        Args:
            value: The record of the dead letter.
            split: The name of its split, which may have ended.
        """
        raise NotImplementedError

    def describe_position(self, split: SplitT, /) -> str:
        """The position of a split, for the progress of the job. Default: its field ``position`` or ``offset``.

        If it has no such field, all of its fields as JSON.
        """
        written = self.split_serializer.to_json(split)
        if isinstance(written, dict):
            for name in ("position", "offset"):
                if name in written:
                    return str(written[name])
        return json.dumps(written)

    def has_read(self, split: SplitT, offset: Offset, /) -> bool:
        """Return whether the record at ``offset`` is certainly before the position of ``split``, for a warning."""
        return False

    @property
    @abstractmethod
    def enumerator_state_serializer(self) -> Serializer[StateT]:
        """The serializer of the enumerator's state."""


class SupportsSplitReassignmentOnRecovery:
    """Marks a ``Source`` whose enumerator reassigns all splits when a job restarts (FLIP-537).

    Readers report their splits when they register, and start without any. Without this marker, each reader keeps its
    splits; if the parallelism has changed, they are distributed among the new readers.
    """
