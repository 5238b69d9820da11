"""Functions that take their records as columns; those that users write are in ``dsv2.arrow``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from dsv2.record_batch import RecordBatch
from dsv2.spi.kinds import EmitBatch
from dsv2.spi.process_function import ProcessFunction

__all__ = ("ColumnarFunction",)

IN_contra = TypeVar("IN_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)


class ColumnarFunction(ProcessFunction, ABC, Generic[IN_contra, OUT_co]):
    """A function with one input and one output that is called with batches of records, on keyed streams as well.

    Its other callbacks are those of a ``OneInputStreamProcessFunction``; ``end_input`` gets the collector besides. All
    keys of the subtask are one partition.
    """

    @property
    @abstractmethod
    def record_types(self) -> Collection[type]:
        """The classes of its records, in and out."""

    @abstractmethod
    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        """Process the records of one channel, columnar or not. There is no current key, and no timestamp."""

    @abstractmethod
    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        """What the function's collector has as ``collect_batch``; ``emit`` takes what it makes of a table."""
