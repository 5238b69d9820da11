"""Producers that write records as messages, with and without transactions."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer

from dsv2.base.printable import safe_repr
from dsv2.base.type_variables import T
from dsv2.connectors.kafka.client_errors import ClientErrors, KafkaClientLog, failure_of, reported
from dsv2.connectors.kafka.connection import Config, KafkaConnection
from dsv2.connectors.kafka.encoder import MessageEncoder, checked_timestamp
from dsv2.connectors.kafka.pool import Pool
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import JobError
from dsv2.model.record_batch import RecordBatch

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.1
_ANSWER_SECONDS = 2.0
_WRITING = "Cannot write messages"


class RecordProducer:
    """Writes records as messages."""

    def __init__(self, connection: KafkaConnection, transactional_id: str | None = None) -> None:
        """Create the client.

        Args:
            connection: The cluster.
            transactional_id: The id of a transactional producer.

        Raises:
            JobError: The client library rejects the options.
        """
        self._connection = connection
        self._errors = ClientErrors()
        config: Config = {
            **connection.producer_config(transactional_id),
            "on_delivery": self._errors.delivered,
            "error_cb": self._errors.remember,
        }
        with reported(connection, _WRITING):
            self._client = Producer(config, logger=KafkaClientLog(connection.redacted))

    def send(self, batch: RecordBatch[T], encoder: MessageEncoder[T]) -> None:
        """Send the records of ``batch`` without waiting for their delivery. Raises ``JobError``."""
        values = encoder.values(batch.records)
        message: Callable[[Any], tuple[str, bytes | None, dict[str, Any]]] = encoder.message
        pairs: Iterable[tuple[Any, int | None]]
        if values is None:
            pairs = batch.pairs()
        else:
            message, pairs = encoder.message_of, RecordBatch(values, batch.timestamps).pairs()
        for record, timestamp in pairs:
            try:
                topic, value, options = message(record)
                if timestamp is not None:
                    options["timestamp"] = timestamp or checked_timestamp(timestamp)
                self._produce(topic, value, options)
            except JobError:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise JobError(f"Cannot write the record {safe_repr(record):.200}: {reason}") from error
        self._poll(0)

    def close(self) -> None:
        """Close the connections and discard messages that were not sent."""
        self._client.purge()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the client warns about an open transaction
            self._client.close()

    def flush(self) -> None:
        """Wait until the brokers have acknowledged all messages. Raises ``JobError``."""
        deadline = time.monotonic() + self._connection.retry_timeout_ms / 1000 + _PAUSE_SECONDS
        while self._client.flush(_PAUSE_SECONDS) and time.monotonic() < deadline:
            self._check()  # a retry does not help if the credentials are rejected
        self._check()
        if self._errors.purged is not None:
            raise failure_of(self._connection, _WRITING, self._errors.purged)
        if unsent := len(self._client):
            raise JobError(
                f"{self._connection.bootstrap_servers} did not acknowledge {unsent} messages within "
                f"{self._connection.retry_timeout_ms} ms."
            )

    def _produce(self, topic: str, value: bytes | None, options: dict[str, Any]) -> None:
        while True:
            try:
                return self._client.produce(topic, value, **options)
            except BufferError:  # the queue of the client is full
                self._poll(_PAUSE_SECONDS)
            except KafkaException as error:
                target = f"{topic}-{options['partition']}" if "partition" in options else topic
                failure = failure_of(self._connection, f"Cannot write a message to {target}", error.args[0])
                raise failure from self._connection.presentable(error)

    def _poll(self, seconds: float) -> None:
        with reported(self._connection, _WRITING):
            self._client.poll(seconds)
        self._check()

    def _check(self) -> None:
        if (error := self._errors.permanent or self._errors.undelivered) is not None:
            raise failure_of(self._connection, _WRITING, error)


producers: Pool[RecordProducer] = Pool(RecordProducer)


class TransactionalProducer(RecordProducer):
    """Writes messages in transactions. It owns its transactional id until another producer uses the same id."""

    def __init__(self, connection: KafkaConnection, transactional_id: str, topic: str) -> None:
        """Connect and abort the open transactions of other producers with this id.

        Args:
            connection: The cluster.
            transactional_id: The transactional id.
            topic: Any existing topic.

        Raises:
            JobError: The brokers reject the request or do not answer.
        """
        super().__init__(connection, transactional_id)
        self._group = transactional_id
        try:
            # Connects to the bootstrap broker and to the brokers that it returns. Without a connection,
            # init_transactions looks for its broker only every half second.
            with contextlib.suppress(KafkaException):
                self._client.list_topics(topic, _ANSWER_SECONDS)
                self._client.list_topics(topic, _ANSWER_SECONDS)
            self._call(f"Cannot begin transactions {transactional_id!r}", self._client.init_transactions)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self._client.begin_transaction()

    def prepare(self, partition: TopicPartition, offset: int, note: str) -> None:
        """Add an offset of the consumer group named like the transactional id to the transaction.

        Args:
            partition: The partition of the offset.
            offset: The offset.
            note: The metadata string of the offset.

        Raises:
            JobError: The brokers reject the request or do not answer.
        """
        consumer = Consumer({"group.id": self._group, "log_level": 0})  # never connects
        group = consumer.consumer_group_metadata()
        consumer.close()
        offsets = [confluent_kafka.TopicPartition(*partition, offset, note)]
        self._call(_WRITING, lambda seconds: self._client.send_offsets_to_transaction(offsets, group, seconds))

    def commit(self) -> None:
        """Commit the transaction. Raises ``JobError``."""
        self._call(_WRITING, self._client.commit_transaction)

    def abort(self) -> None:
        """Abort the transaction. A failure is only logged: the next producer with this id aborts it as well."""
        try:
            self._client.abort_transaction(self._connection.retry_timeout_ms / 1000)
        except KafkaException as error:
            _LOG.warning("Transaction %r was not aborted: %s", self._group, self._connection.redacted(str(error)))

    def _call(self, what: str, call: Callable[[float], None]) -> None:
        """Run ``call(timeout_seconds)``. While its error is retriable, call it again, which resumes the operation."""
        deadline = time.monotonic() + self._connection.retry_timeout_ms / 1000
        while True:
            try:
                return call(_ANSWER_SECONDS)
            except KafkaException as raised:
                error = raised.args[0]
                with contextlib.suppress(KafkaException):
                    self._client.poll(_PAUSE_SECONDS)  # may report the cause
                cause = self._errors.permanent or self._errors.undelivered
                if cause is not None or not error.retriable() or time.monotonic() > deadline:
                    raise failure_of(self._connection, what, cause or error) from self._connection.presentable(raised)
