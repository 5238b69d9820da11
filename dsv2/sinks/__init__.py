"""Where records go."""

from dsv2.sinks.parallel import ParallelSink, SinkBatch, SinkInfo, SinkRun
from dsv2.sinks.sink import CollectSink, FileSink, ForeachBatchSink, PrintSink, Sink

__all__ = (
    "CollectSink",
    "FileSink",
    "ForeachBatchSink",
    "ParallelSink",
    "PrintSink",
    "Sink",
    "SinkBatch",
    "SinkInfo",
    "SinkRun",
)
