"""Reads the output of a ``FileSink`` in whole micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from dsv2.base.folders import ReadableFolder
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.files.directory import Directory, FileLocation
from dsv2.connectors.files.sink_tables import read_part, table_schema
from dsv2.errors import ConfigurationError, JobError
from dsv2.file_log import FilePart, parts_between, read_log
from dsv2.file_log.description import Description

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs


_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The records that a ``FileSink`` has written in a range of micro-batches.

    Attributes:
        path: The folder of the sink.
        after: The micro-batch before the first one; -1 if the range begins with the first.
        position: The last micro-batch. Pass it to ``read_files`` as ``after`` to read what was written since.
        filesystem: The file system that was given to ``read_files``.
    """

    path: str
    after: int
    position: int
    filesystem: pafs.FileSystem | None = None

    @property
    def files(self) -> list[str]:
        """The paths of the files, for other readers. They exist for at least the ``retention`` of the sink.

        Raises:
            ConfigurationError: A file also has records of micro-batches that are not in the range.
        """
        folder = self._directory()
        parts = list(self._parts(folder))
        if any(part.start > 0 or part.stop is not None for part in parts):
            raise ConfigurationError(
                f"Files in {self.path} also have records of micro-batches up to {self.after}, or after "
                f"{self.position}. Use batches() or to_arrow(), or read all files, without after."
            )
        return [folder.place(part.file.path) for part in parts]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, some thousands at a time.

        They are ordered by partition, then by micro-batch. Merging of files does not change the order.

        Raises:
            CorruptDataError: The log of the sink is damaged.
            JobError: A file was removed.
        """
        done = 0
        for _ in range(_ATTEMPTS):
            skipped = done
            try:
                for batch in self._batches_now():
                    rows = batch.slice(min(skipped, len(batch)))
                    skipped -= len(batch) - len(rows)
                    if len(rows):
                        done += len(rows)
                        yield rows
            except FileNotFoundError as error:  # merged since the log was read, and removed
                missing = error.filename
            else:
                return
        raise JobError(f"{missing} was removed, but it is part of the output in {self.path}. Restore it from a backup.")

    def to_arrow(self) -> pa.Table:
        """Return the records as a table. Raises as ``batches`` does."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), table_schema(_describe(self._directory()).schemas[-1]))

    def _directory(self) -> Directory:
        return FileLocation(self.path, self.filesystem, "read_files").open()

    def _parts(self, folder: ReadableFolder) -> Iterator[FilePart]:
        return parts_between(folder, read_log(folder), self.after, self.position)

    def _batches_now(self) -> Iterator[pa.RecordBatch]:
        directory = self._directory()
        description = _describe(directory)
        schema = table_schema(description.schemas[-1])
        for part in self._parts(directory):
            for batch in read_part(directory, description, part):
                yield _with_schema(batch, schema)


def read_files(
    path: str | PathLike[str], *, after: int = -1, filesystem: pafs.FileSystem | None = None
) -> WrittenFiles:
    """Read the output of a ``FileSink`` as of now: all records of the micro-batches that were published, exactly once.

    A later call with ``after`` set to the ``position`` of the last result reads what was written since, although files
    may have been merged in the meantime.

    Args:
        path: The folder of the sink: a path, or a URI such as ``s3://bucket/folder``.
        after: The last micro-batch that was already read. -1 (default): none.
        filesystem: Arrow's file system that reads ``path``, which is then a path within it. None (default): the local
            disk, or the file system of the URI.

    Raises:
        ConfigurationError: The folder is not that of a sink, or has no micro-batch ``after``. Also if pyarrow is not
            installed.
        CorruptDataError: The log of the sink is damaged.
    """
    require_client_library("pyarrow", "files", "read_files")
    location = FileLocation(path, filesystem, "read_files")
    folder = location.open()
    _describe(folder)
    last = read_log(folder).last_batch
    if after > last:
        raise ConfigurationError(
            f"{folder.path} ends with micro-batch {last}, before position {after}: it was replaced by other output. "
            f"Read it from the beginning."
        )
    return WrittenFiles(location.path, after, last, filesystem)


def _describe(folder: ReadableFolder) -> Description:
    description = Description.read(folder)
    if description is None:
        raise ConfigurationError(f"{folder.path} is not the folder of a FileSink that has begun to write.")
    return description


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert records of an earlier schema: columns that it lacks are null, and other ones are dropped."""
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    known = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in known else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
