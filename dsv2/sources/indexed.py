"""Sources whose records have an index: collections and generators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from dsv2.arguments import check_whole_number, is_number
from dsv2.errors import ConfigurationError
from dsv2.sources.base import BaseSource
from dsv2.sources.schedule import ReadSchedule

__all__ = ("CollectionSource", "DataGeneratorSource", "IndexedSource")

T_co = TypeVar("T_co", covariant=True)


class IndexedSource(BaseSource[T_co], Generic[T_co]):
    """A source whose records have an index: the one at ``i`` is the same whenever it is read.

    Record ``i`` belongs to source subtask ``i % parallelism``, however the input is cut into micro-batches.
    """

    def __init__(self, *, count: int | None, records_per_batch: int | None, records_per_second: float | None) -> None:
        if count is not None:
            check_whole_number(count, "count", at_least=0)
        if records_per_batch is not None:
            check_whole_number(records_per_batch, "records_per_batch")
        if records_per_second is not None and not (is_number(records_per_second) and records_per_second > 0):
            raise ConfigurationError(f"records_per_second must be a number greater than 0, not {records_per_second!r}.")
        self.count = count
        self.records_per_batch = records_per_batch
        self.records_per_second = records_per_second

    @property
    def bounded(self) -> bool:
        return self.count is not None

    def schedule(self, described: str) -> ReadSchedule | None:
        """Where reading halts in one run of a job; None if nowhere. ``described``: the source, for errors."""
        return None

    @abstractmethod
    def read(self, indices: range) -> list[T_co]:
        """The records at ``indices``, in that order. Called in the tasks; must depend on the indices alone."""


class CollectionSource(IndexedSource[T_co], Generic[T_co]):
    """The elements of a collection, in order (Flink ``FromDataSource``). May be empty, unlike Flink's."""

    def __init__(self, items: Collection[T_co], *, records_per_batch: int | None = None) -> None:
        self.items: Sequence[T_co] = list(items)
        if any(item is None for item in self.items):
            raise ConfigurationError("A collection source must not contain None: None is not a record.")
        super().__init__(count=len(self.items), records_per_batch=records_per_batch, records_per_second=None)

    def read(self, indices: range) -> list[T_co]:
        return list(self.items[indices.start : indices.stop : indices.step])


class DataGeneratorSource(IndexedSource[T_co], Generic[T_co]):
    """``generator(index)`` for index 0, 1, 2, … (Flink ``DataGeneratorSource``).

    ``count`` bounds it; ``records_per_second`` (over all subtasks) and ``records_per_batch`` hold it back.
    The generator must answer the same for the same index, so that a repeated micro-batch repeats its records.
    """

    def __init__(
        self,
        generator: Callable[[int], T_co],
        *,
        count: int | None = None,
        records_per_second: float | None = None,
        records_per_batch: int | None = None,
    ) -> None:
        self.generator = generator
        super().__init__(count=count, records_per_batch=records_per_batch, records_per_second=records_per_second)

    def read(self, indices: range) -> list[T_co]:
        return list(map(self.generator, indices))
