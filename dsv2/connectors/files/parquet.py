"""Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dsv2.connectors.client_library import require_client_library
from dsv2.connectors.files.directory import SourceFile
from dsv2.connectors.files.format import FileFormat
from dsv2.connectors.files.parquet_files import batches_of, open_parquet
from dsv2.sources import SplitBatch

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ("parquet_rows",)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def parquet_rows(decode: Callable[[dict[str, Any]], T], *, columns: Sequence[str] | None = None) -> FileFormat[T]:
    """Read the rows of Parquet files. A file is divided by row groups.

    Args:
        decode: Creates the record from a row, a dict by column name.
        columns: The columns to read; None reads all.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """
    require_client_library("pyarrow", "files", "parquet_rows")
    return _Rows(decode, None if columns is None else list(columns))


class _Rows(FileFormat[T_co], Generic[T_co]):
    """A position is the total size in bytes of the row groups before it."""

    def __init__(self, decode: Callable[[dict[str, Any]], T_co], columns: list[str] | None) -> None:
        self._decode = decode
        self._columns = columns

    def end(self, file: SourceFile) -> int:
        with open_parquet(file) as opened:
            return _bounds(opened)[-1]

    def stop(self, file: SourceFile, position: int, end: int, limit: int) -> int:
        with open_parquet(file) as opened:
            after = [bound for bound in _bounds(opened) if bound > position]
        return max((bound for bound in after if bound <= position + limit), default=min(after, default=end))

    def decode_again(self, file: SourceFile, value: Any) -> SplitBatch[T_co]:
        return SplitBatch([value], self._decode)

    def read(self, file: SourceFile, start: int, stop: int) -> Iterator[SplitBatch[T_co]]:
        with open_parquet(file) as opened:
            done = 0
            for group, (begin, _) in enumerate(pairwise(_bounds(opened))):
                if not start <= begin < stop:
                    done += opened.metadata.row_group(group).num_rows
                    continue
                for batch in batches_of(opened, group, self._columns):
                    rows = batch.to_pylist()
                    numbers = range(done + 1, done + 1 + len(rows))
                    yield SplitBatch(rows, self._decode, offsets=lambda numbers=numbers: numbers)  # type: ignore[misc]
                    done += len(rows)


def _bounds(opened: pq.ParquetFile) -> list[int]:
    """The positions where row groups begin, and the one where the last group ends."""
    metadata = opened.metadata
    sizes = (max(1, metadata.row_group(group).total_byte_size) for group in range(metadata.num_row_groups))
    return list(accumulate(sizes, initial=0))
