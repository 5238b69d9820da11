"""Checks of records before a ``FileSink``, whose schema only Spark can interpret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from dsv2.connectors.files.table_files import check_folder_names
from dsv2.graph import Operator, Plan
from dsv2.graph.sink_checks import SinkCheck
from dsv2.sinks import FileSink, Sink
from runtime_spark.schema import RecordWriter, schema_of

__all__ = ("with_schema_checks",)

T = TypeVar("T")


class _SchemaCheck(Sink[T], Generic[T]):
    """Replaces a ``FileSink`` in the check before it."""

    def __init__(self, writer: RecordWriter, partition_by: Sequence[str], name: str) -> None:
        self._writer = writer
        self._partition_by = partition_by
        self._name = name

    def check_record(self, record: T) -> None:
        check_folder_names(self._writer.write([record]), self._partition_by, self._name)


def with_schema_checks(spark: SparkSession, plan: Plan) -> Plan:
    """Return ``plan`` with checks of the schema before file sinks that have an error policy."""
    time_zone = str(spark.conf.get("spark.sql.session.timeZone"))

    def checked(operator: Operator) -> Operator:
        if not isinstance(operator.body, SinkCheck) or not isinstance(operator.body.sink, FileSink):
            return operator
        sink, name = operator.body.sink, f"{operator}, defined at {operator.location}"
        writer = RecordWriter(schema_of(sink.schema), name, time_zone)
        return replace(operator, body=SinkCheck(_SchemaCheck[object](writer, sink.partition_by, name)))

    return replace(plan, operators=tuple(map(checked, plan.operators)))
