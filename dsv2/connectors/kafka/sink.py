"""``KafkaSink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from dsv2.arguments import as_choice
from dsv2.connectors.kafka.choices import DeliveryGuarantee
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.encoder import Headers, MessageEncoder
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.connectors.secrets import OptionValue
from dsv2.errors import ConfigurationError
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo

if TYPE_CHECKING:
    from dsv2.connectors.kafka.transactions import Transactions

__all__ = ("KafkaSink",)

T = TypeVar("T")


class KafkaSink(ParallelSink[T], Generic[T]):
    """Writes records as messages (Flink ``KafkaSink``).

    ``delivery="exactly-once"``: a subtask writes a micro-batch in one transaction, which also says, as an offset of a
    consumer group of the subtask's own, which micro-batch it was; one that is repeated finds that and writes nothing.
    Readers of committed messages see each record once. They do not see the subtasks' parts of a micro-batch appear at
    one moment. ``delivery="at-least-once"``: without transactions; a repeated micro-batch is written again.
    """

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
    ) -> None:
        """``topic``, ``value``, ``key``, ``headers`` and ``partition`` make a message of a record.

        Without ``partition`` the client chooses one by the key. A message has the timestamp of its record, if that has
        one. ``transactional_id_prefix``: begins the names of the transactions, and of the groups that remember
        micro-batches. The user must be allowed to use those, and to read ``marker_topic``, to which their offsets
        refer: any topic that is there; ``topic`` if that is a name. ``retry_timeout``: how long to try when no
        broker answers. ``options``: of librdkafka, for TLS, SASL, compression and the like; secrets among them are
        never shown.

        The groups forget after the brokers' ``offsets.retention.minutes`` (a week by default): a job that failed within
        a micro-batch should be started again before that.

        Raises ``ConfigurationError``; also if the client library is missing.
        """
        guarantee = as_choice(DeliveryGuarantee, delivery, "delivery")
        if marker_topic is None and isinstance(topic, str):
            marker_topic = topic
        if marker_topic is None and guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            raise ConfigurationError(
                "KafkaSink remembers micro-batches as offsets of a topic. If topic is a function, say which one to use "
                "for that (marker_topic=...), or write with delivery='at-least-once'."
            )
        self._connection = KafkaConnection.checked("KafkaSink", bootstrap_servers, options or {}, retry_timeout)
        self._encoder = MessageEncoder(topic, value, key, headers, partition)
        self._delivery = guarantee
        self._prefix = transactional_id_prefix
        self._marker_topic = marker_topic

    def __repr__(self) -> str:
        topic = self._encoder.topic if isinstance(self._encoder.topic, str) else "topics"
        return f"KafkaSink({topic} at {self._connection.bootstrap_servers}, {self._connection.options})"

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
        if self._marker_topic is None or self._delivery is not DeliveryGuarantee.EXACTLY_ONCE:
            return None
        from dsv2.connectors.kafka.transactions import Transactions

        return Transactions(self._connection, self._prefix, TopicPartition(self._marker_topic, 0), info)
