"""The choices that ``KafkaSource`` and ``KafkaSink`` offer."""

from __future__ import annotations

from enum import Enum

__all__ = ("DeliveryGuarantee", "OnOffsetsOutOfRange", "OnUndecodable", "SplitAssignment")


class DeliveryGuarantee(Enum):
    """How often a record appears in the topic (Flink ``DeliveryGuarantee``; there is no ``NONE``)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class SplitAssignment(Enum):
    """Which reader gets which partition.

    ``HASH`` spreads the partitions of each topic evenly over the readers, ``ROUND_ROBIN`` all of them together.
    """

    HASH = "hash"
    ROUND_ROBIN = "round-robin"


class OnUndecodable(Enum):
    """What happens to a message on which the decoder raises: the job fails, or the message is skipped and counted."""

    FAIL = "fail"
    SKIP = "skip"


class OnOffsetsOutOfRange(Enum):
    """What happens when messages were deleted before they were read.

    The job fails, or it continues with the earliest or the latest messages that are there.
    """

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"
