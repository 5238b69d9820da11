"""The functions with which ``KafkaSink`` creates messages from records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, SupportsIndex, TypeAlias, runtime_checkable

from dsv2.base.columnar import Columnar
from dsv2.base.type_variables import T

Headers: TypeAlias = Collection[tuple[str, bytes | None]]


@runtime_checkable
class ColumnsEncoder(Protocol):
    """An encoder of values that also encodes columnar records. ``JsonEncoder`` is one."""

    @property
    def takes_columns(self) -> bool:
        """True if ``encode_columns`` can encode some."""

    def __call__(self, record: Any, /) -> bytes:
        """Return the value of a record."""

    def encode_columns(self, records: Columnar[Any], /) -> Sequence[bytes] | None:
        """Return the values of records; None if they must be encoded one by one."""


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
            ValueError: The message is too large, or the client library would write another one.
        """
        topic, value, options = self.message(record)
        key = options.get("key")
        _require(topic, str, "topic")
        _require(value, (bytes, type(None)), "value")
        _require(key, (bytes, type(None)), "key")
        _require(options.get("partition", 0), int, "partition")
        for _, content in options.get("headers", ()):
            _require(content, (bytes, type(None)), "value of a header")
        if (size := len(value or b"") + len(key or b"")) > max_bytes:
            raise ValueError(f"The message has {size} bytes, but the option message.max.bytes is {max_bytes}.")

    @property
    def takes_columns(self) -> bool:
        """True if messages have only a value, which is encoded from columns."""
        is_plain = isinstance(self.topic, str) and (self.key, self.headers, self.partition) == (None, None, None)
        return is_plain and isinstance(self.value, ColumnsEncoder) and self.value.takes_columns

    def values(self, records: Sequence[T]) -> Sequence[bytes] | None:
        """Return the values of columnar records whose messages have only a value; None if each requires ``message``."""
        if not self.takes_columns or not isinstance(records, Columnar) or not isinstance(self.value, ColumnsEncoder):
            return None
        return self.value.encode_columns(records)

    def message_of(self, value: bytes) -> tuple[str, bytes, dict[str, Any]]:
        """Return the message of one of ``values``, as ``message`` does."""
        assert isinstance(self.topic, str)
        return self.topic, value, {}

    def message(self, record: T) -> tuple[str, bytes | None, dict[str, Any]]:
        """Return the topic, the value, and the other parts of the message as keyword arguments of the client library.

        Raises:
            TypeError: The name of a header is no text, or a partition no number.
            ValueError: The client library would write another message.
        """
        options: dict[str, Any] = {}
        if self.key is not None:
            options["key"] = self.key(record)
        if self.headers is not None:
            options["headers"] = _checked_headers(self.headers(record))
        if self.partition is not None:
            options["partition"] = _checked_partition(self.partition(record))
        return self.topic if isinstance(self.topic, str) else self.topic(record), self.value(record), options


def _checked_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return ``headers`` as librdkafka takes them. Raises ``TypeError`` or ``ValueError`` for a name.

    The client library would write other bytes than texts as their ``repr``, cut a name at a NUL, and crash the process
    for lone surrogates.
    """
    checked = list(headers)
    for name, _ in checked:
        _require(name, str, "name of a header")
        if "\0" in name:
            raise ValueError(f"The name of the header {name!r:.200} has a NUL character, at which librdkafka cuts it.")
        name.encode()
    return checked


def _checked_partition(number: int) -> int:
    """Return ``number``. Raises ``ValueError`` if it is negative: -1 is a partition of librdkafka's choice."""
    _require(number, (int, SupportsIndex), "partition")
    if number < 0:
        raise ValueError(
            f"The partition is {number}, but numbers of partitions begin at 0. Without partition=..., the client "
            f"chooses one by the key."
        )
    return number


def checked_timestamp(timestamp: int) -> int:
    """Return ``timestamp``. Raises ``ValueError`` if it is 0, which is the current time for librdkafka."""
    if timestamp == 0:
        raise ValueError(
            "The record has the timestamp 0 (1970-01-01T00:00:00Z), instead of which the Kafka client librdkafka "
            "writes the current time. Give it another timestamp, such as 1."
        )
    return timestamp


def _require(part: object, kinds: type | tuple[type, ...], what: str) -> None:
    if not isinstance(part, kinds):
        raise TypeError(f"The {what} of the message must not be {type(part).__qualname__}: {part!r:.200}.")
