"""Functions that take their records as columns; those that users write are in ``dsv2.arrow``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

from dsv2.functions.base import CollectAll, ProcessFunction

__all__ = ("ColumnarFunction",)

IN_contra = TypeVar("IN_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)


class ColumnarFunction(ProcessFunction, ABC, Generic[IN_contra, OUT_co]):
    """A function with one input and one output that is called with runs of records, on keyed streams as well.

    Its other callbacks are those of a ``OneInputStreamProcessFunction``; ``end_input`` gets the collector besides. All
    keys of the subtask are one partition.
    """

    @property
    @abstractmethod
    def record_types(self) -> Collection[type]:
        """The classes of its records, in and out."""

    @abstractmethod
    def process_columns(self, records: Sequence[Any], output: Any, ctx: Any) -> None:
        """Process ``records`` of one channel, columnar or not. No key is in hand, and no timestamp."""

    @abstractmethod
    def collect_columns(self, collect_all: CollectAll) -> Callable[..., None]:
        """What the function's collector has as ``collect_batch``; ``collect_all`` takes what it makes of a batch."""
