"""Kinds of functions that runtimes treat in their own way; they are mixed in to one of the four kinds of functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from dsv2.context import WatermarkManager
from dsv2.record_batch import RecordBatch
from dsv2.spi.process_function import ProcessFunction
from dsv2.state import StateDeclaration

__all__ = (
    "BatchFunction",
    "EmitBatch",
    "KeyedBatchFunction",
    "PaneFunction",
    "TickingFunction",
    "WrappingFunction",
)

EmitBatch: TypeAlias = Callable[[RecordBatch[Any]], None]
"""Emits the records of a batch, in order."""


class TickingFunction(ProcessFunction, ABC):
    """A function of any kind, keyed or not, that acts as time passes; for extensions such as watermark generators."""

    def dsv2_uses_processing_timers(self) -> bool:
        return True

    @abstractmethod
    def tick(self, now_ms: int, watermarks: WatermarkManager) -> None:
        """Called at the end of each micro-batch, and of those without records, once ``next_tick`` has come."""

    @abstractmethod
    def next_tick(self) -> int | None:
        """When ``tick`` is to be called next, in ms by the wall clock; None: not until there are records."""


class WrappingFunction(ProcessFunction, ABC):
    """A function that runs another one, which the user wrote; for extensions. Its own fields are not kept."""

    kept_fields: Collection[str] = ()
    """The names of those that are."""

    @property
    @abstractmethod
    def wrapped(self) -> object:
        """The function that it runs: its fields are kept."""

    @property
    def written_by_user(self) -> Collection[object]:
        """What records and state may be of: the classes in the modules of these objects."""
        return (self.wrapped,)

    @property
    @abstractmethod
    def state_layout(self) -> str:
        """What the state consists of, in words. A restart with a program that says otherwise is refused."""

    def further_states(self) -> Collection[StateDeclaration]:
        """States besides ``uses_states`` that the extension keeps itself; the runtime only has to know of them."""
        return ()


class BatchFunction(ProcessFunction, ABC):
    """A one-input function that takes the records of one channel in batches: for built-in functions."""

    @property
    def takes_batches(self) -> bool:
        """Whether it is called with batches: not if a subclass overrides only ``process_record``."""
        names = ("process_record", "process_record_batch")
        owners = [next(k for k in type(self).__mro__ if name in vars(k)) for name in names]
        return owners[0] is owners[1]

    @property
    def keeps_nothing(self) -> bool:
        """Whether it keeps nothing from one batch to the next: then it may run wherever single records are read."""
        return False

    @property
    def keeps_within_portions(self) -> bool:
        """Whether it may start afresh with each portion of records that a source subtask reads.

        Then it runs where the source reads, with ``end_portion`` at the end of each.
        """
        return False

    def end_portion(self, watermarks: WatermarkManager) -> None:
        """All records of a portion have been processed."""

    @abstractmethod
    def process_record_batch(self, batch: RecordBatch[Any], emit: EmitBatch) -> None:
        """Process the records of ``batch``. Never called for keyed functions.

        Raises ``FailedRecordError`` from what user code raised.
        """


class KeyedBatchFunction(ProcessFunction, ABC):
    """A function that has a short way for most of its records if they have timestamps; for extensions.

    Where it is not on a keyed stream it is called as others are.
    """

    @abstractmethod
    def process_keyed_batch(
        self,
        input_index: int,
        batch: RecordBatch[Any],
        select: Callable[[Any], Any],
        process_one: Callable[[Any, int | None], None],
    ) -> None:
        """Process ``batch`` of an input; ``process_one(record, timestamp)`` goes the usual way.

        ``select`` returns a record's key. There is no current key, except in ``process_one``. Raises
        ``FailedRecordError`` from what user code raised.
        """


class PaneFunction(ProcessFunction, ABC):
    """A keyed function that keeps what many keys have in one window in a pane of the subtask; for extensions."""

    @abstractmethod
    def on_pane_due(self, slot: int, *outputs_and_context: Any) -> None:
        """The deadline of the pane ``slot`` has come: put it off, or drop the pane. Called before timers of that time.

        No key is in hand; the function puts one into the state manager's ``key`` before it calls user code.
        """
