"""The base classes of sinks, and the basic sinks: collect, print, foreach batch and files (Flink ``Sink``)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from os import PathLike, fspath
from typing import Generic, Literal, TypeVar

from dsv2.arguments import as_choice
from dsv2.errors import ConfigurationError
from dsv2.record_batch import RecordBatch
from dsv2.sinks.info import SinkInfo
from dsv2.sinks.paths import contains, normalized

__all__ = ("CollectSink", "DriverSink", "FileSink", "FileSinkFormat", "ForeachBatchSink", "PrintSink", "Sink")

_USER_AND_PASSWORD = re.compile(r"(?<=://).*:.*(?=@)", re.DOTALL)
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(ABC, Generic[T_contra]):
    """Base class of all sinks.

    Attributes:
        exactly_once: Whether each record is written once, also across restarts and savepoints. Shown by savepoints.
        accepts_other_records: Whether a micro-batch that is repeated by a changed program may have other records with
            the same id: nothing relies on the id, or the sink notices it, as ``SinkInfo.is_written`` does. Otherwise
            a job does not continue with a changed program within a micro-batch that may have been written in part.
    """

    exactly_once: bool = False
    accepts_other_records: bool = False

    def check(self) -> None:
        """Called while the plan is built. Raises ``PlanError`` if no runtime can write the sink."""

    def conflict_with(self, other: Sink[T_contra]) -> str | None:
        """Why one job cannot write both this sink and ``other``, which may be the same object; None if it can.

        Called while the plan is built, for each pair of sinks.
        """
        return None

    def check_record(self, record: T_contra) -> None:
        """Raise an exception if ``record`` cannot be written.

        Called before a record reaches the sink, in a subtask, if the sink has an error policy. Sinks that do not
        override it cannot have one.
        """

    def describe_target(self) -> str:
        """Return where the sink writes, without secrets, to be shown by savepoints. Empty: not known."""
        return ""

    @property
    def record_types(self) -> Collection[type]:
        """The record classes that the sink declares."""
        return ()


class DriverSink(Sink[T], Generic[T]):
    """Base class of sinks that are written on the driver, for small results. An object writes one stream."""

    def conflict_with(self, other: Sink[T]) -> str | None:
        return "they are the same object, which cannot distinguish their micro-batches" if other is self else None

    def write(self, info: SinkInfo, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        """Called by the runtime for each micro-batch; calls ``write_batch``. Override it to use ``info``."""
        self.write_batch(batches, batch_id)

    @abstractmethod
    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        """Write one micro-batch. Called for each, in order, even if it has no records.

        A micro-batch that is retried after a failure has the same id and the same records. An exception fails the job.

        Args:
            batches: The records, a few thousand per batch, in order per channel.
            batch_id: The id of the micro-batch.
        """


class CollectSink(DriverSink[T], Generic[T]):
    """Collects all records in the driver's memory. ``results`` grows while the job runs.

    For tests and small results. Exactly once within one run of the program; a restarted program starts empty and
    collects the records emitted from then on. One object may collect several streams, and several jobs of a program:
    ``results`` has the records of all.
    """

    accepts_other_records = True

    def __init__(self) -> None:
        self._batches: dict[tuple[str, str], dict[int, list[T]]] = {}  # by job and uid

    @property
    def results(self) -> list[T]:
        """All records received so far, grouped by stream, in the order of micro-batches."""
        streams = [sorted(batches.items()) for batches in self._batches.values()]
        return [record for batches in streams for _, records in batches for record in records]

    def conflict_with(self, other: Sink[T]) -> str | None:
        return None

    def write(self, info: SinkInfo, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        self._batches.setdefault((info.job_id, info.uid), {})[batch_id] = _records_of(batches)

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        """Write a micro-batch without a job, for custom runtimes and tests."""
        self.write(SinkInfo("", "", 1), batches, batch_id)


class PrintSink(DriverSink[T], Generic[T]):
    """Prints every record to the driver's standard output as ``prefix> record``. At least once.

    Args:
        prefix: Printed before each record. Empty (default): only the record.
        format: Converts a record to text. Default: ``str``.
    """

    accepts_other_records = True

    def __init__(self, prefix: str = "", *, format: Callable[[T], str] = str) -> None:
        self.prefix = prefix
        self.format = format

    def conflict_with(self, other: Sink[T]) -> str | None:
        return None

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        head = f"{self.prefix}> " if self.prefix else ""
        for record in _records_of(batches):
            print(f"{head}{self.format(record)}")


class ForeachBatchSink(DriverSink[T], Generic[T]):
    """Calls ``function(records, batch_id)`` on the driver with the records of each micro-batch.

    At least once: after a failure the function may be called again with the same ``batch_id`` and the same records.
    Use ``batch_id`` to skip duplicates.
    """

    def __init__(self, function: Callable[[list[T], int], None]) -> None:
        self.function = function

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        self.function(_records_of(batches), batch_id)


class FileSinkFormat(Enum):
    """The format of the files of a ``FileSink``."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"


class FileSink(Sink[T], Generic[T]):
    """Writes files to a folder, exactly once.

    Each micro-batch writes to the folder ``batch_id=<n>`` below ``path``, and a retry replaces that folder. Any reader
    of partitioned folders can read ``path``. A BATCH job writes ``batch_id=0``. A folder belongs to one sink of one
    job.

    Args:
        path: The folder.
        format: ``"parquet"`` (default), ``"json"`` or ``"csv"``.
        schema: A dataclass or NamedTuple class, or Spark's DDL string for tuples and dicts.

    Raises:
        ConfigurationError: ``path`` is empty, or ``format`` is unknown.
    """

    exactly_once = True
    accepts_other_records = True

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        format: FileSinkFormat | Literal["parquet", "json", "csv"] = FileSinkFormat.PARQUET,
        schema: type[T] | str,
    ) -> None:
        self.format = as_choice(FileSinkFormat, format, "format")
        self.path = fspath(path)
        if not self.path:
            raise ConfigurationError("FileSink requires a path.")
        self.schema: type[T] | str = schema

    def conflict_with(self, other: Sink[T]) -> str | None:
        if not isinstance(other, FileSink):
            return None
        own, its = normalized(self.path), normalized(other.path)
        if own == its:
            return f"both write to {self.path}, where each would replace the micro-batches of the other"
        if contains(own, its) or contains(its, own):
            return f"{self.path} and {other.path} are nested, so readers of the outer folder would read both"
        return None

    def check_record(self, record: T) -> None:
        """Spark checks the schema instead, which it alone can interpret."""

    def describe_target(self) -> str:
        return _USER_AND_PASSWORD.sub("***", self.path)

    @property
    def record_types(self) -> Collection[type]:
        return (self.schema,) if isinstance(self.schema, type) else ()


def _records_of(batches: Sequence[RecordBatch[T]]) -> list[T]:
    return [record for batch in batches for record in batch.records]
