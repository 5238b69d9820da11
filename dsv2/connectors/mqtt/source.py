"""``MqttSource``."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Generic, Literal

from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import as_milliseconds, check_at_least_one
from dsv2.connectors.mqtt.connection import RECEIVE_MAXIMUM, MqttConnection
from dsv2.connectors.mqtt.receiver import MqttMessage, MqttReceiver, MqttSession, message_of
from dsv2.connectors.received import ReceivedSource
from dsv2.errors import ConfigurationError

_MOST_SECONDS = 0xFFFFFFFE  # one more means for ever
_BATCHES = 3  # in the inbox, and unacknowledged


class MqttSource(ReceivedSource[T_co], Generic[T_co]):
    """Receives the messages of topics, at least once. It requires a broker with MQTT 5.

    The driver receives the messages, and those of a micro-batch are part of the checkpoint until the next one, so a
    repeated micro-batch has the same records. The broker keeps a session for ``client_id``, also while the job does not
    run, and repeats what was not acknowledged. A message is acknowledged when its micro-batch is complete. After a
    failure, or if an acknowledgement is lost, messages of the last micro-batches are read again.

    No message of the session is lost by a kill. What the broker does not keep in the session is: messages with a
    ``qos`` of 0 that are sent while the job is not connected, those beyond the limits of the broker, those of an
    expired session, and those that a broker without persistence had when it ended. A lost session is logged.

    The source is unbounded. ``Trigger.available_now()`` reads what has arrived by then, which may be nothing.
    """

    def __init__(
        self,
        url: str,
        *,
        topics: Sequence[str],
        client_id: str,
        decode: Callable[[MqttMessage], T_co],
        qos: Literal[0, 1] = 1,
        session_expiry: timedelta = timedelta(days=7),
        records_per_batch: int = 1000,
        retry_timeout: timedelta = timedelta(minutes=2),
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Create the source.

        Args:
            url: The broker, such as ``mqtts://user:password@host:8883`` (with TLS) or ``mqtt://host:1883``. Special
                characters in the password are escaped, and it is never shown.
            topics: The topics, which may have wildcards, such as ``sensors/+/heat`` and ``sensors/#``. A topic that is
                removed from them remains subscribed in the session.
            client_id: The name of the session in the broker. No other client may use it. Do not change it while the
                job has a checkpoint: the messages of the old session would be missed.
            decode: Creates the record of a message. Called in tasks.
            qos: The highest quality of service of the messages: 1 (at least once) or 0 (at most once). Messages that
                were published with 0 have 0.
            session_expiry: How long the broker keeps messages while the job is not connected, in whole seconds.
            records_per_batch: The maximum number of messages in a micro-batch. They are in an offset of the
                checkpoint, which should have some megabytes at most.
            retry_timeout: How long an unreachable broker is retried.
            tls: Creates the context of TLS connections on the driver, such as
                ``partial(ssl.create_default_context, cafile="ca.pem")``. Default: ``ssl.create_default_context``.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        self._connection = MqttConnection("MqttSource", url, tls, retry_timeout)
        if isinstance(topics, str) or not topics or not all(map(_is_filter, topics)):
            raise ConfigurationError(
                f"topics must be a list of topics, in which + is a whole level and # is the last one, not {topics!r}."
            )
        if not client_id:
            raise ConfigurationError("client_id must not be empty: the broker keeps messages by it.")
        if qos not in (0, 1):
            raise ConfigurationError(f"MqttSource reads with a qos of 0 or 1, not {qos!r}.")
        check_at_least_one(records_per_batch=records_per_batch)
        seconds = min(as_milliseconds(session_expiry, "session_expiry", at_least=1000) // 1000, _MOST_SECONDS)
        self._session = MqttSession(client_id, tuple(topics), qos, seconds)
        super().__init__(decode, records_per_batch)

    def __repr__(self) -> str:
        return f"MqttSource({self._connection!r}, topics={list(self._session.topics)})"

    @property
    def record_types(self) -> Collection[type]:
        return (MqttMessage,)

    def create_receiver(self) -> MqttReceiver:
        capacity = min(_BATCHES * (self.limit_per_batch or 0), RECEIVE_MAXIMUM)
        return MqttReceiver(self._connection, self._session, capacity)

    def message_of(self, text: str) -> MqttMessage:
        return message_of(text)


def _is_filter(topic: str) -> bool:
    levels = f"/{topic}".removesuffix("/#").split("/")
    return bool(topic) and all(level == "+" or not {*level} & {*"+#"} for level in levels)
