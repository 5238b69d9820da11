"""Clients that read."""

from __future__ import annotations

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from dsv2.connectors.kafka.client_errors import ClientErrors, failure_of
from dsv2.connectors.kafka.client_log import KafkaClientLog
from dsv2.connectors.kafka.connection import Config, KafkaConnection
from dsv2.connectors.kafka.pool import Pool
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import JobError

__all__ = ("RangeConsumer", "consumers")

_ANSWER_SECONDS = 10.0


class RangeConsumer:
    """A client that reads one partition at a time, from a given offset on."""

    def __init__(self, connection: KafkaConnection) -> None:
        """Raises ``JobError`` if the client library refuses the options."""
        self._connection = connection
        self._errors = ClientErrors()
        config: Config = {**connection.consumer_config(), "error_cb": self._errors.remember}
        try:
            self._consumer = Consumer(config, logger=KafkaClientLog(connection.redacted))
        except KafkaException as error:
            raise failure_of(connection, "Kafka cannot be read", error.args[0]) from connection.presentable(error)

    def begin(self, partition: TopicPartition, offset: int) -> None:
        """Read ``partition`` from ``offset`` on, and nothing else any more."""
        self._errors.last = None
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
            failure = failure_of(self._connection, f"{partition} cannot be read", error.args[0])
            raise failure from self._connection.presentable(error)

    def remember(self, error: KafkaError) -> None:
        """Keep ``error``, unless a worse one is known."""
        self._errors.remember(error)

    def check(self, partition: TopicPartition, position: int, waited_ms: float) -> None:
        """After ``waited_ms`` without any message: raises ``JobError`` if there is no hope, or was enough patience."""
        error, connection = self._errors.last, self._connection
        if (hopeless := self._errors.hopeless) is not None:
            raise failure_of(connection, f"{partition} cannot be read", hopeless)
        if waited_ms >= connection.retry_timeout_ms:
            told = "" if error is None else f" The client says: {connection.redacted(error.str())}."
            raise JobError(
                f"{partition} cannot be read at offset {position}: nothing came from {connection.bootstrap_servers} "
                f"for {connection.retry_timeout_ms} ms.{told}"
            )

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()


consumers: Pool[RangeConsumer] = Pool(RangeConsumer)
