"""Files with lines of JSON for ``FilesSource``, by record class."""

from __future__ import annotations

from typing import Generic

from dsv2.base.type_variables import T
from dsv2.connectors.files.format import FileFormat
from dsv2.connectors.files.lines import LineFormat
from dsv2.connectors.formats.json_schema import JsonDecoder, why_rows


def json_records(record_type: type[T]) -> FileFormat[T]:
    """Read lines of UTF-8 that hold one JSON object each: ``FilesSource(folder, json_records(Order))``.

    Lines are decoded as by ``JsonDecoder``, to columns before a function or sink on tables. Empty lines and lines of
    blanks are skipped.

    Args:
        record_type: A dataclass or NamedTuple class.

    Raises:
        ConfigurationError: ``record_type`` is not supported.
    """
    decoder = JsonDecoder(record_type)
    return _JsonRecords(decoder, bytes.isspace, decoder.decode_all, decoder.decode_columns, record_type)


class _JsonRecords(LineFormat[T], Generic[T]):
    @property
    def why_rows(self) -> str | None:
        return None if self.record_type is None else why_rows(self.record_type)
