"""Checks of records before a ``FileSink``, whose schema only Spark can interpret."""

from __future__ import annotations

from pyspark.sql import SparkSession

from dsv2.connectors.files.sink_writer import SchemaCheck
from dsv2.graph import Plan, sink_checks
from dsv2.sinks import FileSink
from runtime_spark.frames.schema import RecordWriter, schema_of


def with_schema_checks(spark: SparkSession, plan: Plan) -> Plan:
    """Return ``plan`` with checks of the schema before file sinks that have an error policy."""
    time_zone = str(spark.conf.get("spark.sql.session.timeZone"))

    def check(sink: FileSink[object], name: str) -> SchemaCheck[object]:
        return SchemaCheck(RecordWriter(schema_of(sink.schema), name, time_zone), sink.partition_by, name)

    return sink_checks.with_schema_checks(plan, check)
