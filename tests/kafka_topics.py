"""Topics of a real broker for tests: create them, fill them, read committed messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.durations import LONG
from tests.support import wait_until

_SECONDS = LONG
_UNSENT = 10_000
_NUMBERS = itertools.count()


class Topics:
    """The topics of one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        # Clients outlive the broker, and would print that it does not answer.
        self.config: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self.admin = AdminClient(self.config)
        self._producer = self._new_producer()

    def create(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """A new topic, with a unique name if none is given."""
        topic = name or f"topic-{next(_NUMBERS)}"
        new = NewTopic(topic, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        for future in self.admin.create_topics([new]).values():
            future.result(_SECONDS)
        while topic not in self.admin.list_topics(timeout=_SECONDS).topics:  # the broker may see it slightly later
            pass
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase the number of partitions of ``topic``."""
        for future in self.admin.create_partitions([NewPartitions(topic, total)]).values():
            future.result(_SECONDS)
        while len(self.admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions) < total:
            pass  # the broker may see them slightly later
        self._producer = self._new_producer()  # a new one has the new partitions

    def delete(self, topic: str) -> None:
        """Delete ``topic``, and wait until it is no longer visible."""
        for future in self.admin.delete_topics([topic]).values():
            future.result(_SECONDS)
        while topic in self.admin.list_topics(timeout=_SECONDS).topics:
            pass

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages before an offset, as retention does."""
        for future in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(_SECONDS)

    def send(self, topic: str, values: Iterable[bytes | None], partition: int = 0, **options: Any) -> None:
        """Append messages to a partition, and wait until they are delivered."""
        for value in values:
            while len(self._producer) >= _UNSENT:
                self._producer.poll(0.1)
            self._producer.produce(topic, value, partition=partition, on_delivery=_check, **options)
        assert self._producer.flush(_SECONDS) == 0

    def _new_producer(self) -> Producer:
        """Keeps the order of messages even if some have to be sent again."""
        return Producer({**self.config, "enable.idempotence": True})

    def transaction(self, topic: str, partition: int = 0) -> Transaction:
        """Begin a transaction."""
        return Transaction(self.config, topic, partition)

    def committed(self, topic: str) -> dict[int, list[bytes]]:
        """The values of each partition that readers of committed messages see."""
        self.await_commits(topic)
        consumer = Consumer({**self.config, "group.id": "tests", "enable.partition.eof": True})
        partitions = self.admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        seen: dict[int, list[bytes]] = {number: [] for number in partitions}
        ended = 0
        while ended < len(partitions):
            for message in consumer.consume(10_000, 0.05):
                if (error := message.error()) is None:
                    seen[message.partition() or 0].append(message.value() or b"")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended += 1
        consumer.close()
        return seen

    def await_commits(self, topic: str) -> None:
        """Wait until readers see all messages, which is shortly after the last transaction has ended."""
        for number in self.admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions:
            end = self.end(topic, number)
            wait_until(lambda: self._end(topic, number, IsolationLevel.READ_COMMITTED) >= end)  # noqa: B023 - at once

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset after the last message, committed or not."""
        return self._end(topic, partition, IsolationLevel.READ_UNCOMMITTED)

    def _end(self, topic: str, partition: int, level: IsolationLevel) -> int:
        wanted = {TopicPartition(topic, partition): OffsetSpec.latest()}
        (future,) = self.admin.list_offsets(wanted, isolation_level=level).values()
        offset: int = future.result(_SECONDS).offset
        return offset

    def group_offsets(self, group: str, topic: str) -> Mapping[int, int]:
        """The offsets of a consumer group for the partitions of ``topic``."""
        consumer = Consumer({**self.config, "group.id": group})
        partitions = self.admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, number) for number in partitions], _SECONDS)
        consumer.close()
        return {part.partition: part.offset for part in found if part.offset >= 0}


class Transaction:
    """Messages that are committed together, or not at all."""

    def __init__(self, config: Mapping[str, Any], topic: str, partition: int) -> None:
        self._config = config
        ids = {"transactional.id": f"tests-{next(_NUMBERS)}", "transaction.timeout.ms": 900_000}
        self._producer = Producer({**config, **ids})
        self._producer.init_transactions(_SECONDS)
        self._producer.begin_transaction()
        self._topic, self._partition = topic, partition

    def send(self, *values: bytes) -> Transaction:
        for value in values:
            self._producer.produce(self._topic, value, partition=self._partition, on_delivery=_check)
        assert self._producer.flush(_SECONDS) == 0
        return self

    def set_group_offset(self, group: str, offset: int) -> Transaction:
        """Commit the offset of a consumer group for the partition, together with the messages."""
        consumer = Consumer({**self._config, "group.id": group})
        place = TopicPartition(self._topic, self._partition, offset)
        self._producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), _SECONDS)
        consumer.close()
        return self

    def commit(self) -> None:
        self._producer.commit_transaction(_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(_SECONDS)


def _check(error: KafkaError | None, message: Message) -> None:
    assert error is None, error
