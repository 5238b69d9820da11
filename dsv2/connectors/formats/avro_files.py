"""Avro files for ``FilesSource``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Generic

from dsv2.base.type_variables import T, T_co
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.files.directory import SourceFile
from dsv2.connectors.files.format import FileFormat, Unreadable, split_batch, unreadable_again
from dsv2.connectors.formats.avro import ParsedSchema, keep_all_digits, parsed_schema
from dsv2.connectors.formats.avro_types import reader_of
from dsv2.connectors.formats.error import reason_of
from dsv2.errors import Dsv2Error, JobError
from dsv2.sources import SplitBatch

_RECORDS_AT_ONCE = 4096
_parsed = partial(parsed_schema, "avro_files")


def avro_files(record_type: type[T], *, schema: str | Mapping[str, Any] | None = None) -> FileFormat[T]:
    """Read the records of Avro files, which contain their schema: ``FilesSource(folder, avro_files(Order))``.

    A file is not divided between micro-batches. The error policy of the source applies to a damaged file, or to the
    rest of it. Fields are matched with the class as by ``AvroDecoder``.

    Args:
        record_type: A dataclass or NamedTuple class, ``dict``, or the type of a value that is not a record.
        schema: The reader schema, to which records are converted. None (default): the schema of the file.

    Raises:
        ConfigurationError: ``schema`` is not valid, or fastavro is not installed.
    """
    require_client_library("fastavro", "avro", "avro_files")
    return _AvroFiles(record_type, None if schema is None else _parsed(schema))


class _AvroFiles(FileFormat[T_co], Generic[T_co]):
    def __init__(self, record_type: type[T_co], wanted: ParsedSchema | None) -> None:
        self._record_type = record_type
        self._wanted = wanted

    @property
    def why_rows(self) -> str | None:
        return "Avro is decoded record by record"

    def decode_again(self, file: SourceFile, value: Any) -> SplitBatch[T_co]:
        if value == str(file):
            return unreadable_again(value)
        if self._wanted is not None:
            return SplitBatch([value], reader_of(self._record_type, self._wanted.schema, self._wanted.named))
        with file.open() as opened:  # its schema describes the value
            _, build = self._opened(opened)
        return SplitBatch([value], build)

    def read(self, file: SourceFile, start: int, stop: int) -> Iterator[SplitBatch[T_co]]:
        done = 0
        try:
            with file.open() as opened:
                rows, build = self._opened(opened)
                values = _with_the_unreadable(rows, file)
                while some := list(islice(values, _RECORDS_AT_ONCE)):
                    yield split_batch(some, build, range(done + 1, done + 1 + len(some)))
                    done += len(some)
        except (OSError, Dsv2Error) as error:
            raise JobError(f"{file} cannot be read after record {done}: {reason_of(error)}") from error
        except Exception as error:
            yield split_batch([Unreadable(str(file), f"{file} cannot be read: {reason_of(error)}")], None, [0])

    def _opened(self, opened: Any) -> tuple[Iterator[Any], Callable[[Any], T_co] | None]:
        """Return the values in a file, and how a value becomes a record."""
        from fastavro import reader

        schema = None if self._wanted is None else self._wanted.schema
        rows: Any = reader(opened, schema, handle_unicode_errors="strict", return_record_name=False)
        result = _parsed(rows.writer_schema) if self._wanted is None else self._wanted
        keep_all_digits(rows.writer_schema)
        return rows, reader_of(self._record_type, result.schema, result.named)


def _with_the_unreadable(rows: Iterator[Any], file: SourceFile) -> Iterator[Any]:
    """Yield ``rows``, and ``Unreadable`` for the rest of the file if it is damaged."""
    try:
        yield from rows
    except OSError:
        raise
    except Exception as error:
        yield Unreadable(str(file), f"{file} cannot be read from this record on: {reason_of(error)}")
