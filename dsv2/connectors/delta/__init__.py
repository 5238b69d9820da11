"""A sink for Delta tables: ``pip install "dsv2[delta]"``."""

from dsv2.connectors.delta.sink import DeltaSink

__all__ = ("DeltaSink",)
