"""Writes to a ``FileSink``: the part that both runtimes share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.clock import Clock
from dsv2.base.folders import Folder
from dsv2.base.type_variables import T
from dsv2.connectors.files.table_files import check_folder_names
from dsv2.errors import Dsv2Error, JobError, SchemaError
from dsv2.file_log import Merger, Rolling, SinkFolder
from dsv2.file_log.description import Description
from dsv2.sinks import FileSink, Sink

if TYPE_CHECKING:
    from dsv2.connectors.files.record_writer import RecordWriter


_NEVER_MS = 1 << 62


class FileSinkWriter:
    """Publishes the micro-batches of one run, and merges small files. Its errors name the sink.

    A runtime writes the files of a micro-batch, which may be in another thread than the rest.
    """

    def __init__(self, sink: FileSink[Any], name: str, clock: Clock, run_id: str) -> None:
        """``name``: The sink, for errors."""
        self.sink = sink
        self._name = name
        self._clock = clock
        self._run_id = run_id
        self._schema = 0  # the index of the schema of the files
        self._folder: SinkFolder
        self._merger: Merger

    def open(self, folder: Folder, schema: dict[str, Any], merger: Merger, first_batch: int) -> None:
        """Begin to write with micro-batch ``first_batch``, and complete what an earlier run has committed."""
        sink, rolling = self.sink, None
        self._schema = Description.update(folder, sink.format.value, sink.partition_by, schema)
        self._merger = merger
        if sink.roll_bytes is not None:
            rolling = Rolling(_NEVER_MS if sink.roll_ms is None else sink.roll_ms, sink.roll_bytes)
        self._folder = SinkFolder(
            folder,
            self._clock,
            self._run_id,
            rolling=rolling,
            retention_ms=sink.retention_ms,
            suffix=sink.format.value,
        )
        self._folder.begin(first_batch)

    def publish(self) -> None:
        """Show readers the micro-batch that was written, which is now committed. Raises ``JobError``."""
        with self.named("cannot publish a micro-batch"):
            self._folder.publish()

    def is_due(self) -> bool:
        """Return True if it is time to merge small files."""
        due = self._folder.next_roll_ms()
        return due is not None and due <= self._clock.now_ms()

    def roll(self) -> None:
        """Merge small files. Raises ``JobError``."""
        with self.named("cannot merge small files"):
            self._folder.roll(self._merger)

    def finish(self) -> None:
        """End normally: merge small files, so that all readers see all records. Raises ``JobError``."""
        self.roll()
        with self.named("cannot complete its output"):
            self._folder.close()

    def named(self, what: str) -> AbstractContextManager[None]:
        """Name the sink in errors, and what it was doing."""
        return named(self._name, what)


@contextmanager
def named(sink: str, what: str) -> Iterator[None]:
    """Name ``sink`` in errors, and what it was doing."""
    try:
        yield
    except SchemaError:  # of records, which names the sink
        raise
    except Dsv2Error as error:
        raise type(error)(f"{sink} {what}: {error}") from error
    except Exception as error:
        raise JobError(f"{sink} {what}: {type(error).__qualname__}: {error}") from error


class SchemaCheck(Sink[T], Generic[T]):
    """Replaces a ``FileSink`` in the check before it: a record must fit the schema."""

    def __init__(self, writer: RecordWriter, partition_by: Sequence[str], name: str) -> None:
        self._writer = writer
        self._partition_by = partition_by
        self._name = name

    def check_record(self, record: T) -> None:
        check_folder_names(self._writer.write([record]), self._partition_by, self._name)
