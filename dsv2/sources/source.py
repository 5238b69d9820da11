"""Sources with splits (Flink FLIP-27), made for micro-batches.

A split is an immutable value that says what to read and where it stands: a Kafka partition at an offset, a file at a
byte. What is read in a micro-batch is decided on the driver, by the enumerator, as a start and a stop for each split:
the same split at two positions. Readers, in the tasks, read exactly what lies between the two; so a micro-batch that is
repeated reads the same again, and all there is to remember is in the offsets, which are JSON.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from dsv2.clock import Clock
from dsv2.record_batch import RecordBatch
from dsv2.sources.base import BaseSource
from dsv2.sources.serializers import Serializer
from dsv2.watermark import Watermark

__all__ = (
    "Portion",
    "ReaderInfo",
    "Source",
    "SourceReader",
    "SourceReaderContext",
    "SourceSplit",
    "SplitEnumerator",
    "SplitEnumeratorContext",
    "SupportsPauseOrResumeSplits",
    "SupportsSplitReassignmentOnRecovery",
)


class SourceSplit(Protocol):
    """What a split has to be (Flink ``SourceSplit``): an immutable value, a frozen dataclass mostly."""

    @property
    def split_id(self) -> str:
        """Names the split within its source: the same at whatever position the split stands."""


LEAST_PER_BATCH = 100
"""Records: fewer make no micro-batch shorter."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
SplitT = TypeVar("SplitT", bound=SourceSplit)
SplitT_contra = TypeVar("SplitT_contra", bound=SourceSplit, contravariant=True)
StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Portion(Generic[SplitT]):
    """How far a split is read in a micro-batch.

    ``stop``: the split where the next micro-batch goes on. ``size``: how much that is, in the unit in which the source
    limits a micro-batch (records, bytes, files). ``last``: the split ends there.
    """

    stop: SplitT
    size: int = 1
    last: bool = False


@dataclass(frozen=True)
class ReaderInfo(Generic[SplitT]):
    """A reader that registers (Flink ``ReaderInfo``).

    ``reported_splits_on_registration``: those that it held when the job stopped, where they stand. None are reported by
    the readers of a source that is not ``SupportsSplitReassignmentOnRecovery``: they keep theirs.
    """

    subtask: int
    reported_splits_on_registration: tuple[SplitT, ...] = ()


class SplitEnumeratorContext(Protocol[SplitT]):
    """What an enumerator sees of the job, and how it tells what it decides (Flink ``SplitEnumeratorContext``)."""

    @property
    def parallelism(self) -> int:
        """Number of readers that the source has, registered or not."""

    @property
    def clock(self) -> Clock:
        """The only clock to look at."""

    @property
    def limit_per_batch(self) -> int | None:
        """What the job lets the next micro-batch hold at most, over all splits, in the unit of ``Portion.size``.

        None: no limit. The enumerator's own counts besides.
        """

    @property
    def registered_readers(self) -> Mapping[int, ReaderInfo[SplitT]]:
        """The readers that have registered, by subtask."""

    def assign_splits(self, assignment: Mapping[int, Sequence[SplitT]], /) -> None:
        """Give splits to readers, by subtask. Raises ``ContractError`` if a reader is not registered, or a split is
        held by another one."""

    def signal_no_more_splits(self, subtask: int, /) -> None:
        """Promise that this reader gets no further split: it ends when it has read those that it holds."""

    def emit_watermark(self, watermark: Watermark, /) -> None:
        """Have every reader that has not ended send a declared watermark at the beginning of the next micro-batch."""


class SplitEnumerator(ABC, Generic[SplitT, StateT]):
    """Decides who reads what, and how far (Flink ``SplitEnumerator``). Lives on the driver.

    When a job starts, for the first time or again: ``start``, then ``add_reader`` for each reader. Before every
    micro-batch: ``refresh`` or ``hand_out``, ``advance`` for each split that a reader holds, ``snapshot_state``. At
    the end of the run ``close``, unless the process is killed. An exception of any fails the job, as a ``JobError``.
    """

    def start(self) -> None:
        """Called first, once."""

    @abstractmethod
    def add_reader(self, reader: ReaderInfo[SplitT], /) -> None:
        """A reader has registered: at the start, and again after it alone has failed."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[SplitT], subtask: int, /) -> None:
        """Reader ``subtask`` has failed with these splits, which it was given since the last checkpoint."""

    @abstractmethod
    def refresh(self) -> None:
        """Look for new splits and new data. Called before every micro-batch; under ``Trigger.available_now()`` before
        the first one only, for what is there now is then all that is read."""

    def hand_out(self) -> None:
        """Called where there is no ``refresh``: give out splits that have waited for their turn, without a new look."""

    @property
    def limit_per_batch(self) -> int | None:
        """At most so much in the next micro-batch of a STREAMING job, over all splits, in the unit of ``Portion.size``.

        None: all that there is. Splits have fair shares: what one leaves is for the others.
        """
        return None

    @property
    def least_per_batch(self) -> int:
        """In the same unit, with how much a job begins whose micro-batches are to take a certain time, and the least it
        goes down to (``Trigger``'s ``target_batch_duration``). Less would make no micro-batch shorter."""
        return LEAST_PER_BATCH

    @abstractmethod
    def advance(self, split: SplitT, limit: int | None, /) -> Portion[SplitT] | None:
        """How far ``split``, which stands where it was read to, can be read now; None if there is nothing new.

        ``limit``: of this size at most, if the source can tell (it may exceed it to make any progress); None: no limit.
        May be called several times for a micro-batch, each time from the stop before. Answers by what the last
        ``refresh`` saw.
        """

    @abstractmethod
    def snapshot_state(self) -> StateT:
        """What ``Source.create_enumerator`` is given when the job starts again."""

    def notify_checkpoint_complete(self, splits: Sequence[SplitT], /) -> None:
        """What lies before ``splits`` (all that readers hold) has been processed for good, and is not read again.

        For telling the outside world. Called some time after the micro-batch; not at all for the last one of a run.
        """

    def close(self) -> None:
        """Release what ``start`` took."""


@runtime_checkable
class SupportsPauseOrResumeSplits(Protocol[SplitT_contra]):
    """An enumerator that can do without any one of its splits for a time: for watermark alignment (FLIP-217).

    (In Flink this is asked of readers. Here a reader lives for one micro-batch, and a split that is paused is not
    advanced.)
    """

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[SplitT_contra], splits_to_resume: Sequence[SplitT_contra], /
    ) -> None:
        """``advance`` is not called for the first until they are among the second. For releasing what they take."""


class SourceReaderContext(Protocol):
    """What a reader sees of the job, and its way to send more than records (Flink ``SourceReaderContext``).

    What is sent goes behind the records yielded so far.
    """

    @property
    def subtask(self) -> int:
        """Which of the readers this is, from 0."""

    @property
    def parallelism(self) -> int:
        """Number of readers."""

    def emit_watermark(self, watermark: Watermark, /) -> None:
        """Send a watermark that the source declares. Raises ``UndeclaredWatermarkError`` for others."""

    def mark_idle(self) -> None:
        """Nothing comes for now: do not wait for watermarks of this reader. Holds until ``mark_active``."""

    def mark_active(self) -> None:
        """The reader has records again."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to the source's counter ``name``. Sources that count anything are shown in the job's progress."""


class SourceReader(ABC, Generic[T_co, SplitT_contra]):
    """Reads portions of splits, in a task (Flink ``SourceReader``). Made for one micro-batch, closed at its end."""

    @abstractmethod
    def read(self, start: SplitT_contra, stop: SplitT_contra, /) -> Iterator[RecordBatch[T_co]]:
        """All records from ``start`` up to ``stop``, some thousand (or a MB) at a time: a generator, mostly.

        The same whenever it is called: a micro-batch may be repeated. Portions of several splits are read one after
        the other.
        """

    def close(self) -> None:
        """Release what the reader has taken; called after a failure, too."""


class Source(BaseSource[T_co], Generic[T_co, SplitT, StateT]):
    """A source with splits (Flink ``Source``). ``SplitSource`` is the short way to one.

    It is pickled on its way to the driver's enumerator and to the readers: clients and connections are made there.
    """

    @property
    def record_types(self) -> Collection[type]:
        """Classes of records that the source itself makes, so that programs need not register them."""
        return ()

    @abstractmethod
    def create_enumerator(
        self, ctx: SplitEnumeratorContext[SplitT], restored: StateT | None, /
    ) -> SplitEnumerator[SplitT, StateT]:
        """The enumerator. ``restored``: the state of the one before, None when the job starts for the first time."""

    @abstractmethod
    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[T_co, SplitT]:
        """A reader for one micro-batch."""

    @property
    @abstractmethod
    def split_serializer(self) -> Serializer[SplitT]:
        """Splits as JSON; ``DataclassSerializer`` serves most."""

    @property
    @abstractmethod
    def enumerator_state_serializer(self) -> Serializer[StateT]:
        """The enumerator's state as JSON."""


class SupportsSplitReassignmentOnRecovery:
    """Marks a ``Source`` whose enumerator, when a job starts again, gives out all splits anew (FLIP-537).

    Readers then report the splits that they held in their registration and begin with none. Without the mark each goes
    on with its own; those of a job that had another parallelism are dealt out.
    """
