"""Sources whose records can be read by index: collections and generators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import check_at_least_one, check_whole_number, is_number
from dsv2.errors import ConfigurationError
from dsv2.sources.base import BaseSource


@dataclass(frozen=True, slots=True)
class Halt:
    """A halt of the source.

    Attributes:
        until_ms: The time of the job's clock at which reading continues, in ms. None: not in this run.
    """

    until_ms: int | None


class ReadSchedule(ABC):
    """The halts of an indexed source in one run of a job. The runtime calls it between micro-batches.

    A position is the index of the next record, or -1 before the first read.
    """

    ends_run = False
    """True if one of the halts lasts until the end of the run."""

    @abstractmethod
    def begin(self, position: int) -> None:
        """Begin the run at ``position``. Only the first call has an effect."""

    @abstractmethod
    def next_halt(self, position: int) -> int | None:
        """Return the first index after ``position`` at which a micro-batch must end; None if there is none."""

    @abstractmethod
    def halt(self, position: int, now_ms: int) -> Halt | None:
        """Return the current halt.

        Args:
            position: The position of the source.
            now_ms: The time of the job's clock, in ms.

        Returns:
            The halt at ``position``; None if there is none or it is over.

        Raises:
            JobError: The schedule makes the job fail here.
        """


class IndexedSource(BaseSource[T_co], Generic[T_co]):
    """A source whose records can be read by index. The record at an index must always be the same.

    The record at index ``i`` belongs to source subtask ``i % parallelism``, independently of the micro-batches.

    Args:
        count: The number of records. None: the source is unbounded.
        records_per_batch: The maximum number of records in a micro-batch. None: no limit.
        records_per_second: The maximum rate over all subtasks. None: no limit.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    dsv2_refuses_error_policy = "it decodes nothing. Check the records in a function."

    def __init__(self, *, count: int | None, records_per_batch: int | None, records_per_second: float | None) -> None:
        if count is not None:
            check_whole_number(count, "count", at_least=0)
        check_at_least_one(records_per_batch=records_per_batch)
        if records_per_second is not None and not (is_number(records_per_second) and records_per_second > 0):
            raise ConfigurationError(f"records_per_second must be a number greater than 0, not {records_per_second!r}.")
        self.count = count
        self.records_per_batch = records_per_batch
        self.records_per_second = records_per_second

    @property
    def bounded(self) -> bool:
        return self.count is not None

    def schedule(self, described: str) -> ReadSchedule | None:
        """Return the halts of one run of a job; None if there are none.

        Args:
            described: The description of the source for error messages.
        """
        return None

    @abstractmethod
    def read(self, indices: range) -> list[T_co]:
        """Return the records at ``indices``, in order. Called in tasks; must depend on the indices only."""

    def dsv2_read_columns(self, indices: range) -> Sequence[T_co]:
        """As ``read``, as columns if the source has them. Called if functions or sinks on tables receive them."""
        return self.read(indices)


class CollectionSource(IndexedSource[T_co], Generic[T_co]):
    """Reads the elements of a collection, in order if its parallelism is 1. Otherwise its subtasks take turns.

    Unlike in Flink, the collection may be empty.

    Args:
        items: The records. They must not contain None.
        records_per_batch: The maximum number of records in a micro-batch. None: no limit.

    Raises:
        ConfigurationError: An argument is invalid.

    Source: Flink ``FromDataSource``.
    """

    def __init__(self, items: Collection[T_co], *, records_per_batch: int | None = None) -> None:
        instead = _instead_of(items)
        if instead is not None or not isinstance(items, Iterable):
            found = type(items).__name__ if instead else repr(items)
            raise ConfigurationError(
                f"The items of a collection source must be a sequence of records, not {found}. {instead or ''}".rstrip()
            )
        self.items: Sequence[T_co] = list(items)
        if any(item is None for item in self.items):
            raise ConfigurationError("The items of a collection source must not contain None: None is not a record.")
        super().__init__(count=len(self.items), records_per_batch=records_per_batch, records_per_second=None)

    def read(self, indices: range) -> list[T_co]:
        return list(self.items[indices.start : indices.stop : indices.step])


class DataGeneratorSource(IndexedSource[T_co], Generic[T_co]):
    """Generates the record ``generator(index)`` for each index 0, 1, 2, …

    The records are in order if its parallelism is 1. Otherwise its subtasks take turns.

    Args:
        generator: Creates the record of an index. It must always return the same record for the same index, so that a
            repeated micro-batch repeats its records.
        count: The number of records. None: the source is unbounded.
        records_per_second: The maximum rate over all subtasks. None: no limit.
        records_per_batch: The maximum number of records in a micro-batch. None: no limit.

    Raises:
        ConfigurationError: An argument is invalid.

    Source: Flink ``DataGeneratorSource``.
    """

    def __init__(
        self,
        generator: Callable[[int], T_co],
        *,
        count: int | None = None,
        records_per_second: float | None = None,
        records_per_batch: int | None = None,
    ) -> None:
        if not callable(generator):
            raise ConfigurationError(f"The generator must be a function of the index of a record, not {generator!r}.")
        self.generator = generator
        super().__init__(count=count, records_per_batch=records_per_batch, records_per_second=records_per_second)

    def read(self, indices: range) -> list[T_co]:
        return list(map(self.generator, indices))


def _instead_of(items: object) -> str | None:
    """Return advice for a value that is no sequence of records; None if it may be one."""
    package, name = type(items).__module__.partition(".")[0], type(items).__name__
    tables = ("DataFrame", "Table", "RecordBatch")
    if package == "polars" or (package in ("pandas", "pyarrow", "pyspark") and name in tables):
        return "Call from_dataframe(dataframe, record_type)."
    if package in ("pandas", "pyarrow"):
        return "Pass its values: items.tolist()."
    match items:
        case str() | bytes() | bytearray():
            return f"Its elements are single characters. Pass [{items!r:.40}], or a list of lines."
        case Mapping():
            return "Pass list(items.items()), list(items.values()) or list(items)."
        case set() | frozenset():
            return "Its order differs between processes. Pass sorted(items)."
        case tuple() if hasattr(items, "_fields"):
            return "It is a single record. Pass a list of records."
    return None
