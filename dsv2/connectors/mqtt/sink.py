"""``MqttSink``."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, Generic, Literal

from dsv2.base.type_variables import T
from dsv2.connectors.mqtt.connection import MqttConnection
from dsv2.errors import ConfigurationError
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo

_MESSAGES_AT_ONCE = 1000
_LONGEST_TOPIC = 65_535  # bytes


class MqttSink(ParallelSink[T], Generic[T]):
    """Publishes a message for each record, at least once. It requires a broker with MQTT 5.

    A micro-batch is complete when the broker has acknowledged all of its messages. If it is repeated after a failure,
    all of its messages are published again, those of a subtask in the same order. MQTT has no transactions and no ids
    by which a broker could recognize them: let receivers do so, or publish values that may be repeated, such as totals
    instead of differences. With a ``qos`` of 0 nothing is acknowledged: records are lost if a connection is.
    """

    accepts_other_records = True

    def __init__(
        self,
        url: str,
        topic: str | Callable[[T], str],
        payload: Callable[[T], bytes],
        *,
        qos: Literal[0, 1] = 1,
        retain: bool = False,
        retry_timeout: timedelta = timedelta(minutes=2),
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Create the sink.

        Args:
            url: The broker, such as ``mqtts://user:password@host:8883`` (with TLS) or ``mqtt://host:1883``. Special
                characters in the password are escaped, and it is never shown.
            topic: The topic of the messages, or a function that returns that of a record.
            payload: Returns the payload of a record.
            qos: The quality of service: 1 (at least once) or 0 (at most once).
            retain: Whether the broker keeps the last message of each topic for later subscribers.
            retry_timeout: How long an unreachable broker is retried.
            tls: Creates the context of TLS connections where they are opened, such as
                ``partial(ssl.create_default_context, cafile="ca.pem")``. Default: ``ssl.create_default_context``.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        self._connection = MqttConnection("MqttSink", url, tls, retry_timeout)
        if qos not in (0, 1):
            raise ConfigurationError(f"MqttSink writes with a qos of 0 or 1, not {qos!r}.")
        self._topic = topic
        self._payload = payload
        self._qos = qos
        self._retain = retain

    def __repr__(self) -> str:
        return f"MqttSink({self._connection!r})"

    def describe_target(self) -> str:
        return repr(self._connection)

    def check_record(self, record: T) -> None:
        """Raise an error if ``record`` has no valid topic and payload. What the broker refuses is not known."""
        self._message(record)

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        with self._connection.opened("Cannot begin to write"):
            pass

    def write(self, batch: SinkBatch[T]) -> None:
        records = (record for part in batch.batches for record in part.rows())
        while messages := [self._message(record) for record in islice(records, _MESSAGES_AT_ONCE)]:
            with self._connection.opened("Cannot write") as client:  # which would be idle while records are computed
                self._publish(client, messages)

    def _publish(self, client: Any, messages: Sequence[tuple[str, bytes]]) -> None:
        refused: list[Any] = []
        client.on_publish = lambda *answer: refused.append(answer[3]) if answer[3].is_failure else None
        most = client.user_data_get()
        for first in range(0, len(messages), most):
            some = messages[first : first + most]
            for published in [client.publish(*message, self._qos, self._retain) for message in some]:
                self._connection.wait(client, published.is_published)
        if refused:
            raise ValueError(f"the broker refuses {len(refused)} messages: {refused[0]}")

    def _message(self, record: T) -> tuple[str, bytes]:
        topic = self._topic if isinstance(self._topic, str) else self._topic(record)
        payload = self._payload(record)
        if not isinstance(topic, str) or not isinstance(payload, bytes):
            raise TypeError(f"A message has a topic (str) and a payload (bytes), not {topic!r} and {payload!r}.")
        if not topic or {*topic} & {*"+#\0"} or len(topic.encode()) > _LONGEST_TOPIC:
            raise ValueError(f"A topic has 1 to {_LONGEST_TOPIC} bytes, without '+', '#' and NUL, unlike {topic!r}.")
        return topic, payload
