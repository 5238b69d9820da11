"""Streams, to which pipelines add operators, and the handles on these operators."""

from dsv2.graph import WaitForBroadcast
from dsv2.streams.aggregates import WindowedStream
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

__all__ = (
    "BroadcastStream",
    "ConfiguredGlobalStream",
    "ConfiguredKeyedStream",
    "ConfiguredSink",
    "ConfiguredStream",
    "GlobalStream",
    "KeyedPartitionStream",
    "NonKeyedPartitionStream",
    "ProcessConfigurable",
    "TwoGlobalStreams",
    "TwoKeyedStreams",
    "TwoStreams",
    "WaitForBroadcast",
    "WindowedStream",
)
