"""Messages of Kafka, and how they become records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ("DeadLetter", "KafkaDecoder", "KafkaMessage", "ValueDecoder", "dead_letters", "keys_and_values", "values")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """A message as it stands in a topic. ``timestamp``: in ms, None if it has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KafkaDecoder(Protocol[T_co]):
    """Makes a record of a message (Flink ``KafkaRecordDeserializationSchema``); None: the message is left out."""

    def __call__(self, message: KafkaMessage, /) -> T_co | None:
        """The record. What it raises is handled as the source's ``on_undecodable`` says."""


@dataclass(frozen=True, slots=True)
class ValueDecoder(Generic[T_co]):
    """A decoder that looks at values only; ``KafkaReader`` has a short way for it."""

    decode: Callable[[bytes], T_co | None]

    def __call__(self, message: KafkaMessage, /) -> T_co | None:
        return None if message.value is None else self.decode(message.value)


def values(decode: Callable[[bytes], T | None]) -> KafkaDecoder[T]:
    """A decoder that makes a record of each value: ``values(json.loads)``. Messages without a value are left out."""
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
    """A decoder that makes a pair of key and value; each is None where the message has none."""
    return _PairDecoder(key, value)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be decoded, and why."""

    message: KafkaMessage
    error: str


@dataclass(frozen=True, slots=True)
class _DeadLetterDecoder(Generic[T_co]):
    decode: KafkaDecoder[T_co]

    def __call__(self, message: KafkaMessage, /) -> T_co | DeadLetter | None:
        try:
            return self.decode(message)
        except Exception as error:
            return DeadLetter(message, f"{type(error).__qualname__}: {error}")


def dead_letters(decode: KafkaDecoder[T]) -> KafkaDecoder[T | DeadLetter]:
    """``decode``, with a ``DeadLetter`` for each message on which it raises.

    Dead letters are records like the others: filter them out of the stream and into a sink of their own.
    """
    return _DeadLetterDecoder(decode)
