"""Kafka messages, and decoders that create records from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, runtime_checkable

from dsv2.base.type_variables import K, T, T_co, V
from dsv2.model.record_batch import RecordBatch


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """A message of a topic.

    Attributes:
        topic: The topic.
        partition: The number of the partition.
        offset: The offset in the partition.
        timestamp: In ms since the epoch; None if the message has none.
        key: The key, if there is one.
        value: The value; None for a tombstone.
        headers: Pairs of name and value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KafkaDecoder(Protocol[T_co]):
    """Creates records from messages (Flink ``KafkaRecordDeserializationSchema``)."""

    def __call__(self, message: KafkaMessage, /) -> T_co | None:
        """Return the record of ``message``, or None to skip it.

        The error policy of the source determines how exceptions are handled.
        """


@runtime_checkable
class ManyDecoder(Protocol[T_co]):
    """A decoder of values that also decodes many at once. ``JsonDecoder`` is one."""

    @property
    def record_type(self) -> type[T_co]:
        """The class of the records."""

    @property
    def why_rows(self) -> str:
        """The reason why records are not decoded to columns, as the rest of a sentence. Empty: they are."""

    def __call__(self, value: bytes, /) -> T_co:
        """Return the record of a value."""

    def decode_all(self, values: Sequence[bytes], /) -> Sequence[T_co]:
        """Return the records. Raises any exception if values must be decoded one by one."""

    def decode_columns(
        self, values: Sequence[bytes], timestamps: Sequence[int | None] | None = None, /
    ) -> RecordBatch[T_co]:
        """Return columnar records, with timestamps in ms. Raises any exception if they must be rows."""


@dataclass(frozen=True, slots=True)
class ValueDecoder(Generic[T_co]):
    """A decoder of values only. ``KafkaReader`` has a fast path for it."""

    decode: Callable[[bytes], T_co | None]

    def __call__(self, message: KafkaMessage, /) -> T_co | None:
        return None if message.value is None else self.decode(message.value)


def values(decode: Callable[[bytes], T | None]) -> KafkaDecoder[T]:
    """Create a decoder of values: ``values(json.loads)``. It skips messages without a value."""
    return ValueDecoder(decode)


@dataclass(frozen=True, slots=True)
class _PairDecoder(Generic[K, V]):
    key: Callable[[bytes], K]
    value: Callable[[bytes], V]

    def __call__(self, message: KafkaMessage, /) -> tuple[K | None, V | None]:
        return (
            None if message.key is None else self.key(message.key),
            None if message.value is None else self.value(message.value),
        )


def keys_and_values(key: Callable[[bytes], K], value: Callable[[bytes], V]) -> KafkaDecoder[tuple[K | None, V | None]]:
    """Create a decoder of pairs of key and value. Either is None if the message has none."""
    return _PairDecoder(key, value)
