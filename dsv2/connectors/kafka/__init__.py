"""A source and a sink for Kafka: ``pip install "dsv2[kafka]"``."""

from dsv2.connectors.kafka.choices import DeliveryGuarantee, OnOffsetsOutOfRange, SplitAssignment
from dsv2.connectors.kafka.message import (
    KafkaDecoder,
    KafkaMessage,
    keys_and_values,
    values,
)
from dsv2.connectors.kafka.offsets import OffsetLookup, OffsetsInitializer
from dsv2.connectors.kafka.sink import KafkaSink
from dsv2.connectors.kafka.source import KafkaSource
from dsv2.connectors.kafka.split import KafkaSplit, TopicPartition
from dsv2.connectors.kafka.tokens import OAuthCallback, Token

__all__ = (
    "DeliveryGuarantee",
    "KafkaDecoder",
    "KafkaMessage",
    "KafkaSink",
    "KafkaSource",
    "KafkaSplit",
    "OAuthCallback",
    "OffsetLookup",
    "OffsetsInitializer",
    "OnOffsetsOutOfRange",
    "SplitAssignment",
    "Token",
    "TopicPartition",
    "keys_and_values",
    "values",
)
