"""Parquet files: their rows, for ``FilesSource``, and their batches.

They are opened and read without a thread of Arrow that refers to an object of Python: if such a thread still runs when
Python ends, it aborts the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.type_variables import T, T_co
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.files.directory import SourceFile
from dsv2.connectors.files.format import FileFormat, Unreadable, split_batch, unreadable_again
from dsv2.connectors.files.python_values import python_rows
from dsv2.connectors.files.record_decoder import RecordDecoder, raw_row
from dsv2.errors import JobError
from dsv2.sources import SplitBatch

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 1 << 23


class UnreadableFileError(JobError):
    """The content of a file cannot be read, although its bytes can."""


@contextmanager
def open_parquet(file: SourceFile) -> Iterator[pq.ParquetFile]:
    """Open ``file``. Raises ``UnreadableFileError``."""
    import pyarrow.parquet as pq

    with file.open_in_arrow() as source:
        with _content_errors(file):
            opened = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=file.may_be_read_ahead)
        with opened:
            yield opened


def batches_of(
    file: SourceFile, opened: pq.ParquetFile, group: int, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group. Raises ``UnreadableFileError``.

    Args:
        file: The file.
        opened: The same file.
        group: The index of the row group.
        columns: The columns to read; None reads all.
    """
    with _content_errors(file):
        batches = opened.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False)
    while True:
        with _content_errors(file):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def _content_errors(file: SourceFile) -> Iterator[None]:
    """Distinguish errors of the content from those of the file system, which Arrow raises as ``OSError`` too."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError):
            if error.errno is not None:
                raise
            with file.open() as source:  # raises the error of the file system
                while source.read(_BYTES_AT_ONCE):
                    pass
        raise UnreadableFileError(f"{file} is damaged or not a Parquet file: {error}") from error


def parquet_rows(decode: Callable[[dict[str, Any]], T], *, columns: Sequence[str] | None = None) -> FileFormat[T]:
    """Read the rows of Parquet files. A file is divided by row groups.

    The error policy of the source applies to files and row groups that cannot be read, and to values that Python does
    not have, such as a date after the year 9999.

    Args:
        decode: Creates the record from a row, a dict by column name. Maps are dicts.
        columns: The columns to read; None reads all. A file without one of them fails the job.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """
    require_client_library("pyarrow", "files", "parquet_rows")
    return _ParquetFormat(decode, None if columns is None else list(columns))


def parquet_records(kind: type[T]) -> FileFormat[T]:
    """Read the rows of Parquet files as columns of records, without Python objects.

    The columns of the fields are read. They are cast only if each value stays the same. The error policy of the source
    applies as for ``parquet_rows``, and to rows that do not fit the class.

    Args:
        kind: The class of the records, a NamedTuple class or dataclass whose fields have column types.

    Raises:
        ConfigurationError: pyarrow is not installed.
        SchemaError: The class has no columns.
    """
    require_client_library("pyarrow", "files", "parquet_records")
    return _RecordFormat(kind, import_module("dsv2.arrow").schema_of(kind).names)


class _ParquetFormat(FileFormat[T_co], Generic[T_co]):
    """A position is the total size in bytes of the row groups before it."""

    def __init__(self, decode: Callable[[dict[str, Any]], T_co], columns: list[str] | None) -> None:
        self._decode = decode
        self._columns = columns

    @property
    def why_rows(self) -> str | None:
        return "it decodes rows one by one. Use parquet_records"

    def end(self, file: SourceFile) -> int:
        try:
            with open_parquet(file) as opened:
                self._check(file, opened.schema_arrow.names)
                return _bounds(opened)[-1]
        except UnreadableFileError:
            return 1  # ``read`` reports it

    def stop(self, file: SourceFile, position: int, end: int, limit: int) -> int:
        try:
            with open_parquet(file) as opened:
                after = [bound for bound in _bounds(opened) if bound > position]
        except UnreadableFileError:
            return end
        return max((bound for bound in after if bound <= position + limit), default=min(after, default=end))

    def decode_again(self, file: SourceFile, value: Any) -> SplitBatch[T_co]:
        return unreadable_again(value) if isinstance(value, str) else SplitBatch([value], self._decode)

    def read(self, file: SourceFile, start: int, stop: int) -> Iterator[SplitBatch[T_co]]:
        try:
            with open_parquet(file) as opened:
                done = 0
                for group, (begin, _) in enumerate(pairwise(_bounds(opened))):
                    size = opened.metadata.row_group(group).num_rows
                    if start <= begin < stop:
                        yield from self._group(file, opened, group, range(done + 1, done + 1 + size))
                    done += size
        except UnreadableFileError as error:
            yield split_batch([Unreadable(str(file), str(error))], self._decode, [0])

    def _check(self, file: SourceFile, names: Sequence[str]) -> None:
        """Raise ``UnreadableFileError`` or ``JobError`` if the columns of a file cannot be those of rows."""
        if len(set(names)) < len(names):
            raise UnreadableFileError(f"{file} has two columns with the same name: {', '.join(names)}")
        known = {*names, *(column for column in self._columns or () if column.partition(".")[0] in names)}
        if unknown := [column for column in self._columns or () if column not in known]:
            raise JobError(f"The columns {unknown!r} are to be read, but {file} has the columns {', '.join(names)}.")

    def _group(
        self, file: SourceFile, opened: pq.ParquetFile, group: int, numbers: range
    ) -> Iterator[SplitBatch[T_co]]:
        """Yield the rows of a row group, which have ``numbers``."""
        self._check(file, opened.schema_arrow.names)
        done = 0
        try:
            for batch in batches_of(file, opened, group, self._columns):
                own = numbers[done : done + len(batch)]
                yield self._records(batch, own)
                done += len(batch)
        except UnreadableFileError as error:
            rest = numbers[done:]
            reason = f"rows {rest.start} to {rest.stop - 1} cannot be read: {error}"
            yield split_batch([Unreadable(str(file), reason)], self._decode, rest[:1])

    def _records(self, batch: pa.RecordBatch, numbers: range) -> SplitBatch[T_co]:
        return split_batch(_rows(batch, numbers), self._decode, numbers)


class _RecordFormat(_ParquetFormat[T], Generic[T]):
    def __init__(self, kind: type[T], columns: list[str]) -> None:
        self._decoder = RecordDecoder(kind)
        super().__init__(self._decoder.of_row, columns)
        self.record_type = kind

    @property
    def why_rows(self) -> str | None:
        return ""

    def _records(self, batch: pa.RecordBatch, numbers: range) -> SplitBatch[T]:
        return self._decoder.batch(batch, numbers, lambda: numbers)


def _rows(batch: pa.RecordBatch, numbers: range) -> list[dict[str, Any] | Unreadable]:
    try:
        return [*python_rows(batch)]
    except (OverflowError, ValueError):
        return [raw_row(batch.slice(index, 1), number) for index, number in enumerate(numbers)]


def _bounds(opened: pq.ParquetFile) -> list[int]:
    """The positions where row groups begin, and the one where the last group ends."""
    metadata = opened.metadata
    sizes = (max(1, metadata.row_group(group).total_byte_size) for group in range(metadata.num_row_groups))
    return list(accumulate(sizes, initial=0))
