"""A source and a sink for Iceberg tables: ``pip install "dsv2[iceberg]"``."""

from dsv2.connectors.iceberg.sink import IcebergSink
from dsv2.connectors.iceberg.source import IcebergSource

__all__ = ("IcebergSink", "IcebergSource")
