"""``KafkaSink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, Literal

from dsv2.base.secrets import OptionValue
from dsv2.base.type_variables import T
from dsv2.checks.arguments import as_choice
from dsv2.connectors.kafka.choices import DeliveryGuarantee
from dsv2.connectors.kafka.connection import MAX_MESSAGE_BYTES, KafkaConnection
from dsv2.connectors.kafka.encoder import Headers, MessageEncoder, checked_timestamp
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.connectors.kafka.tokens import OAuthCallback
from dsv2.errors import ConfigurationError
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo

if TYPE_CHECKING:
    from dsv2.connectors.kafka.transactions import Transactions


_MAX_BYTES = "message.max.bytes"


class KafkaSink(ParallelSink[T], Generic[T]):
    """Writes records as messages to Kafka.

    With ``delivery="exactly-once"``, each subtask writes a micro-batch in one transaction. The transaction also commits
    the number of the micro-batch, as the offset of a consumer group of the subtask. A repeated micro-batch finds this
    offset and writes nothing. Readers of committed messages see each record once, but the transactions of the subtasks
    become visible one after the other. With ``delivery="at-least-once"``, there are no transactions, and a repeated
    micro-batch is written again.

    Source: Flink ``KafkaSink``.
    """

    accepts_other_records = True

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | Callable[[T], str],
        value: Callable[[T], bytes | None],
        *,
        key: Callable[[T], bytes | None] | None = None,
        headers: Callable[[T], Headers] | None = None,
        partition: Callable[[T], int] | None = None,
        delivery: DeliveryGuarantee | Literal["exactly-once", "at-least-once"] = DeliveryGuarantee.EXACTLY_ONCE,
        transactional_id_prefix: str = "dsv2",
        marker_topic: str | None = None,
        retry_timeout: timedelta = timedelta(minutes=2),
        options: Mapping[str, OptionValue] | None = None,
        oauth_cb: OAuthCallback | None = None,
    ) -> None:
        """Create the sink.

        A message has the timestamp of its record, if the record has one. The offsets of the consumer groups expire
        after the brokers' ``offsets.retention.minutes`` (one week by default): restart a job that failed within a
        micro-batch before that.

        Args:
            bootstrap_servers: "host:port,host:port".
            topic: The topic, or a function that returns the topic of a record.
            value: Returns the value of a record's message.
            key: Returns the key. None: messages have no key.
            headers: Returns the headers, pairs of name and value. None: messages have no headers.
            partition: Returns the number of the partition. None: the client chooses one by the key.
            delivery: ``"exactly-once"`` or ``"at-least-once"``.
            transactional_id_prefix: The prefix of the names of transactions and of their consumer groups. The Kafka
                user must be authorized for both.
            marker_topic: The topic that the offsets of the consumer groups refer to. Any existing topic that the Kafka
                user may read. Default: ``topic``, if it is a name.
            retry_timeout: How long to retry while no broker answers.
            options: Options of librdkafka for TLS, SASL, compression etc. Secrets among them are never shown.
            oauth_cb: Returns a token of SASL OAUTHBEARER and when it expires, in seconds since the epoch. Called in
                the driver and in tasks, in a thread of the client library. Must be picklable for Spark.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        guarantee = as_choice(DeliveryGuarantee, delivery, "delivery")
        if marker_topic is None and isinstance(topic, str):
            marker_topic = topic
        if marker_topic is None and guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            raise ConfigurationError(
                "KafkaSink stores the number of a micro-batch as an offset of a topic. If topic is a function, specify "
                "this topic with marker_topic=..., or use delivery='at-least-once'."
            )
        self._connection = KafkaConnection(
            "KafkaSink", bootstrap_servers, options or {}, retry_timeout, oauth_cb=oauth_cb
        )
        self._encoder = MessageEncoder(topic, value, key, headers, partition)
        self.exactly_once = guarantee is DeliveryGuarantee.EXACTLY_ONCE
        self._prefix = transactional_id_prefix
        self._marker_topic = marker_topic
        self._max_bytes = int(self._connection.options.get(_MAX_BYTES, MAX_MESSAGE_BYTES))

    def __repr__(self) -> str:
        return f"KafkaSink({self._topic_and_servers}, {self._connection.options})"

    @property
    def _topic_and_servers(self) -> str:
        topic = self._encoder.topic if isinstance(self._encoder.topic, str) else "topics"
        return f"{topic} at {self._connection.bootstrap_servers}"

    @property
    def dsv2_why_rows(self) -> str:
        why = "it encodes messages one by one. Messages are encoded together if they have only a value of JsonEncoder"
        return "" if self.dsv2_takes_columns else why

    @property
    def dsv2_takes_columns(self) -> bool:
        return self._encoder.takes_columns

    def describe_target(self) -> str:
        transactions = f", transactions {self._prefix}-*" if self.exactly_once else ""
        return f"{self._topic_and_servers}{transactions}"

    def check_timestamp(self, timestamp: int) -> None:
        """Raise an error if a message with the timestamp would get another one."""
        checked_timestamp(timestamp)

    def check_record(self, record: T) -> None:
        """Raise an error if ``record`` has no valid message. What a broker refuses is known only when it is written."""
        self._encoder.check(record, self._max_bytes)

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        if (transactions := self._transactions(info)) is not None:
            transactions.begin(batch_id)

    def write(self, batch: SinkBatch[T]) -> None:
        if (transactions := self._transactions(batch.info)) is not None:
            transactions.write(batch, self._encoder)
            return
        from dsv2.connectors.kafka.producers import producers

        with producers.lent(self._connection) as producer:
            for records in batch.batches:
                producer.send(records, self._encoder)
            producer.flush()

    def _transactions(self, info: SinkInfo) -> Transactions | None:
        if self._marker_topic is None or not self.exactly_once:
            return None
        from dsv2.connectors.kafka.transactions import Transactions

        return Transactions(self._connection, self._prefix, TopicPartition(self._marker_topic, 0), info)
