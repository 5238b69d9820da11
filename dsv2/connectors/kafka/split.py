"""A partition of a topic, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ("KafkaSplit", "TopicPartition")


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @staticmethod
    def named(name: str) -> TopicPartition:
        """The partition that ``str`` has written."""
        topic, _, number = name.rpartition("-")
        return TopicPartition(topic, int(number))


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """A partition that is read up to ``offset``, the next one to read (Flink ``KafkaPartitionSplit``).

    ``stop_offset``: the first one not to read, None if there is no end. ``resets``: how often reading could not go on
    where it stood, and went on at ``reset_offset`` instead. ``topic_id``: tells the topic from another one that is
    made under its name later.
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
        """What is read."""
        return TopicPartition(self.topic, self.partition)

    @property
    def split_id(self) -> str:
        """Topic and partition."""
        return str(self.topic_partition)
