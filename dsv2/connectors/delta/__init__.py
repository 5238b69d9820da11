"""A source and a sink for Delta tables: ``pip install "dsv2[delta]"``."""

from dsv2.connectors.delta.sink import DeltaSink
from dsv2.connectors.delta.source import DeltaSource

__all__ = ("DeltaSink", "DeltaSource")
