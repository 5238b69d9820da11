"""Sinks: the destinations of records."""

from dsv2.sinks.files import FileSink, FileSinkFormat
from dsv2.sinks.info import SinkInfo, SinkRunInfo
from dsv2.sinks.parallel import ParallelSink, SinkBatch
from dsv2.sinks.sink import CollectSink, DriverLimit, DriverSink, ForeachBatchSink, PrintSink, Sink

__all__ = (
    "CollectSink",
    "DriverLimit",
    "DriverSink",
    "FileSink",
    "FileSinkFormat",
    "ForeachBatchSink",
    "ParallelSink",
    "PrintSink",
    "Sink",
    "SinkBatch",
    "SinkInfo",
    "SinkRunInfo",
)
