"""Derives Spark schemas from record types, checks that types and schemas fit, and converts records."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import types as t

from dsv2.arrow.records import ArrowRecords
from dsv2.arrow.schema import maker_of
from dsv2.arrow.sink_columns import batch_of
from dsv2.connectors.files.python_values import python_values
from dsv2.connectors.files.record_writer import RecordWriter
from dsv2.errors import SchemaError
from dsv2.file_log.schema import fields_of, json_schema
from runtime_spark.platform.arrow_schemas import arrow_schema

_READABLE: dict[Any, tuple[type[t.DataType], ...]] = {
    bool: (t.BooleanType,),
    int: (t.ByteType, t.ShortType, t.IntegerType, t.LongType),
    float: (t.FloatType, t.DoubleType),
    str: (t.StringType, t.CharType, t.VarcharType),
    bytes: (t.BinaryType,),
    date: (t.DateType,),
    datetime: (t.TimestampType, t.TimestampNTZType),
    Decimal: (t.DecimalType,),
}


def schema_of(schema: type | str) -> t.StructType:
    """Return the Spark schema of a record type or a DDL string. Raises ``SchemaError`` if there is none."""
    if isinstance(schema, str):
        try:
            parsed = t.StructType.fromDDL(schema)
        except Exception as error:
            raise SchemaError(f"{schema!r} is not a schema: {error}") from error
        if not isinstance(parsed, t.StructType):
            raise SchemaError(f"{schema!r} is not a schema of columns but {parsed.simpleString()}.")
        return parsed
    return t.StructType.fromJson(json_schema(schema))


def check_readable(record_type: type, schema: t.StructType, split_by: str | None) -> None:
    """Raise ``SchemaError`` unless rows of ``schema`` can become records of ``record_type``."""
    columns = {field.name: field.dataType for field in schema.fields}
    if split_by is not None and split_by not in columns:
        raise SchemaError(f"split_by names column {split_by!r}; the DataFrame has {', '.join(columns)}.")
    if record_type in (dict, Row):
        return
    problems = []
    for name, hint in fields_of(record_type).items():
        if name not in columns:
            problems.append(f"it has no column {name!r}")
        elif not _fits(hint, columns[name]):
            kind = hint.__name__ if isinstance(hint, type) else hint
            problems.append(f"column {name!r} is {columns[name].simpleString()}, but the field is {kind}")
    if problems:
        raise SchemaError(
            f"the DataFrame does not fit {record_type.__qualname__}: {'; '.join(problems)}. "
            f"Its columns are {', '.join(f'{n} {c.simpleString()}' for n, c in columns.items())}; select or cast them."
        )


class RecordReader:
    """Converts Arrow batches to records of one type."""

    def __init__(self, record_type: type, columns: Sequence[str]) -> None:
        self.columns = names = list(columns) if record_type in (dict, Row) else list(fields_of(record_type))
        self._make = maker_of(record_type)
        if record_type in (dict, Row):
            self._make = lambda *values: record_type(**dict(zip(names, values, strict=True)))

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the records of ``batch``, which may have more columns.

        Raises:
            SchemaError: Python has no such value; names the column.
        """
        return list(map(self._make, *(_values_of(batch, name) for name in self.columns)))


class SparkRecordWriter(RecordWriter):
    """Converts records to Arrow batches of a Spark schema. A datetime without a time zone is in ``time_zone``."""

    def __init__(self, schema: t.StructType, sink: str, time_zone: str) -> None:
        self.schema = schema
        self._arrow_schema = arrow = arrow_schema(schema, time_zone)
        zoned = any(pa.types.is_timestamp(field.type) and field.type.tz is not None for field in arrow)
        zone = pa.lib.string_to_tzinfo(time_zone) if zoned else None
        super().__init__(schema.jsonValue(), arrow, sink, zone)

    def write(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Convert ``records`` to a batch. Raises ``SchemaError``, naming the first record that does not fit."""
        if isinstance(records, ArrowRecords) and (batch := batch_of(records.table, self._arrow_schema)) is not None:
            return batch
        return super().write(records)


def _values_of(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    try:
        return python_values(column)
    except (OverflowError, ValueError) as error:
        raise SchemaError(
            f"Column {name!r} of the DataFrame, which is {column.type}, has a value that Python does not have: "
            f"{error}. The years of a datetime are 1 to 9999 in the time zone of the session: set "
            f"spark.sql.session.timeZone, or select the column as text."
        ) from error


def _fits(hint: Any, column: t.DataType) -> bool:
    """Return whether values read from ``column`` match a field of type ``hint``."""
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in _READABLE:
        return isinstance(column, _READABLE[origin])
    if origin is list:
        return isinstance(column, t.ArrayType) and all(_fits(hint, column.elementType) for hint in arguments)
    if origin is dict:
        if not isinstance(column, t.MapType):
            return isinstance(column, t.StructType)
        return all(map(_fits, arguments, (column.keyType, column.valueType)))
    if origin in (typing.Union, types.UnionType):
        return any(_fits(hint, column) for hint in arguments)
    # No column is read as an object of another class. Hints such as Literal are not checked.
    return origin in (typing.Any, object) or not isinstance(origin, type)
