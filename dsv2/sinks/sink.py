"""Where records go (Flink ``Sink``; the first kinds)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from os import PathLike, fspath
from typing import Generic, TypeVar

from dsv2.errors import ConfigurationError

__all__ = ("CollectSink", "FileSink", "ForeachBatchSink", "PrintSink", "Sink")

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(ABC, Generic[T_contra]):
    """Base of everything that ``to_sink`` takes."""


class CollectSink(Sink[T], Generic[T]):
    """Keeps every record in the driver's memory: ``results``, filled while the job runs.

    For tests and small results. Exactly once within one run of the program; a restarted program begins empty
    and receives what the job emits from then on.
    """

    def __init__(self) -> None:
        self._batches: dict[int, list[T]] = {}

    @property
    def results(self) -> list[T]:
        """All records received so far."""
        return [record for _, records in sorted(self._batches.items()) for record in records]

    def replace_batch(self, batch_id: int, records: list[T]) -> None:
        """Called by the runtime with all records of one micro-batch; a repeated batch replaces itself."""
        self._batches[batch_id] = records


class PrintSink(Sink[T], Generic[T]):
    """Prints every record on the driver's standard output, as ``prefix> record``. At least once."""

    def __init__(self, prefix: str = "", *, format: Callable[[T], str] = str) -> None:
        self.prefix = prefix
        self.format = format

    def lines(self, records: list[T]) -> list[str]:
        """The lines to print for ``records``."""
        head = f"{self.prefix}> " if self.prefix else ""
        return [f"{head}{self.format(record)}" for record in records]


class ForeachBatchSink(Sink[T], Generic[T]):
    """Calls ``function(records, batch_id)`` on the driver with the records of each micro-batch.

    At least once: after a crash the same ``batch_id`` may come again, with the same records; use it to drop repeats.
    """

    def __init__(self, function: Callable[[list[T], int], None]) -> None:
        self.function = function


class FileSink(Sink[T], Generic[T]):
    """Writes files of ``format`` ``"parquet"``, ``"json"`` or ``"csv"`` below ``path``, exactly once.

    Each micro-batch owns the folder ``batch_id=<n>``, which a repeated batch replaces whole, so no record is lost or
    doubled and any reader of partitioned folders can read ``path``. ``schema`` is a dataclass or NamedTuple class, or
    Spark's DDL string for tuples and dicts. A BATCH job writes ``batch_id=0``.
    """

    FORMATS = ("parquet", "json", "csv")

    def __init__(self, path: str | PathLike[str], *, format: str = "parquet", schema: type[T] | str) -> None:
        if format not in self.FORMATS:
            raise ConfigurationError(f"FileSink writes {', '.join(self.FORMATS)}; not {format!r}.")
        self.path = fspath(path)
        if not self.path:
            raise ConfigurationError("FileSink needs a path.")
        self.format = format
        self.schema: type[T] | str = schema
