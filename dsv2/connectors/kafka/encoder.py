"""The functions with which ``KafkaSink`` creates messages from records."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

__all__ = ("Headers", "MessageEncoder")

T = TypeVar("T")
Headers: TypeAlias = Collection[tuple[str, bytes | None]]


@dataclass(frozen=True)
class MessageEncoder(Generic[T]):
    """Functions that return the parts of a record's message. ``topic`` may be a constant."""

    topic: str | Callable[[T], str]
    value: Callable[[T], bytes | None]
    key: Callable[[T], bytes | None] | None
    headers: Callable[[T], Headers] | None
    partition: Callable[[T], int] | None

    def check(self, record: T, max_bytes: int) -> None:
        """Raise an error if the functions raise for ``record``, or their results are not a message.

        Args:
            record: The record.
            max_bytes: The maximum size of key and value together.

        Raises:
            TypeError: A part of the message has another type.
            ValueError: The message is too large, or the number of the partition is negative.
        """
        topic = self.topic if isinstance(self.topic, str) else self.topic(record)
        value = self.value(record)
        key = None if self.key is None else self.key(record)
        headers = () if self.headers is None else self.headers(record)
        partition = 0 if self.partition is None else self.partition(record)
        _require(topic, str, "topic")
        _require(value, (bytes, type(None)), "value")
        _require(key, (bytes, type(None)), "key")
        _require(partition, int, "partition")
        for name, content in headers:
            _require(name, str, "name of a header")
            _require(content, (bytes, type(None)), "value of a header")
        if partition < 0:
            raise ValueError(f"The partition is {partition}, but numbers of partitions begin at 0.")
        if (size := len(value or b"") + len(key or b"")) > max_bytes:
            raise ValueError(f"The message has {size} bytes, but the option message.max.bytes is {max_bytes}.")


def _require(part: object, kinds: type | tuple[type, ...], what: str) -> None:
    if not isinstance(part, kinds):
        raise TypeError(f"The {what} of the message must not be {type(part).__qualname__}: {part!r:.200}.")
