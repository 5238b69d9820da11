"""Checks before a job runs whether the declared record type of a stream fits the schema of a sink."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, get_args, get_origin

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from dsv2.base.optional_types import without_none
from dsv2.connectors.files.sink_writer import SchemaCheck
from dsv2.errors import SchemaError
from dsv2.file_log.schema import fields_of
from dsv2.graph import Operator, Plan, sink_checks
from dsv2.graph.record_types import declared_type
from dsv2.sinks import FileSink
from runtime_spark.frames.schema import SparkRecordWriter, schema_of

_EXAMPLES: dict[Any, Any] = {
    bool: True,
    int: 1,
    float: 1.5,
    str: "a",
    bytes: b"a",
    date: date(2000, 1, 1),
    datetime: datetime(2000, 1, 1, tzinfo=UTC),
    Decimal: Decimal(1),
}


def check_declared_type(plan: Plan, sink: Operator, schema: t.StructType) -> None:
    """Check the declared record type of the input of ``sink``.

    A stream without a declared type, or with a type that is not specific, is checked when its records are written.

    Raises:
        SchemaError: The records cannot be rows of ``schema``.
    """
    (edge,) = plan.edges_into[sink.id]
    upstream = plan.operators[edge.source]
    declared = declared_type(plan, upstream, edge.output)
    if problems := list(_problems(declared, schema)):
        raise SchemaError(
            f"The sink {sink}, defined at {sink.location}: the records of {upstream}, defined at {upstream.location}, "
            f"do not fit the schema {schema.simpleString()}: {'; '.join(problems)}."
        )


def _problems(declared: Any, schema: t.StructType) -> Iterator[str]:
    if declared in _EXAMPLES:
        yield f"they are of type {declared.__name__}, which has no fields; map them to tuples, such as (value,)"
    elif get_origin(declared) is tuple:
        types = get_args(declared)
        if Ellipsis in types:
            return
        if len(types) != len(schema.fields):
            yield f"they have {len(types)} values"
        else:
            yield from _misfits(dict(zip(schema.fieldNames(), types, strict=True)), schema)
    elif isinstance(declared, type) and (dataclasses.is_dataclass(declared) or hasattr(declared, "_fields")):
        try:
            hints = fields_of(declared)
        except SchemaError:  # the types of its fields cannot be resolved
            return
        for name in schema.fieldNames():
            if name not in hints and not hasattr(declared, name):
                yield f"{declared.__qualname__} has no field {name!r}"
        yield from _misfits(hints, schema)


def _misfits(hints: dict[str, Any], schema: t.StructType) -> Iterator[str]:
    for field in schema.fields:
        hint, _ = without_none(hints.get(field.name))
        if hint in _EXAMPLES and not _is_writable(_EXAMPLES[hint], field):
            yield f"field {field.name!r} is of type {hint.__name__}, but the column is {field.dataType.simpleString()}"


def _is_writable(value: Any, field: t.StructField) -> bool:
    try:
        SparkRecordWriter(t.StructType([field]), "", "UTC").write([(value,)])
    except SchemaError:
        return False
    return True


def with_schema_checks(spark: SparkSession, plan: Plan) -> Plan:
    """Return ``plan`` with checks of the schema before file sinks that have an error policy."""
    time_zone = str(spark.conf.get("spark.sql.session.timeZone"))

    def check(sink: FileSink[object], name: str) -> SchemaCheck[object]:
        return SchemaCheck(SparkRecordWriter(schema_of(sink.schema), name, time_zone), sink.partition_by, name)

    return sink_checks.with_schema_checks(plan, check)
