"""What all process functions share (Flink ``ProcessFunction``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from dsv2.context import WatermarkManager
from dsv2.record_batch import RecordBatch
from dsv2.state import StateDeclaration
from dsv2.watermark import WatermarkDeclaration

__all__ = (
    "BatchFunction",
    "EmitBatch",
    "FailedCallbackError",
    "FailedRecordError",
    "KeyedBatchFunction",
    "PaneFunction",
    "Position",
    "ProcessFunction",
    "TickingFunction",
    "WrappingFunction",
    "no_output_until_end_of_input",
)

F = TypeVar("F", bound="type[ProcessFunction]")

EmitBatch: TypeAlias = Callable[[RecordBatch[Any]], None]
"""Emits the records of a batch, in order."""

_AT_END = "_emits_only_at_end"


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a pipeline a function stands.

    ``keyed``: its partitions are keys. ``parallel``: not on a global stream. ``key_preserving``: called with key
    selectors for its outputs.
    """

    keyed: bool
    parallel: bool
    key_preserving: bool


class ProcessFunction:
    """Base of the four kinds of functions; subclass one of those.

    Instance fields are part of the checkpoint: a field that changed since the function was built is kept
    with the subtask's state and is there again in the next micro-batch and after a restart. Fields that
    never change follow the program. Define ``__getstate__`` and ``__setstate__`` to decide for yourself.
    """

    remember_keys = True
    """Whether ``apply_to_all_partitions`` visits every key that was ever seen, or only those that have state or timers.

    False for functions over keys without end: what is remembered stays in the state for ever.
    """

    has_event_time = False
    """Whether the function acts as event time goes on, which may be the wall clock; for extensions."""

    partition_by_constant = False
    """Whether a function on a stream that is not keyed runs as if all its records had one key; for extensions."""

    @property
    def emits_only_at_end(self) -> bool:
        """Whether the class is marked with ``no_output_until_end_of_input``."""
        return _AT_END in vars(type(self))

    def check_position(self, position: Position) -> None:
        """Raise ``PlanError`` if the function cannot run there. Called once, while the plan is built."""

    def uses_processing_timers(self) -> bool:
        """Whether the job has to go on when no records come. Asked once, while the plan is built."""
        owner = next((kind for kind in type(self).__mro__ if "on_processing_timer" in vars(kind)), ProcessFunction)
        return not owner.__module__.startswith("dsv2.functions")

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        """The watermarks that this function brings into the job; read once, while the plan is built."""
        return ()

    def uses_states(self) -> Collection[StateDeclaration]:
        """The states that this function asks for; read while the plan is built, and by each subtask.

        A redistribution mode that the stream does not have raises ``IllegalRedistributionModeError`` then.
        """
        return ()

    def close(self) -> None:
        """Release what ``open`` took. Called once, after the last input ended or after a callback failed.

        Nothing can be emitted here. A streaming job that is stopped goes on later: it does not close.
        """


class TickingFunction(ProcessFunction, ABC):
    """A function of any kind, keyed or not, that acts as time passes; for extensions such as watermark generators."""

    def uses_processing_timers(self) -> bool:
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


class FailedCallbackError(Exception):
    """Raised by extensions, from what ``callback`` of the user's function raised."""

    def __init__(self, callback: str) -> None:
        super().__init__(callback)
        self.callback = callback


class FailedRecordError(Exception):
    """Raised by functions that take batches and by extensions, from what user code raised on ``record``."""

    def __init__(self, record: object) -> None:
        super().__init__(record)
        self.record = record


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


def no_output_until_end_of_input(function_class: F) -> F:
    """Class decorator: the function emits nothing before its input has ended (FLIP-466 ``NoOutputUntilEndOfInput``).

    Emitting earlier is an error that names the function. Subclasses do not inherit it.
    """
    setattr(function_class, _AT_END, True)
    return function_class
