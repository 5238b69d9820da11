"""The base classes of sinks, and the sinks that are written on the driver: collect, print and foreach batch."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TextIO

from dsv2.base.printable import printable_lines
from dsv2.base.type_variables import T, T_contra
from dsv2.checks.arguments import check_at_least_one
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks.info import SinkInfo

MAX_RECORDS = 5_000_000
"""The default number of records in a micro-batch."""
MAX_BYTES = 512 << 20
"""The default number of bytes in a micro-batch."""


@dataclass(frozen=True, slots=True)
class DriverLimit:
    """The maximum that the driver receives for one sink in one micro-batch.

    Attributes:
        max_records: The number of records. None: any number.
        max_bytes: The size in bytes as the records are sent to the driver. None: any size.

    Raises:
        ConfigurationError: A number is not a whole number of at least 1.
    """

    max_records: int | None = MAX_RECORDS
    max_bytes: int | None = MAX_BYTES

    def __post_init__(self) -> None:
        check_at_least_one(max_records=self.max_records, max_bytes=self.max_bytes)


_PRINTING = threading.Lock()  # some Pythons lose what several threads print at a time (CPython issue 119506)


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
        """Return why one job cannot write both this sink and ``other``, which may be the same object, or None.

        Called while the plan is built, for each pair of sinks.
        """
        return None

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        """Called on the driver before a run writes its first micro-batch, which may be a retry.

        Check here that the external system is available. An exception fails the job.

        Args:
            info: The identity of the sink.
            batch_id: The first micro-batch of the run.
        """

    def check_record(self, record: T_contra) -> None:
        """Raise an exception if ``record`` cannot be written.

        Called before a record reaches the sink, in a subtask, if the sink has an error policy. Sinks that do not
        override it cannot have one.
        """

    def check_timestamp(self, timestamp: int) -> None:
        """Raise an exception if no record with ``timestamp`` (ms) can be written. Called before ``check_record``."""

    def describe_target(self) -> str:
        """Return where the sink writes, without secrets, to be shown by savepoints. Empty: not known."""
        return ""

    def __repr__(self) -> str:
        target, name = self.describe_target(), type(self).__name__
        return f"{name}({target})" if target else name

    @property
    def record_types(self) -> Collection[type]:
        """The record classes that the sink declares."""
        return ()

    @property
    def dsv2_tables_of(self) -> type | None:
        """The class that its records must have; None if they may be of any class."""
        return None

    @property
    def dsv2_why_rows(self) -> str:
        """The reason why a connector makes rows of columns, as the rest of a sentence. Empty: there is none."""
        return ""

    @property
    def dsv2_takes_columns(self) -> bool:
        """True if it writes columnar records without converting each to a row."""
        return self.dsv2_tables_of is not None

    @property
    def driver_limit(self) -> DriverLimit | None:
        """The maximum that the driver receives in a micro-batch; None if the sink is not written on the driver."""
        return None


class DriverSink(Sink[T], Generic[T]):
    """Base class of sinks that are written on the driver, for small results. An object writes one stream.

    Override ``driver_limit`` for another limit of what a micro-batch may contain.
    """

    dsv2_limit = DriverLimit()
    """The limit, for sinks with arguments for it."""

    @property
    def driver_limit(self) -> DriverLimit | None:
        return self.dsv2_limit

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

    Args:
        max_records: The most records that a micro-batch may contain. None: any number.
        max_bytes: The most bytes that a micro-batch may contain, as records are sent to the driver. None: any number.
            The local runtime does not count bytes.

    Raises:
        ConfigurationError: A limit is not a whole number of at least 1.
    """

    accepts_other_records = True

    def __init__(self, *, max_records: int | None = MAX_RECORDS, max_bytes: int | None = MAX_BYTES) -> None:
        self.dsv2_limit = DriverLimit(max_records, max_bytes)
        self._batches: dict[tuple[str, str], dict[int, list[T]]] = {}  # by job and uid

    @property
    def results(self) -> list[T]:
        """All records received so far, grouped by stream, in the order of micro-batches."""
        streams = [sorted(batches.items()) for batches in list(self._batches.values())]  # a job may write
        return [record for batches in streams for _, records in batches for record in records]

    def conflict_with(self, other: Sink[T]) -> str | None:
        return None

    def write(self, info: SinkInfo, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        self._batches.setdefault((info.job_id, info.uid), {})[batch_id] = _records_of(batches)

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        """Write a micro-batch without a job, for custom runtimes and tests."""
        self.write(SinkInfo("", "", 1), batches, batch_id)


class PrintSink(DriverSink[T], Generic[T]):
    """Prints every record to the driver's standard output as ``prefix> record``.

    At least once: a micro-batch that is repeated after a failure prints its lines again.

    Args:
        prefix: Printed before each record. Empty (default): only the record.
        format: Converts a record to text. Default: ``str``; if standard output is a terminal, characters that would
            control it are escaped.
        max_records: The most records that a micro-batch may contain. None: any number.
        max_bytes: The most bytes, likewise; see ``CollectSink``.

    Raises:
        ConfigurationError: A limit is not a whole number of at least 1.
    """

    accepts_other_records = True

    def __init__(
        self,
        prefix: str = "",
        *,
        format: Callable[[T], str] = str,
        max_records: int | None = MAX_RECORDS,
        max_bytes: int | None = MAX_BYTES,
    ) -> None:
        self.prefix = prefix
        self.format = format
        self.dsv2_limit = DriverLimit(max_records, max_bytes)

    def conflict_with(self, other: Sink[T]) -> str | None:
        return None

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        head = f"{self.prefix}> " if self.prefix else ""
        text = "".join([f"{head}{self.format(record)}\n" for record in _records_of(batches)])
        if self.format is str and _is_terminal(sys.stdout):
            text = printable_lines(text)
        with _PRINTING:
            sys.stdout.write(text)
            sys.stdout.flush()  # a killed process would lose lines of a micro-batch that is not repeated


class ForeachBatchSink(DriverSink[T], Generic[T]):
    """Calls ``function(records, batch_id)`` on the driver with the records of each micro-batch.

    At least once: after a failure the function may be called again with the same ``batch_id`` and the same records.
    Use ``batch_id`` to skip duplicates.

    Args:
        function: The function.
        max_records: The most records that a micro-batch may contain. None: any number.
        max_bytes: The most bytes, likewise; see ``CollectSink``.

    Raises:
        ConfigurationError: A limit is not a whole number of at least 1.
    """

    def __init__(
        self,
        function: Callable[[list[T], int], None],
        *,
        max_records: int | None = MAX_RECORDS,
        max_bytes: int | None = MAX_BYTES,
    ) -> None:
        self.function = function
        self.dsv2_limit = DriverLimit(max_records, max_bytes)

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        self.function(_records_of(batches), batch_id)


def _is_terminal(stream: TextIO) -> bool:
    return hasattr(stream, "isatty") and bool(stream.isatty())  # programs may replace sys.stdout by less than a file


def _records_of(batches: Sequence[RecordBatch[T]]) -> list[T]:
    return [record for batch in batches for record in batch.records]
