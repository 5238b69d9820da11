"""Kafka topics for benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ("Topics",)

_SECONDS = 30.0
_UNSENT = 50_000


class Topics:
    """The topics of one broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._config: dict[str, Any] = {"bootstrap.servers": servers}
        self._admin = AdminClient(self._config)
        self._count = 0

    def create(self, partitions: int) -> str:
        """Create a topic."""
        self._count += 1
        topic = f"benchmark-{self._count}"
        for future in self._admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(_SECONDS)
        while topic not in self._admin.list_topics(timeout=_SECONDS).topics:  # metadata is updated with a delay
            pass
        return topic

    def filled(self, partitions: int, messages: Iterable[bytes]) -> str:
        """Create a topic with ``messages``, distributed over its partitions."""
        topic, producer = self.create(partitions), Producer(self._config)
        for number, message in enumerate(messages):
            while len(producer) >= _UNSENT:
                producer.poll(0.01)
            producer.produce(topic, message, partition=number % partitions)
        producer.flush()
        return topic

    def count(self, topic: str) -> int:
        """Count the committed messages of a topic."""
        consumer = Consumer({**self._config, "group.id": "count", "enable.partition.eof": True})
        partitions = self._admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        count = ended = 0
        while ended < len(partitions):
            for message in consumer.consume(10_000, 0.05):
                if (error := message.error()) is None:
                    count += 1
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended += 1
        consumer.close()
        return count
