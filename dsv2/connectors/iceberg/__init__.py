"""A sink for Iceberg tables: ``pip install "dsv2[iceberg]"``."""

from dsv2.connectors.iceberg.sink import IcebergSink

__all__ = ("IcebergSink",)
