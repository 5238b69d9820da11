"""A source and a sink for Amazon Kinesis Data Streams: ``pip install "dsv2[kinesis]"``."""

from dsv2.connectors.kinesis.shard import KinesisRecord, KinesisShard
from dsv2.connectors.kinesis.sink import KinesisSink
from dsv2.connectors.kinesis.source import KinesisSource

__all__ = ("KinesisRecord", "KinesisShard", "KinesisSink", "KinesisSource")
