"""The messages of an MQTT broker, and their receiver."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from dsv2.connectors.mqtt.connection import MqttConnection
from dsv2.connectors.received import ReceivedSplit, Receiver

_LOG = logging.getLogger(__name__)
_SECONDS_OF_LOOP = 0.1
_TAKEN_OVER = 0x8E  # the reason of a disconnection


class MqttMessage(NamedTuple):
    """A message.

    Attributes:
        topic: Its topic.
        payload: Its payload.
        retained: Whether the broker had kept it from before the subscription.
    """

    topic: str
    payload: bytes
    retained: bool = False


def message_of(text: str) -> MqttMessage:
    """Return a message from its form in the checkpoint."""
    topic, payload, retained = json.loads(text)
    return MqttMessage(topic, b64decode(payload, validate=True), retained)


@dataclass(frozen=True)
class MqttSession:
    """The session of a client, and its subscriptions.

    Attributes:
        client_id: The id of the client.
        topics: The topics, which may have wildcards.
        qos: The highest quality of service.
        expiry_seconds: How long the broker keeps the session without a connection.
    """

    client_id: str
    topics: Sequence[str]
    qos: int
    expiry_seconds: int


class _Unacknowledged(NamedTuple):
    """A message that the broker will repeat.

    Attributes:
        number: Its number, as the job counts messages.
        packet_id: Its id in the connection in which it has come last.
        text: Its form in the checkpoint.
    """

    number: int
    packet_id: int
    text: str


class MqttReceiver(Receiver):
    """Receives messages, and acknowledges them when their micro-batch is complete.

    A packet id belongs to a connection: after it, the broker may give it to another message. So a message is only
    acknowledged in the connection in which it came last. In the next connection the broker repeats unacknowledged
    messages. One is recognized by its packet id if it has the same content and is marked as a repetition, so that no
    other message is taken for it. A new receiver, after a restart, recognizes none: the broker may have received the
    acknowledgement of a message, and given its id to an equal one.

    Args:
        connection: The broker.
        session: The session that the broker keeps.
        capacity: The most messages of the inbox, and the most unacknowledged ones.
    """

    def __init__(self, connection: MqttConnection, session: MqttSession, capacity: int) -> None:
        super().__init__(capacity)
        self._connection = connection
        self._session = session
        self._what = f"Cannot receive messages as {session.client_id!r}"
        self._received = 0  # the number of the last message
        self._unacknowledged: deque[_Unacknowledged] = deque()  # those of this connection
        self._earlier: dict[int, _Unacknowledged] = {}  # those of earlier connections, by packet id
        self._client = connection.create_client(client_id=session.client_id, manual_ack=True)
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        self._client.on_disconnect = self._on_disconnect

    def open(self, split: ReceivedSplit) -> None:
        self._received = split.count
        with self._connection.presented(self._what):
            self._connect()

    def receive(self) -> None:
        with self._connection.presented(self._what):
            try:
                while not self.is_closed:
                    if self._client.loop(_SECONDS_OF_LOOP):
                        self.pause(_SECONDS_OF_LOOP)
                        self._connect()
                    self._acknowledge()
            finally:
                self._acknowledge()
                self._await_answer()
                self._client.disconnect()

    def _connect(self) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        self._earlier.update({message.packet_id: message for message in self._unacknowledged})
        self._unacknowledged.clear()
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = self._capacity
        properties.SessionExpiryInterval = self._session.expiry_seconds
        if not self._connection.connect(self._client, self.pause, clean_start=False, properties=properties):
            self._earlier.clear()
            if self._received:
                _LOG.warning("%r has no session of %r: messages may be lost", self._connection, self._session.client_id)
        self._subscribe()

    def _subscribe(self) -> int | None:
        """Subscribe to the topics. Returns the packet id of the request; None if there is no connection."""
        from paho.mqtt.subscribeoptions import SubscribeOptions

        options = SubscribeOptions(self._session.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        packet_id: int | None = self._client.subscribe([(topic, options) for topic in self._session.topics])[1]
        return packet_id

    def _await_answer(self) -> None:
        """Wait until the broker has read the acknowledgements. It loses them if a connection ends with unread data."""
        answered: list[int] = []
        self._client.on_message = None  # the broker repeats the messages that follow
        self._client.on_subscribe = lambda client, _, packet_id, *rest: answered.append(packet_id)
        with suppress(OSError, RuntimeError, ValueError):
            packet_id = self._subscribe()
            self._connection.wait(self._client, lambda: packet_id in answered)

    def _acknowledge(self) -> None:
        while self._unacknowledged and self._unacknowledged[0].number <= self.acknowledged:
            self._client.ack(self._unacknowledged.popleft().packet_id, 1)

    def _on_message(self, client: Any, _: object, message: Any) -> None:
        text = json.dumps([message.topic, b64encode(message.payload).decode(), message.retain])
        earlier = self._earlier.get(message.mid) if message.dup else None
        if earlier is not None and earlier.text == text:
            self._unacknowledged.append(self._earlier.pop(message.mid))
            return
        self.put("", text)
        if message.qos:
            self._unacknowledged.append(_Unacknowledged(self._received + 1, message.mid, text))
        self._received += 1

    def _on_subscribe(self, client: Any, _: object, packet_id: int, reasons: Sequence[Any], *rest: object) -> None:
        for topic, reason in zip(self._session.topics, reasons, strict=True):
            if reason.is_failure:
                raise ValueError(f"the broker refuses the subscription to {topic!r}: {reason}")

    def _on_disconnect(self, client: Any, _: object, flags: object, reason: Any, *rest: object) -> None:
        if reason.value == _TAKEN_OVER:
            raise ValueError("another client has connected with the same client_id")
