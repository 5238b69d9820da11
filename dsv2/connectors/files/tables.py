"""CSV files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from itertools import islice
from typing import Any, Generic, TypeVar

from dsv2.connectors.files.directory import SourceFile
from dsv2.connectors.files.format import FileFormat
from dsv2.sources import SplitBatch

__all__ = ("csv_rows",)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_ROWS_AT_ONCE = 4096


def csv_rows(decode: Callable[[dict[str, str]], T], *, delimiter: str = ",") -> FileFormat[T]:
    """Read the rows of CSV files in UTF-8 whose first line holds the column names.

    A file is not divided between micro-batches, because a quoted value may contain line breaks.

    Args:
        decode: Creates the record from a row, a dict by column name.
        delimiter: The character between values.
    """
    return _Rows(decode, delimiter)


class _Rows(FileFormat[T_co], Generic[T_co]):
    def __init__(self, decode: Callable[[dict[str, str]], T_co], delimiter: str) -> None:
        self._decode = decode
        self._delimiter = delimiter

    def decode_again(self, file: SourceFile, value: Any) -> SplitBatch[T_co]:
        return SplitBatch([value], self._decode)

    def read(self, file: SourceFile, start: int, stop: int) -> Iterator[SplitBatch[T_co]]:
        with TextIOWrapper(file.open(), "utf-8-sig", newline="") as opened:
            rows = csv.DictReader(opened, delimiter=self._delimiter, strict=True)
            done = 0
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                numbers = range(done + 1, done + 1 + len(some))
                yield SplitBatch(some, self._decode, offsets=lambda numbers=numbers: numbers)  # type: ignore[misc]
                done += len(some)
