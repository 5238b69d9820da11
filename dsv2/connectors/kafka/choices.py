"""Enums for the arguments of ``KafkaSource`` and ``KafkaSink``."""

from __future__ import annotations

from enum import Enum


class DeliveryGuarantee(Enum):
    """The guarantee for records in the topic (Flink ``DeliveryGuarantee``; there is no ``NONE``)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class SplitAssignment(Enum):
    """The assignment of partitions to readers.

    ``HASH`` spreads the partitions of each topic evenly over the readers, ``ROUND_ROBIN`` all of them together.
    """

    HASH = "hash"
    ROUND_ROBIN = "round-robin"


class OnOffsetsOutOfRange(Enum):
    """The reaction to messages that were deleted before they were read.

    The job fails, or continues at the earliest or latest offset of the partition.
    """

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"
