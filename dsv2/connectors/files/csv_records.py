"""CSV files as columns of records."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Generic

from dsv2.base.type_variables import T
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.files.compression import open_text
from dsv2.connectors.files.directory import SourceFile
from dsv2.connectors.files.format import FileFormat, Unreadable
from dsv2.connectors.files.tables import CsvFormat, csv_reader
from dsv2.errors import JobError
from dsv2.sources import SplitBatch

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_AT_ONCE = 1 << 18  # some thousand rows, which are decoded one by one if a value is not valid
_LONGEST_ROW = 1 << 24
_MOST_TRIES = 100


def csv_records(kind: type[T], *, delimiter: str = ",") -> FileFormat[T]:
    """Read the rows of CSV files as columns of records, without Python objects.

    The first line holds the column names; other columns than those of the fields are not read. Files are parsed as by
    ``csv_rows``, with the same rules for rows that are not valid. A file without the column of a field fails the job.

    Values are decimal numbers, ``true`` and ``false`` (or 1 and 0), dates and times of ISO 8601 without a time zone. An
    empty value is None if the field is optional. The error policy of the source applies to other values.

    Args:
        kind: The class of the records, a NamedTuple class or dataclass whose fields have column types, but no lists and
            bytes.
        delimiter: The character between values.

    Raises:
        ConfigurationError: pyarrow is not installed.
        SchemaError: The class has no columns, or CSV does not have the type of one.
    """
    require_client_library("pyarrow", "files", "csv_records")
    import_module("dsv2.arrow.texts").check_texts(kind)
    return _CsvRecords(kind, delimiter)


class _CsvRecords(CsvFormat[T], Generic[T]):
    """Its values are dicts of texts by column name only where the error policy requires them."""

    def __init__(self, kind: type[T], delimiter: str) -> None:
        super().__init__(self._of_row, delimiter)
        self.record_type = kind

    @property
    def why_rows(self) -> str | None:
        return ""

    def _of_row(self, row: dict[str, str]) -> T:
        return self._columnar(_table_of([row]))[0]

    def _columnar(self, table: pa.Table) -> Sequence[T]:
        records: Sequence[T] = import_module("dsv2.arrow.texts").records_of_texts(table, self.record_type)
        return records

    def _at_once(self, file: SourceFile) -> Iterator[tuple[Any, int]]:
        table_of_csv = import_module("dsv2.arrow.texts").table_of_csv
        with open_text(file) as opened:
            first = opened.readline().removeprefix(BOM_UTF8)
            line = 1
            while not first.strip(b"\r\n"):
                if not (first := opened.readline()):
                    return
                line += 1
            names = self._names(file, first.decode())
            for data in _whole_rows(opened):
                lines = data.count(b"\n") + (not data.endswith(b"\n"))
                if data.strip(b"\n"):
                    table = table_of_csv(data, names, self._delimiter)
                    yield table, line + 1 if lines == len(table) else 0
                line += lines

    def _names(self, file: SourceFile, line: str) -> list[str]:
        (names,) = csv_reader(iter([line]), self._delimiter)
        missing = [name for name in import_module("dsv2.arrow").schema_of(self.record_type).names if name not in names]
        if missing:
            raise JobError(f"{file} has no column {missing[0]!r}. Its columns are {', '.join(names)}.")
        if len(set(names)) < len(names):
            raise ValueError
        return list(names)

    def _batch(self, values: pa.Table, offsets: Callable[[], Sequence[int]]) -> SplitBatch[T]:
        return SplitBatch(
            range(len(values)),
            lambda index: self._columnar(values.slice(index, 1))[0],
            offsets=offsets,
            raw=lambda index: values.slice(index, 1).to_pylist()[0],
            decode_all=lambda: self._columnar(values),
        )

    def _batch_of_rows(self, rows: Sequence[Any], places: Sequence[int]) -> SplitBatch[T]:
        if any(isinstance(row, Unreadable) for row in rows):
            return super()._batch_of_rows(rows, places)
        return self._batch(_table_of(rows), lambda: places)


def _table_of(rows: Sequence[dict[str, str]]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]})


def _whole_rows(opened: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a file in pieces that end between rows. Raises ``ValueError`` if a quote may not be closed."""
    rest = b""
    while data := opened.read(_BYTES_AT_ONCE):
        data, end = rest + data, len(rest) + len(data)
        for _ in range(_MOST_TRIES):
            end = data.rfind(b"\n", 0, end)
            if data.count(b'"', 0, max(end, 0)) % 2 == 0:
                break
        else:
            raise ValueError
        if end >= 0:
            yield data[: end + 1]
        rest = data[end + 1 :]
        if len(rest) > _LONGEST_ROW:
            raise ValueError
    if rest:
        yield rest
