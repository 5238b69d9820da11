"""The messages of an MQTT broker, and their receiver."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dsv2.connectors.mqtt.connection import MqttConnection
from dsv2.connectors.received import ReceivedSplit, Receiver

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


class MqttReceiver(Receiver):
    """Receives messages, and acknowledges them when they are in the checkpoint.

    The broker repeats unacknowledged messages in each connection of a session, with the same packet id, which no other
    message has until then. So those that this receiver has are recognized by it.

    Args:
        connection: The broker.
        session: What to receive.
        capacity: The most messages of the inbox, and the most unacknowledged ones.
    """

    def __init__(self, connection: MqttConnection, session: MqttSession, capacity: int) -> None:
        super().__init__(capacity)
        self._connection = connection
        self._session = session
        self._what = f"Cannot receive messages as {session.client_id!r}"
        self._received = 0  # the number of the last message
        self._packet_ids: deque[tuple[int, int]] = deque()  # of unacknowledged messages, after their numbers
        self._has_come: dict[int, bool] = {}  # packet id -> whether the message has come in this connection
        self._expected: set[int] = set()  # packet ids to acknowledge when their messages have come
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
                self._client.disconnect()

    def _connect(self) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties
        from paho.mqtt.subscribeoptions import SubscribeOptions

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = self._capacity
        properties.SessionExpiryInterval = self._session.expiry_seconds
        has_session = self._connection.connect(self._client, self.pause, clean_start=False, properties=properties)
        if not has_session:  # its packet ids would be those of other messages
            self._packet_ids.clear()
            self._has_come.clear()
            self._expected.clear()
        self._has_come = dict.fromkeys(self._has_come, False)
        options = SubscribeOptions(self._session.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        self._client.subscribe([(topic, options) for topic in self._session.topics])

    def _acknowledge(self) -> None:
        while self._packet_ids and self._packet_ids[0][0] <= self.acknowledged:
            _, packet_id = self._packet_ids.popleft()
            if self._has_come.pop(packet_id):
                self._client.ack(packet_id, 1)
            else:
                self._expected.add(packet_id)

    def _on_message(self, client: Any, _: object, message: Any) -> None:
        packet_id = message.mid if message.qos else 0
        if packet_id in self._expected:
            self._expected.remove(packet_id)
            client.ack(packet_id, 1)
        elif packet_id in self._has_come:
            self._has_come[packet_id] = True
        else:
            self._received += 1
            if packet_id:
                self._packet_ids.append((self._received, packet_id))
                self._has_come[packet_id] = True
            self.put("", json.dumps([message.topic, b64encode(message.payload).decode(), message.retain]))

    def _on_subscribe(self, client: Any, _: object, packet_id: int, reasons: Sequence[Any], *rest: object) -> None:
        for topic, reason in zip(self._session.topics, reasons, strict=True):
            if reason.is_failure:
                raise ValueError(f"the broker refuses the subscription to {topic!r}: {reason}")

    def _on_disconnect(self, client: Any, _: object, flags: object, reason: Any, *rest: object) -> None:
        if reason.value == _TAKEN_OVER:
            raise ValueError("another client has connected with the same client_id")
