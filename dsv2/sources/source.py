"""What a pipeline reads (Flink FLIP-27 ``Source``; the first, simple kinds)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from dsv2.errors import ConfigurationError
from dsv2.sources.interruption import Interruption
from dsv2.watermark import WatermarkDeclaration

__all__ = ("CollectionSource", "DataFrameLike", "DataFrameSource", "DataGeneratorSource", "IndexedSource", "Source")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(ABC, Generic[T_co]):
    """Base of everything that ``ExecutionEnvironment.from_source`` takes."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source ends by itself."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        """The watermarks that this source brings into the job."""
        return ()


class IndexedSource(Source[T_co], Generic[T_co]):
    """A source whose records have an index: the one at ``i`` is the same whenever it is read.

    Record ``i`` belongs to source subtask ``i % parallelism``, however the input is cut into micro-batches.
    """

    def __init__(self, *, count: int | None, records_per_batch: int | None, records_per_second: float | None) -> None:
        if count is not None and count < 0:
            raise ConfigurationError(f"count must be at least 0, not {count}.")
        if records_per_batch is not None and records_per_batch < 1:
            raise ConfigurationError(f"records_per_batch must be at least 1, not {records_per_batch}.")
        if records_per_second is not None and records_per_second <= 0:
            raise ConfigurationError(f"records_per_second must be greater than 0, not {records_per_second}.")
        self.count = count
        self.records_per_batch = records_per_batch
        self.records_per_second = records_per_second

    @property
    def bounded(self) -> bool:
        return self.count is not None

    @property
    def interruptions(self) -> Mapping[int, Interruption]:
        """By index of the record what happens to the job before it is read; for tests."""
        return {}

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


class DataFrameLike(Protocol):
    """The part of a Spark DataFrame that the plan looks at."""

    @property
    def isStreaming(self) -> bool:  # noqa: N802 - Spark's name
        """Whether the DataFrame is a streaming one."""


class DataFrameSource(Source[T], Generic[T]):
    """The rows of a Spark DataFrame, streaming or batch, as records of ``record_type``. Needs the Spark runtime.

    ``record_type`` is a dataclass, a NamedTuple class, ``dict`` or ``pyspark.sql.Row``; the fields of the first two
    are looked up by name among the columns. Rows with the same value in column ``split_by`` reach the same source
    subtask in the order of the DataFrame; without it that holds for the rows of one DataFrame partition.
    A batch DataFrame in a streaming job is fed at most ``records_per_batch`` rows a micro-batch.
    """

    def __init__(
        self,
        dataframe: DataFrameLike,
        record_type: type[T],
        *,
        split_by: str | None = None,
        records_per_batch: int | None = None,
    ) -> None:
        if not hasattr(dataframe, "isStreaming"):
            raise ConfigurationError(f"from_dataframe takes a Spark DataFrame, not {type(dataframe).__name__}.")
        if records_per_batch is not None and records_per_batch < 1:
            raise ConfigurationError(f"records_per_batch must be at least 1, not {records_per_batch}.")
        self.dataframe = dataframe
        self.record_type = record_type
        self.split_by = split_by
        self.records_per_batch = records_per_batch

    @property
    def bounded(self) -> bool:
        return not self.dataframe.isStreaming
