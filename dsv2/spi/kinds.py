"""Mixins for the four function kinds that change how a runtime calls the function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dsv2.model.context import WatermarkManager
from dsv2.model.record_batch import RecordBatch
from dsv2.spi.process_function import ProcessFunction
from dsv2.state import StateDeclaration

EmitBatch: TypeAlias = Callable[[RecordBatch[Any]], None]
"""Emits the records of a batch, in order."""
ProcessOne: TypeAlias = Callable[[Any, int | None], None]
"""Processes ``(record, timestamp)`` on the regular path."""


class KeptAggregates(NamedTuple):
    """The stored form of declared aggregates.

    Attributes:
        fields: What each field of the results holds. A restart fails if a field holds something else.
        kinds: The classes of the values that are kept, unless a declared state has them.
    """

    fields: Mapping[str, str]
    kinds: Collection[type]


class KeepsAggregates(ABC):
    """A function, or a part of a ``WrappingFunction``, that keeps declared aggregates."""

    @property
    @abstractmethod
    def kept_aggregates(self) -> KeptAggregates:
        """Return the stored form of its aggregates."""

    @abstractmethod
    def prepare_records(self, records: Sequence[Any]) -> None:
        """Called with the records of a batch before they are processed one by one, and with none after it."""


class TickingFunction(ProcessFunction, ABC):
    """A function of any kind, keyed or not, that acts as time passes, such as a watermark generator."""

    @abstractmethod
    def dsv2_uses_processing_timers(self) -> bool:
        """Return whether ``tick`` must be called even without new records."""

    @abstractmethod
    def tick(self, now_ms: int, watermarks: WatermarkManager) -> None:
        """Called at the end of each micro-batch, even an empty one, once the time of ``next_tick`` has passed.

        Args:
            now_ms: The wall clock, in ms since the epoch.
            watermarks: Emits watermarks downstream.
        """

    @abstractmethod
    def next_tick(self) -> int | None:
        """Return the wall-clock time of the next ``tick`` in ms; None if it is not needed before the next record."""


class WrappingFunction(ProcessFunction, ABC):
    """A function of an extension that runs a user function. Its own fields are not checkpointed."""

    kept_fields: Collection[str] = ()
    """The names of its own fields that are checkpointed nevertheless."""

    @property
    @abstractmethod
    def wrapped(self) -> object:
        """The user function. Its fields are checkpointed."""

    @property
    @abstractmethod
    def written_by_user(self) -> Collection[object]:
        """Objects whose modules define classes that records and state may contain."""

    @property
    @abstractmethod
    def state_layout(self) -> str:
        """A description of the state's structure. A restart fails if the description has changed."""

    @property
    def contents(self) -> str:
        """The format of the records that it keeps, for readers of savepoints. Empty: declared states, or no records."""
        return ""

    def further_states(self) -> Collection[StateDeclaration]:
        """States in addition to ``uses_states`` that the extension stores itself; the runtime only validates them."""
        return ()


class BatchFunction(ProcessFunction, ABC):
    """A built-in one-input function that processes the records of a channel in batches."""

    @property
    def takes_batches(self) -> bool:
        """True if it is called with batches. False if a subclass overrides only ``process_record``."""
        return comes_with(type(self), "process_record", "process_record_batch")

    @property
    def keeps_nothing(self) -> bool:
        """True if it is stateless between batches, so that it can run in the tasks that read the source."""
        return False

    passes_records = False
    """True if it emits the records that it receives, so that columnar ones stay columnar."""

    @property
    def keeps_within_portions(self) -> bool:
        """True if its state may be reset with each portion of records that a source subtask reads.

        If so, it runs in the task that reads, which calls ``end_portion`` at the end of each portion.
        """
        return False

    def end_portion(self, watermarks: WatermarkManager) -> None:
        """Called when all records of a portion have been processed."""

    @abstractmethod
    def process_record_batch(self, batch: RecordBatch[Any], emit: EmitBatch) -> None:
        """Process the records of ``batch``. Never called for keyed functions.

        Raises:
            FailedRecordError: User code failed; chained to its error.
        """


class KeyedBatchFunction(ProcessFunction, ABC):
    """A function of an extension with a fast path for most records that have timestamps.

    On a non-keyed stream it is called record by record, like other functions.
    """

    @abstractmethod
    def process_keyed_batch(
        self, input_index: int, batch: RecordBatch[Any], select: Callable[[Any], Any], process_one: ProcessOne
    ) -> None:
        """Process a batch. There is no current key, except within ``process_one``.

        Args:
            input_index: The input that the batch belongs to.
            batch: Records of one channel, with timestamps.
            select: Returns the key of a record.
            process_one: Processes ``(record, timestamp)`` on the regular path.

        Raises:
            FailedRecordError: User code failed; chained to its error.
        """


class SkippableTimersFunction(ProcessFunction, ABC):
    """A function of an extension whose timers stand for something that must be dropped with a timer."""

    @abstractmethod
    def skip_timer(self, timestamp: int, *, by_event: bool) -> None:
        """Called for the current key after the callback of a timer has failed and been undone."""


class PaneFunction(ProcessFunction, ABC):
    """A keyed function of an extension that stores the values of all keys in a window in a pane of the subtask."""

    @abstractmethod
    def on_pane_due(self, slot: int, *outputs_and_context: Any) -> None:
        """Called when the pane ``slot`` is due, before the timers of that time: postpone its deadline or drop it.

        There is no current key. The function sets the state manager's ``key`` before it calls user code.
        """


def comes_with(kind: type, single: str, several: str) -> bool:
    """Return whether ``several`` of ``kind`` may be called instead of ``single``, for several records at once.

    It must not be called if a subclass has overridden only ``single``.
    """
    definers = [
        next(place for place, base in enumerate(kind.__mro__) if name in vars(base)) for name in (single, several)
    ]
    return definers[1] <= definers[0]
