"""Opens and reads Parquet files without a thread of Arrow that refers to an object of Python.

If such a thread still runs when Python ends, it aborts the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dsv2.connectors.files.directory import SourceFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ("batches_of", "open_parquet")

_ROWS_AT_ONCE = 4096


@contextmanager
def open_parquet(file: SourceFile, *, int96_unit: str | None = None) -> Iterator[pq.ParquetFile]:
    """Open ``file``. ``int96_unit``: The unit of timestamps with 96 bits; None: that of Arrow."""
    import pyarrow.parquet as pq

    with (
        file.open_in_arrow() as source,
        pq.ParquetFile(source, coerce_int96_timestamp_unit=int96_unit, pre_buffer=file.may_be_read_ahead) as opened,
    ):
        yield opened


def batches_of(opened: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group. ``columns``: The columns to read; None reads all."""
    yield from opened.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False)
