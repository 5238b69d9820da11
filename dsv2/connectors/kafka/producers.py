"""Clients that write, and messages for them."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer

from dsv2.connectors.kafka.client_errors import ClientErrors, failure_of
from dsv2.connectors.kafka.client_log import KafkaClientLog
from dsv2.connectors.kafka.connection import Config, KafkaConnection
from dsv2.connectors.kafka.encoder import MessageEncoder
from dsv2.connectors.kafka.pool import Pool
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import JobError
from dsv2.record_batch import RecordBatch

__all__ = ("RecordProducer", "TransactionalProducer", "producers")

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.1
_ANSWER_SECONDS = 2.0
_WRITING = "Messages cannot be written"


class RecordProducer:
    """Writes records as messages. ``extra``: configuration that makes another kind of client of it."""

    def __init__(self, connection: KafkaConnection, extra: Config | None = None) -> None:
        """Raises ``JobError`` if the client library refuses the options."""
        self._connection = connection
        self._errors = ClientErrors()
        config: Config = {
            **(extra or {"delivery.timeout.ms": connection.retry_timeout_ms}),
            **connection.client_config(),
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": self._errors.delivered,
            "error_cb": self._errors.remember,
        }
        try:
            self._client = Producer(config, logger=KafkaClientLog(connection.redacted))
        except KafkaException as error:
            raise failure_of(connection, _WRITING, error.args[0]) from connection.presentable(error)

    def send(self, batch: RecordBatch[T], encoder: MessageEncoder[T]) -> None:
        """Send messages for the records of ``batch``, without waiting for them. Raises ``JobError``."""
        produce, topic_of, value_of, key_of = self._produce, encoder.topic, encoder.value, encoder.key
        headers_of, partition_of = encoder.headers, encoder.partition
        for record, timestamp in batch.pairs():
            options: dict[str, Any] = {}
            if timestamp is not None:
                options["timestamp"] = timestamp
            if key_of is not None:
                options["key"] = key_of(record)
            if headers_of is not None:
                options["headers"] = list(headers_of(record))
            if partition_of is not None:
                options["partition"] = partition_of(record)
            produce(topic_of if isinstance(topic_of, str) else topic_of(record), value_of(record), options)
        self._poll(0)

    def close(self) -> None:
        """Let go of the connections, and of what was not sent yet."""
        self._client.purge()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a transaction, which is known
            self._client.close()

    def flush(self) -> None:
        """Wait until all messages are with the brokers. Raises ``JobError``."""
        self._client.flush(self._connection.retry_timeout_ms / 1000 + _PAUSE_SECONDS)
        self._check()
        if self._errors.purged is not None:
            raise failure_of(self._connection, _WRITING, self._errors.purged)
        if left := len(self._client):
            raise JobError(
                f"{left} messages were not taken by {self._connection.bootstrap_servers} within "
                f"{self._connection.retry_timeout_ms} ms."
            )

    def _produce(self, topic: str, value: bytes | None, options: dict[str, Any]) -> None:
        while True:
            try:
                return self._client.produce(topic, value, **options)
            except BufferError:  # as many as may be are on their way
                self._poll(_PAUSE_SECONDS)
            except KafkaException as error:
                place = f"{topic}-{options['partition']}" if "partition" in options else topic
                failure = failure_of(self._connection, f"A message for {place} cannot be written", error.args[0])
                raise failure from self._connection.presentable(error)

    def _poll(self, seconds: float) -> None:
        try:
            self._client.poll(seconds)
        except KafkaException as error:
            raise failure_of(self._connection, _WRITING, error.args[0]) from self._connection.presentable(error)
        self._check()

    def _check(self) -> None:
        if (error := self._errors.hopeless or self._errors.undelivered) is not None:
            raise failure_of(self._connection, _WRITING, error)


producers: Pool[RecordProducer] = Pool(RecordProducer)


class TransactionalProducer(RecordProducer):
    """Writes messages that are committed together. It owns its transactional id until another one takes it."""

    def __init__(self, connection: KafkaConnection, transactional_id: str, topic: str) -> None:
        """Ends all transactions that others have begun under this id. ``topic``: any that is there.

        Raises ``JobError``.
        """
        super().__init__(connection, {"transactional.id": transactional_id})
        self._group = transactional_id
        try:
            # Has connections made: to the broker that is asked first, and to those that it names. When one is missing,
            # what comes next looks for it only every half second.
            with contextlib.suppress(KafkaException):
                self._client.list_topics(topic, _ANSWER_SECONDS)
                self._client.list_topics(topic, _ANSWER_SECONDS)
            self._call(f"Transactions {transactional_id!r} cannot be begun", self._client.init_transactions)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """What is sent from here on is part of a transaction."""
        self._client.begin_transaction()

    def prepare(self, partition: TopicPartition, offset: int, note: str) -> None:
        """Make ``offset`` and ``note``, for the consumer group of the same name, part of what is committed.

        Raises ``JobError``.
        """
        config: Config = {**self._connection.client_config(), "group.id": self._group}
        consumer = Consumer(config, logger=KafkaClientLog(self._connection.redacted))
        try:
            group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        offsets = [confluent_kafka.TopicPartition(*partition, offset, note)]
        self._call(_WRITING, lambda seconds: self._client.send_offsets_to_transaction(offsets, group, seconds))

    def commit(self) -> None:
        """Commit what was sent. Raises ``JobError``."""
        self._call(_WRITING, self._client.commit_transaction)

    def abort(self) -> None:
        """Give up what was sent. A failure to do so is logged: whoever comes next under this id does it."""
        try:
            self._client.abort_transaction(self._connection.retry_timeout_ms / 1000)
        except KafkaException as error:
            _LOG.warning("Transaction %r was not aborted: %s", self._group, self._connection.redacted(str(error)))

    def _call(self, what: str, call: Callable[[float], None]) -> None:
        """``call``, given the seconds to wait for; again, which goes on with it, while there is hope."""
        deadline = time.monotonic() + self._connection.retry_timeout_ms / 1000
        while True:
            try:
                return call(_ANSWER_SECONDS)
            except KafkaException as raised:
                error = raised.args[0]
                with contextlib.suppress(KafkaException):
                    self._client.poll(_PAUSE_SECONDS)  # it may say why
                cause = self._errors.hopeless or self._errors.undelivered
                if cause is not None or not error.retriable() or time.monotonic() > deadline:
                    raise failure_of(self._connection, what, cause or error) from self._connection.presentable(raised)
