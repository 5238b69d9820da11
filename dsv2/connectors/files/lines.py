"""Files with one record per line. A file can be read in parts."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import filterfalse
from typing import Any, BinaryIO, Generic

from dsv2.base.type_variables import T, T_co
from dsv2.connectors.files.compression import is_compressed, open_text, readable
from dsv2.connectors.files.directory import SourceFile
from dsv2.connectors.files.format import FileFormat, unreadable_again
from dsv2.errors import JobError
from dsv2.model.record_batch import RecordBatch
from dsv2.sources import SplitBatch

_BYTES_AT_ONCE = 1 << 20
_ENDS = frozenset((b"\n", b"\r\n"))


def text_lines(decode: Callable[[str], T]) -> FileFormat[T]:
    """Read lines of UTF-8 text. Lines end with LF or CR LF. Empty lines are skipped, lines of blanks are not.

    Args:
        decode: Creates the record from a line without its line ending. ``str`` keeps the line.
    """

    def decode_one(line: bytes) -> T:
        return decode(line.decode().removesuffix("\n").removesuffix("\r"))

    def decode_all(lines: list[bytes]) -> list[T]:
        text = b"".join(lines).decode()
        texts = text.removesuffix("\n").split("\n") if text else []
        return [decode(line.removesuffix("\r")) for line in texts] if "\r" in text else list(map(decode, texts))

    return LineFormat(decode_one, _ENDS.__contains__, decode_all)


def json_lines(decode: Callable[[Any], T]) -> FileFormat[T]:
    """Read lines of UTF-8 that hold one JSON value each. Empty lines and lines of blanks are skipped.

    Args:
        decode: Creates the record from the parsed value. ``dict`` keeps objects.
    """
    return LineFormat(lambda line: decode(json.loads(line.decode())), bytes.isspace)


class LineFormat(FileFormat[T_co], Generic[T_co]):
    """A range of positions covers the lines that begin in it."""

    def __init__(
        self,
        decode: Callable[[bytes], T_co],
        is_empty: Callable[[bytes], bool],
        decode_all: Callable[[list[bytes]], Sequence[T_co]] | None = None,
        decode_columns: Callable[[list[bytes]], RecordBatch[T_co]] | None = None,
        record_type: type | None = None,
    ) -> None:
        self._decode = decode
        self._is_empty = is_empty
        self._decode_all = decode_all
        self._decode_columns = decode_columns
        self.record_type = record_type

    @property
    def why_rows(self) -> str | None:
        return "it decodes lines one by one. For JSON use json_records"

    def stop(self, file: SourceFile, position: int, end: int, limit: int) -> int:
        return end if is_compressed(file) else min(end, position + limit)

    def decode_again(self, file: SourceFile, value: Any) -> SplitBatch[T_co]:
        return SplitBatch([value], self._decode) if isinstance(value, bytes) else unreadable_again(value)

    def read(self, file: SourceFile, start: int, stop: int) -> Iterator[SplitBatch[T_co]]:
        if is_compressed(file):
            return readable(file, self._read(file, 0, None), self._decode)
        return self._read(file, start, stop)

    def _read(self, file: SourceFile, start: int, stop: int | None) -> Iterator[SplitBatch[T_co]]:
        """Read the lines that begin before ``stop``. None: all lines."""
        with open_text(file) as opened:
            if start > 0:  # a line that begins before ``start`` belongs to the range before
                opened.seek(start - 1)
                opened.readline()
            position = opened.tell() if start > 0 else 0
            numbers = _LineNumbers(file)
            while stop is None or position < stop:
                lines = _read(opened, _BYTES_AT_ONCE if stop is None else min(stop - position, _BYTES_AT_ONCE))
                if not lines:
                    if stop is None:
                        return
                    raise JobError(
                        f"{file} ends at byte {position}, but it was longer when the job began to read it. Files must "
                        f"not change while they are in the directory."
                    )
                before, position = position, position + sum(map(len, lines))
                if before == 0:
                    lines[0] = lines[0].removeprefix(BOM_UTF8) or b"\n"
                yield self._records(lines, before, numbers)

    def _records(self, lines: list[bytes], position: int, numbers: _LineNumbers) -> SplitBatch[T_co]:
        is_empty = self._is_empty
        filled = list(filterfalse(is_empty, lines))

        def offsets() -> list[int]:
            return [number for number, line in enumerate(lines, numbers.at(position)) if not is_empty(line)]

        return SplitBatch(
            filled,
            self._decode,
            offsets=offsets,
            decode_all=None if self._decode_all is None else partial(self._decode_all, filled),
            decode_columns=None if self._decode_columns is None else partial(self._decode_columns, filled),
        )


class _LineNumbers:
    """Counts the lines of a file, from 1. Only errors and skipped records require it."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._counted = (0, 1)  # a position, and the number of the line that begins there

    def at(self, position: int) -> int:
        """Return the number of the line that begins at ``position``."""
        start, number = self._counted if self._counted[0] <= position else (0, 1)
        with open_text(self._file) as opened:
            if opened.seekable():
                opened.seek(start)
            else:
                start, number = 0, 1
            for begin in range(start, position, _BYTES_AT_ONCE):
                number += opened.read(min(_BYTES_AT_ONCE, position - begin)).count(b"\n")
        self._counted = position, number
        return number


def _read(opened: BinaryIO, size: int) -> list[bytes]:
    """Read the lines that begin in the next ``size`` bytes."""
    if size == 1:
        return [line] if (line := opened.readline()) else []
    return opened.readlines(size - 1)  # readlines stops once it has more than its argument
