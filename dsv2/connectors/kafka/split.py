"""The split of ``KafkaSource``: a partition and the offset up to which it has been read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @staticmethod
    def named(name: str) -> TopicPartition:
        """Parse the result of ``str(partition)``."""
        topic, _, number = name.rpartition("-")
        return TopicPartition(topic, int(number))


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """A partition and its read position (Flink ``KafkaPartitionSplit``).

    Attributes:
        topic: The topic.
        partition: The number of the partition.
        offset: The next offset to read.
        stop_offset: The first offset not to read; None if there is no end.
        resets: How often reading continued at ``reset_offset`` because the next offset did not exist.
        reset_offset: The offset of the last reset.
        topic_id: The id of the topic, which changes when the topic is deleted and created again.
    """

    topic: str
    partition: int
    offset: int
    stop_offset: int | None = None
    resets: int = 0
    reset_offset: int = 0
    topic_id: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def split_id(self) -> str:
        """Topic and partition."""
        return str(self.topic_partition)
