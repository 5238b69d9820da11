"""Consumers that read ranges of partitions."""

from __future__ import annotations

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message

from dsv2.connectors.kafka.client_errors import ClientErrors, failure_of, reported
from dsv2.connectors.kafka.client_log import KafkaClientLog
from dsv2.connectors.kafka.connection import Config, KafkaConnection
from dsv2.connectors.kafka.pool import Pool
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import JobError

_ANSWER_SECONDS = 10.0


class RangeConsumer:
    """A consumer that reads one partition at a time, from a given offset on."""

    def __init__(self, connection: KafkaConnection) -> None:
        """Create the client. Raises ``JobError`` if the client library rejects the options."""
        self._connection = connection
        self._errors = ClientErrors()
        config: Config = {**connection.consumer_config(), "error_cb": self._errors.remember}
        with reported(connection, "Cannot read from Kafka"):
            self._consumer = Consumer(config, logger=KafkaClientLog(connection.redacted))

    def begin(self, partition: TopicPartition, offset: int) -> None:
        """Read only ``partition``, from ``offset`` on."""
        self._errors.last = None
        self._consumer.assign([confluent_kafka.TopicPartition(*partition, offset)])

    def end(self) -> None:
        """Stop fetching."""
        self._consumer.unassign()

    def messages(self, count: int, wait_seconds: float) -> list[Message]:
        """Return at most ``count`` messages and events; fewer if ``wait_seconds`` pass."""
        return self._consumer.consume(count, wait_seconds)

    def earliest(self, partition: TopicPartition) -> int:
        """Return the first available offset of ``partition``. Raises ``JobError``."""
        with reported(self._connection, f"Cannot read {partition}"):
            return self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*partition), _ANSWER_SECONDS)[0]

    def remember(self, error: KafkaError) -> None:
        """Keep ``error`` unless a permanent one is kept already."""
        self._errors.remember(error)

    def check(self, partition: TopicPartition, position: int, waited_ms: float) -> None:
        """Raise ``JobError`` for a permanent error, or if ``waited_ms`` without messages exceed the retry timeout."""
        error, connection = self._errors.last, self._connection
        if (permanent := self._errors.permanent) is not None:
            raise failure_of(connection, f"Cannot read {partition}", permanent)
        if waited_ms >= connection.retry_timeout_ms:
            reason = "" if error is None else f" The last error of the client: {connection.redacted(error.str())}."
            raise JobError(
                f"Cannot read {partition} at offset {position}: {connection.bootstrap_servers} sent nothing for "
                f"{connection.retry_timeout_ms} ms.{reason}"
            )

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


consumers: Pool[RangeConsumer] = Pool(RangeConsumer)
