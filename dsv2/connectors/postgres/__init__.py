"""PostgreSQL as a sink: ``pip install "dsv2[postgres]"``."""

from dsv2.connectors.postgres.sink import PostgresSink

__all__ = ("PostgresSink",)
