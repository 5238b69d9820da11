"""Opens and reads Parquet files without a thread of Arrow that refers to an object of Python.

If such a thread still runs when Python ends, it aborts the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dsv2.connectors.files.directory import SourceFile
from dsv2.errors import JobError

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
