"""CSV files."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import TextIOWrapper
from itertools import islice
from typing import Any, Generic

from dsv2.base.type_variables import T, T_co
from dsv2.connectors.files.compression import is_compressed, open_text, readable
from dsv2.connectors.files.directory import SourceFile
from dsv2.connectors.files.format import FileFormat, Unreadable, split_batch, unreadable_again
from dsv2.sources import SplitBatch

_ROWS_AT_ONCE = 4096
_ROWS_IN_CACHE = 128  # lists of values: few enough for the cache, and to start no garbage collection
_LONGEST_VALUE = 1 << 27


def csv_rows(decode: Callable[[dict[str, str]], T], *, delimiter: str = ",") -> FileFormat[T]:
    """Read the rows of CSV files in UTF-8 whose first line holds the column names.

    A value that contains the delimiter, a quote or a line break is in double quotes, and quotes in it are doubled.
    Lines end with LF, CR LF or CR, and empty ones are skipped. The error policy of the source applies to rows with
    another number of values or wrong quotes, and to bytes that are not UTF-8. A value may have 134,217,728 characters.

    A file is not divided between micro-batches, because a quoted value may contain line breaks.

    Args:
        decode: Creates the record from a row, a dict by column name.
        delimiter: The character between values.
    """
    return CsvFormat(decode, delimiter)


class CsvFormat(FileFormat[T_co], Generic[T_co]):
    def __init__(self, decode: Callable[[dict[str, str]], T_co], delimiter: str) -> None:
        self._decode = decode
        self._delimiter = delimiter

    @property
    def why_rows(self) -> str | None:
        return "it decodes rows one by one. Use csv_records"

    def decode_again(self, file: SourceFile, value: Any) -> SplitBatch[T_co]:
        return SplitBatch([value], self._decode) if isinstance(value, dict) else unreadable_again(value)

    def read(self, file: SourceFile, start: int, stop: int) -> Iterator[SplitBatch[T_co]]:
        rows = self._read(file)
        return readable(file, rows, self._decode) if is_compressed(file) else rows

    def _read(self, file: SourceFile) -> Iterator[SplitBatch[T_co]]:
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_VALUE))  # of the process
        done, numbers = 0, _Numbers(lambda: self._one_by_one(file))
        try:
            for values, first in self._at_once(file):
                count = len(values)
                yield self._batch(
                    values, partial(range, first, first + count) if first else partial(numbers.of, done, count)
                )
                done += count
        except (csv.Error, ValueError):
            rows = islice(self._one_by_one(file), done, None)
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                places, read = zip(*some, strict=True)
                yield self._batch_of_rows(read, places)

    def _batch(self, values: Any, offsets: Callable[[], Sequence[int]]) -> SplitBatch[T_co]:
        """Return a batch of what ``_at_once`` yields."""
        return SplitBatch(values, self._decode, offsets=offsets)

    def _batch_of_rows(self, rows: Sequence[Any], places: Sequence[int]) -> SplitBatch[T_co]:
        """Return a batch of rows by column name, and of what cannot be read."""
        return split_batch(rows, self._decode, places)

    def _at_once(self, file: SourceFile) -> Iterator[tuple[Any, int]]:
        """Yield rows, and the line of the first one; 0 if some have several lines, or there are empty lines.

        Raises:
            csv.Error, ValueError: Something cannot be read.
        """
        with TextIOWrapper(open_text(file), "utf-8-sig", errors="strict", newline="") as opened:
            reader = csv_reader(opened, self._delimiter)
            rows = filter(None, reader)  # without empty lines
            names: list[str] = next(rows, [])
            sizes = {len(names)} if len(set(names)) == len(names) else None
            while True:
                before, values = reader.line_num, list[dict[str, str]]()
                while len(values) < _ROWS_AT_ONCE and (some := list(islice(rows, _ROWS_IN_CACHE))):
                    if set(map(len, some)) != sizes:
                        raise ValueError
                    values += [dict(zip(names, row)) for row in some]  # noqa: B905 - faster, and of the same size
                if not values:
                    return
                yield values, before + 1 if reader.line_num - before == len(values) else 0

    def _one_by_one(self, file: SourceFile) -> Iterator[tuple[int, dict[str, str] | Unreadable]]:
        """Yield the rows, and what cannot be read, with the number of the first line."""
        with TextIOWrapper(open_text(file), "utf-8-sig", errors="surrogateescape", newline="") as opened:
            yield from _Parser(opened, self._delimiter).dicts()


class _Numbers:
    """The lines in which rows begin. Only errors and skipped records require them."""

    def __init__(self, parse: Callable[[], Iterator[tuple[int, object]]]) -> None:
        self._parse = parse
        self._rows = parse()
        self._done = 0

    def of(self, start: int, count: int) -> list[int]:
        """Return the lines of ``count`` rows, after ``start`` others."""
        if start < self._done:
            self._rows, self._done = self._parse(), 0
        skipped, self._done = start - self._done, start + count
        return [number for number, _ in islice(self._rows, skipped, skipped + count)]


def csv_reader(lines: Iterator[str], delimiter: str) -> Any:
    return csv.reader(
        lines,
        delimiter=delimiter,
        quotechar='"',
        doublequote=True,
        escapechar=None,
        skipinitialspace=False,
        quoting=csv.QUOTE_MINIMAL,
        strict=True,
    )


class _Parser:
    """Parses the lines of a file. Of a row that is not valid, it leaves out the first line, and reads on after it."""

    def __init__(self, lines: Iterator[str], delimiter: str) -> None:
        self._lines = lines
        self._again: deque[str] = deque()  # lines that follow one that is not valid
        self._row: list[str] = []  # the lines of the row
        self._rows = csv_reader(self, delimiter)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self._row.append(line)
        return line

    def dicts(self) -> Iterator[tuple[int, dict[str, str] | Unreadable]]:
        """Yield the rows by column name, with the number of their first line."""
        rows = self._parsed()
        number, names = next(rows, (0, []))
        if isinstance(names, list) and len(set(names)) < len(names):
            names = self._unreadable(f"line {number}: two columns have the same name")
        if isinstance(names, Unreadable):
            yield number, Unreadable(names.raw, f"{names.reason}, so the columns of the file are unknown")
            return
        for number, row in rows:
            if isinstance(row, Unreadable):
                yield number, row
            elif len(row) == len(names):
                yield number, dict(zip(names, row, strict=True))
            else:
                yield (
                    number,
                    self._unreadable(f"line {number} has {len(row)} values, but there are {len(names)} columns"),
                )

    def _parsed(self) -> Iterator[tuple[int, list[str] | Unreadable]]:
        number = 1
        while True:
            self._row = []
            try:
                row: list[str] | Unreadable = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                self._again.extendleft(reversed(self._row[1:]))
                del self._row[1:]
                row = self._unreadable(f"line {number}: {error}")
            if not all(map(str.isascii, self._row)) and isinstance(row, list):
                row = self._checked(row, number)
            if row:
                yield number, row
            number += len(self._row)

    def _checked(self, row: list[str], number: int) -> list[str] | Unreadable:
        for column, value in enumerate(row, 1):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                byte = ord(value[error.start]) - 0xDC00
                return self._unreadable(f"line {number}, column {column}: the byte {byte:#x} is not valid in UTF-8")
        return row

    def _unreadable(self, reason: str) -> Unreadable:
        return Unreadable("".join(self._row).encode(errors="surrogateescape"), reason)
