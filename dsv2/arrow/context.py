"""The collector and the contexts of functions on tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from dsv2.arrow.keyed.state import ArrowKeyedState
from dsv2.arrow.keyed.timers import ArrowTimers
from dsv2.model.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.state import ValueStateDeclaration

T = TypeVar("T")
OUT_contra = TypeVar("OUT_contra", contravariant=True)


class ArrowCollector(Collector[OUT_contra], Protocol[OUT_contra]):
    """The collector of an ``ArrowProcessFunction``. It emits tables, and single records like any collector."""

    def collect_batch(self, batch: pa.Table, /, *, time_column: str | None = None) -> None:
        """Emit the rows of ``batch`` in order.

        Args:
            batch: A table with the columns of the record class. As for ``records_of``.
            time_column: The integer column that contains the timestamps of the records, in ms. By default, records
                have no timestamps.

        Raises:
            SchemaError: The table does not match the record class, or has no such time column.
        """


class ArrowStates(Protocol):
    """The states and timers of all keys of the subtask, as columns. They require a keyed stream."""

    def keyed_state(self, declaration: ValueStateDeclaration[T, Any], /) -> ArrowKeyedState[T]:
        """The state of all keys. ``declaration`` is a value state of a class with columns.

        Raises:
            UndeclaredStateError: The function does not return ``declaration`` from ``uses_states``.
        """

    @property
    def event_timers(self) -> ArrowTimers:
        """Timers in event time, for ``ArrowEventTimeProcessFunction.on_event_timers``."""

    @property
    def processing_timers(self) -> ArrowTimers:
        """Timers in processing time, for ``ArrowProcessFunction.on_processing_timers``."""


class ArrowContext(PartitionedContext[OUT_contra], ArrowStates, Protocol[OUT_contra]):
    """The context of ``process_batch`` and of timers."""


class ArrowNonPartitionedContext(NonPartitionedContext[OUT_contra], ArrowStates, Protocol[OUT_contra]):
    """The context of all other callbacks. All keys of the subtask form one partition, so it offers the same."""

    def apply_to_all_partitions(
        self, function: Callable[[ArrowCollector[OUT_contra], ArrowContext[OUT_contra]], None], /
    ) -> None:
        """Call ``function`` once, for all keys. ``ctx.keyed_state(...).tables()`` has their values."""
