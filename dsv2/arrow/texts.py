"""Columns of texts, as CSV files have them, as columns of records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dsv2.arrow.records import ArrowRecords
from dsv2.arrow.schema import names_without_none, schema_of
from dsv2.base.type_variables import T
from dsv2.errors import SchemaError

_QUOTE = ord('"')
_NOT_FINITE = r"(?i)^[+-]?(nan|inf|infinity)$"


def check_texts(kind: type) -> None:
    """Raise ``SchemaError`` if a field of ``kind`` has no form as text."""
    for field in schema_of(kind):
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            raise SchemaError(f"Field {field.name!r} of {kind.__qualname__} is {field.type}, which CSV does not have.")


def records_of_texts(table: pa.Table, kind: type[T]) -> ArrowRecords[T]:
    """Convert columns of texts. An empty text is None in an optional field.

    Args:
        table: A table with all fields of the class.
        kind: The class, which has passed ``check_texts``.

    Raises:
        SchemaError: A text is not a value of its field.
    """
    required = names_without_none(kind)
    columns = []
    for field in schema_of(kind):
        texts = table.column(field.name)
        if field.name not in required:
            texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        try:
            columns.append(_converted(texts, field.type))
        except (ValueError, OverflowError) as error:
            raise SchemaError(f"Field {field.name!r} of {kind.__qualname__}: {error}") from error
    return ArrowRecords(pa.table(columns, schema_of(kind)), kind)


def _converted(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast ``texts``, without what Arrow reads beyond decimal numbers and the years 1 to 9999."""
    if kind == texts.type:
        return texts
    values = texts.cast(kind)
    if pa.types.is_integer(kind):
        _refuse(texts, pc.starts_with(texts, "0x", ignore_case=True))
    elif pa.types.is_floating(kind):
        is_finite = pc.fill_null(pc.is_finite(values), True)
        if not pc.all(is_finite).as_py():  # also numbers that are too large
            _refuse(texts, pc.invert(pc.or_(is_finite, pc.match_substring_regex(texts, _NOT_FINITE))))
    elif pa.types.is_temporal(kind):
        pc.min(values).as_py()  # Python begins with the year 1, Arrow does not
    return values


def _refuse(texts: pa.ChunkedArray, refused: pa.ChunkedArray) -> None:
    found = texts.filter(refused)
    if len(found):
        raise ValueError(f"{found[0].as_py()!r} is not a number in decimal notation, or too large")


def table_of_csv(data: bytes, names: Sequence[str], delimiter: str) -> pa.Table:
    """Parse whole rows of CSV to columns of texts.

    Raises:
        ValueError: ``csv`` of Python could read the rows in another way, or refuse one.
    """
    if not _has_closed_quotes(data, delimiter) or data.count(b"\r") != data.count(b"\r\n"):
        raise ValueError
    return pa_csv.read_csv(
        pa.BufferReader(data),
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"',
            double_quote=True,
            escape_char=False,
            newlines_in_values=True,
            ignore_empty_lines=True,
        ),
        convert_options=pa_csv.ConvertOptions(
            check_utf8=True,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[],
            strings_can_be_null=False,
            quoted_strings_can_be_null=False,
        ),
    )


def _has_closed_quotes(data: bytes, delimiter: str) -> bool:
    """Return whether quotes begin and end values, or are doubled in such a value."""
    if b'"' not in data:
        return True
    characters = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    (places,) = np.nonzero(characters == _QUOTE)
    if len(places) % 2:
        return False
    limits = np.frombuffer(f"{delimiter}\r\n".encode(), np.uint8)
    opening, closing = places[::2], places[1::2]
    is_doubled = opening[1:] == closing[:-1] + 1
    begins, ends = np.isin(characters[opening - 1], limits), np.isin(characters[closing + 1], limits)
    begins[1:] |= is_doubled
    ends[:-1] |= is_doubled
    return bool(begins.all() and ends.all())
