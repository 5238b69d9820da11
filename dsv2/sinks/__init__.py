"""Where records go."""

from dsv2.sinks.sink import CollectSink, FileSink, ForeachBatchSink, PrintSink, Sink

__all__ = ("CollectSink", "FileSink", "ForeachBatchSink", "PrintSink", "Sink")
