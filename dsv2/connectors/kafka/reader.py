"""The reader of ``KafkaSource``, which runs in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, cast

import confluent_kafka
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message

from dsv2.base.type_variables import T_co
from dsv2.connectors.kafka.client_errors import ClientErrors, KafkaClientLog, failure_of, reported
from dsv2.connectors.kafka.connection import Config, KafkaConnection
from dsv2.connectors.kafka.message import KafkaDecoder, KafkaMessage, ManyDecoder, ValueDecoder
from dsv2.connectors.kafka.pool import Pool
from dsv2.connectors.kafka.split import KafkaSplit, TopicPartition
from dsv2.errors import JobError
from dsv2.model.record_batch import RecordBatch
from dsv2.sources import SourceReader, SplitBatch

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


_MESSAGES_AT_ONCE = 8192
_WAIT_SECONDS = 0.1
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


class KafkaReader(SourceReader[T_co, KafkaSplit], Generic[T_co]):
    """Reads ranges of partitions in one task. ``tolerant``: skip deleted messages instead of raising ``JobError``."""

    def __init__(
        self,
        connection: KafkaConnection,
        decode: KafkaDecoder[T_co],
        tolerant: bool,
    ) -> None:
        self._connection = connection
        self._decode = decode
        self._decode_value = decode.decode if isinstance(decode, ValueDecoder) else None
        self._tolerant = tolerant
        self._consumer = consumers.borrow(connection)
        self._idle = True

    def read(self, start: KafkaSplit, stop: KafkaSplit, /) -> Iterator[RecordBatch[T_co]]:
        begin = start.offset if start.resets == stop.resets else stop.reset_offset
        if begin < stop.offset:
            self._idle = False
            for messages in self._messages(start, begin, stop.offset):
                yield self._records(messages)
            self._idle = True

    def close(self) -> None:
        if self._idle:
            consumers.give_back(self._connection, self._consumer)
        else:
            self._consumer.close()

    def _messages(self, split: KafkaSplit, position: int, stop: int) -> Iterator[list[Message]]:
        """Yield the messages of ``split`` from ``position`` up to ``stop``, in chunks. Not every offset has one."""
        consumer, partition = self._consumer, split.topic_partition
        consumer.begin(partition, position)
        waited_ms = 0.0
        while position < stop:
            messages = consumer.messages(min(stop - position, _MESSAGES_AT_ONCE), _WAIT_SECONDS)
            if not messages:
                waited_ms += _WAIT_SECONDS * 1000
                consumer.check(partition, position, waited_ms)
                continue
            waited_ms = 0.0
            if any(message.error() is not None for message in messages):
                messages, position = self._without_events(messages, split, position, stop)
            else:
                position = _offset(messages[-1]) + 1
            if position >= stop:
                consumer.end()
                messages = [message for message in messages if _offset(message) < stop]
            if messages:
                yield messages

    def _without_events(
        self, messages: list[Message], split: KafkaSplit, position: int, stop: int
    ) -> tuple[list[Message], int]:
        """Handle the client's events among ``messages``. Returns the other messages and the position after them."""
        good = []
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
                position = _offset(message) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                position = max(position, _offset(message))
            elif error.code() in (*_LOST, *_GONE):
                position = self._after_loss(split, position, stop, error)
            else:
                self._consumer.remember(error)
        return good, position

    def _after_loss(self, split: KafkaSplit, position: int, stop: int, error: KafkaError) -> int:
        """The position of the first available message after a deleted one; ``stop`` if there is none before it."""
        if not self._tolerant:
            raise JobError(
                f"The messages of {split.split_id} from offset {position} on, which this micro-batch reads up to "
                f"{stop}, no longer exist ({error.name()}): they were deleted, by age or size or with their topic. To "
                f'continue without them, set on_offsets_out_of_range="earliest" (or "latest").'
            )
        if error.code() in _LOST and position < (earliest := self._consumer.earliest(split.topic_partition)) < stop:
            self._consumer.begin(split.topic_partition, earliest)
            return earliest
        return stop

    def _records(self, messages: list[Message]) -> SplitBatch[T_co]:
        decode, decode_value = self._decode, self._decode_value
        stamps = [message.timestamp() for message in messages]
        timestamps = [None if kind == TIMESTAMP_NOT_AVAILABLE else stamp for kind, stamp in stamps]
        values: list[Any] = [message.value() for message in messages] if decode_value is not None else []

        def decode_all() -> Sequence[T_co | None]:
            if decode_value is None:
                return [decode(_message_of(message)) for message in messages]
            if isinstance(decode_value, ManyDecoder):
                with suppress(Exception):  # a value is None, or does not match
                    return decode_value.decode_all(values)
            return [None if value is None else decode_value(value) for value in values]

        decode_columns = None
        if isinstance(decode_value, ManyDecoder):
            decode_columns = partial(decode_value.decode_columns, values, timestamps)
        return SplitBatch(
            messages,
            lambda message: decode(_message_of(message)),
            timestamps=timestamps,
            offsets=lambda: list(map(_offset, messages)),
            raw=_message_of,
            decode_all=decode_all,
            decode_columns=decode_columns,
            omits_none=True,
        )


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # None only for messages that were not sent yet
    return offset


def _message_of(message: Message) -> KafkaMessage:
    kind, timestamp = message.timestamp()
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return KafkaMessage(
        topic=topic,
        partition=partition,
        offset=_offset(message),
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        key=message.key(),
        value=message.value(),
        headers=tuple(cast("list[tuple[str, bytes | None]]", message.headers() or [])),
    )
