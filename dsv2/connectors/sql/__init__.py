"""A source and a sink for SQL databases: ``pip install "dsv2[sql]"``, and the driver of the database."""

from dsv2.connectors.sql.sink import SqlSink
from dsv2.connectors.sql.source import SqlRange, SqlSource

__all__ = ("SqlRange", "SqlSink", "SqlSource")
