"""Clients that read. Making one costs a connection, so each process keeps those that are not in use."""

from __future__ import annotations

import logging

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from dsv2.connectors.kafka.broker import failure_of, is_hopeless
from dsv2.connectors.kafka.connection import Config, KafkaConnection
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import JobError

__all__ = ("RangeConsumer", "borrow_consumer", "give_back")

_LOG = logging.getLogger(__name__)
_ANSWER_SECONDS = 10.0
_idle: dict[str, RangeConsumer] = {}


class RangeConsumer:
    """A client that reads one partition at a time, from a given offset on."""

    def __init__(self, connection: KafkaConnection) -> None:
        """Raises ``JobError`` if the client library refuses the options."""
        self._connection = connection
        self.last_error: KafkaError | None = None
        config: Config = {**connection.consumer_config(), "error_cb": self.remember}
        try:
            self._consumer = Consumer(config, logger=_LOG)
        except KafkaException as error:
            raise failure_of(connection, "Kafka cannot be read", error.args[0]) from error

    def begin(self, partition: TopicPartition, offset: int) -> None:
        """Read ``partition`` from ``offset`` on, and nothing else any more."""
        self._consumer.assign([confluent_kafka.TopicPartition(*partition, offset)])

    def end(self) -> None:
        """Fetch no more."""
        self._consumer.unassign()

    def messages(self, count: int, wait_seconds: float) -> list[Message]:
        """At most ``count`` messages and events, fewer if no more come in the time."""
        return self._consumer.consume(count, wait_seconds)

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset that is there. Raises ``JobError``."""
        try:
            return self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*partition), _ANSWER_SECONDS)[0]
        except KafkaException as error:
            raise failure_of(self._connection, f"{partition} cannot be read", error.args[0]) from error

    def remember(self, error: KafkaError) -> None:
        """Keep ``error``, unless a worse one is known."""
        if self.last_error is None or not is_hopeless(self.last_error):
            self.last_error = error

    def check(self, partition: TopicPartition, position: int, waited_ms: float) -> None:
        """After ``waited_ms`` without any message: raises ``JobError`` if there is no hope, or was enough patience."""
        error, connection = self.last_error, self._connection
        if error is not None and is_hopeless(error):
            raise failure_of(connection, f"{partition} cannot be read", error)
        if waited_ms >= connection.retry_timeout_ms:
            told = "" if error is None else f" The client says: {connection.redacted(error.str())}."
            raise JobError(
                f"{partition} cannot be read at offset {position}: nothing came from {connection.bootstrap_servers} "
                f"for {connection.retry_timeout_ms} ms.{told}"
            )

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()


def borrow_consumer(connection: KafkaConnection) -> RangeConsumer:
    """A client that nobody else uses. Raises ``JobError``."""
    return _idle.pop(_key(connection), None) or RangeConsumer(connection)


def give_back(connection: KafkaConnection, consumer: RangeConsumer) -> None:
    """Keep ``consumer``, which has not failed, for the next one who needs such a client."""
    consumer.last_error = None
    if (other := _idle.pop(_key(connection), None)) is not None:
        other.close()
    _idle[_key(connection)] = consumer


def _key(connection: KafkaConnection) -> str:
    return repr(sorted(connection.consumer_config().items()))
