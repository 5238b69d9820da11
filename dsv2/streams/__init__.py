"""Streams, to which pipelines add operators, and the handles on these operators."""

from dsv2.graph import WaitForBroadcast
from dsv2.streams.configurable import ProcessConfigurable
from dsv2.streams.kinds import (
    BroadcastStream,
    ConfiguredGlobalStream,
    ConfiguredKeyedStream,
    ConfiguredStream,
    GlobalStream,
    KeyedPartitionStream,
    NonKeyedPartitionStream,
    TwoGlobalStreams,
    TwoKeyedStreams,
    TwoStreams,
)
from dsv2.streams.outputs import ConfiguredSink
from dsv2.streams.windowed_streams import GlobalWindowedStream, KeyedWindowedStream, NonKeyedWindowedStream

__all__ = (
    "BroadcastStream",
    "ConfiguredGlobalStream",
    "ConfiguredKeyedStream",
    "ConfiguredSink",
    "ConfiguredStream",
    "GlobalStream",
    "GlobalWindowedStream",
    "KeyedPartitionStream",
    "KeyedWindowedStream",
    "NonKeyedPartitionStream",
    "NonKeyedWindowedStream",
    "ProcessConfigurable",
    "TwoGlobalStreams",
    "TwoKeyedStreams",
    "TwoStreams",
    "WaitForBroadcast",
)
