"""A session of an MQTT broker in tests, and a source that waits for all that was sent to it."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from components.mosquitto import MosquittoBroker
from dsv2.connectors.mqtt import MqttMessage, MqttSink, MqttSource
from dsv2.connectors.mqtt.receiver import MqttReceiver
from dsv2.connectors.received import ReceivedDiscovery, ReceivedSplit
from dsv2.model import RecordBatch
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset
from dsv2.sinks import SinkBatch, SinkInfo
from dsv2.sources import AssignmentState, Portion, SplitEnumeratorContext
from dsv2.testing.connectors.source_run import SourceRun
from tests.patience import SECONDS

_CAPACITY = 1000  # so that marks arrive
_MARKS = "mark"
_DEVICES: dict[str, Device] = {}


def text_of(message: MqttMessage) -> str:
    return message.payload.decode()


class MarkedReceiver(MqttReceiver):
    """Removes marks. The broker sends one after all messages that it had before."""

    mark = ""

    def await_mark(self, mark: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.mark == mark or self._failure, SECONDS.total_seconds())

    def _on_message(self, client: Any, _: object, message: Any) -> None:
        if not message.topic.endswith(_MARKS):
            super()._on_message(client, _, message)
            return
        client.ack(message.mid, message.qos)
        with self._changed:
            self.mark = message.payload.decode()
            self._changed.notify_all()


class MarkedDiscovery(ReceivedDiscovery):
    """Waits for all messages that were sent, also repeated ones, as the suite plans micro-batches at once."""

    def __init__(self, receiver: MarkedReceiver, device: Device) -> None:
        super().__init__(receiver)
        self._marked_receiver = receiver
        self._device = device
        self._sent = -1

    def advance(self, split: ReceivedSplit, limit: int | None, /) -> Portion[ReceivedSplit] | None:
        if not self._is_started:
            super().advance(split, 0)
        if self._sent != self._device.sent:
            self._sent = self._device.sent
            self._device.mark(mark := str(uuid4()))
            self._marked_receiver.await_mark(mark)
        return super().advance(split, limit)


class MarkedSource(MqttSource[str]):
    def create_receiver(self) -> MarkedReceiver:
        return MarkedReceiver(self._connection, self._session, _CAPACITY)

    def create_discovery(
        self, ctx: SplitEnumeratorContext[ReceivedSplit], restored: AssignmentState[ReceivedSplit] | None, /
    ) -> ReceivedDiscovery:
        return MarkedDiscovery(self.create_receiver(), _DEVICES[self._session.client_id])


class Device:
    """A session of a broker, and a topic of its own.

    Args:
        url: The URL of the broker.
        certificate: The certificate of the broker.

    Attributes:
        topic: The topic.
        client_id: The client id of the session.
        sent: How often messages were sent.
    """

    def __init__(self, url: str, certificate: Path | str) -> None:
        self.client_id = f"reader-{uuid4()}"
        self.sent = 0
        self._url = url
        self._certificate = str(certificate)
        self._folder = f"suite/device-{uuid4()}"
        self.topic = f"{self._folder}/a"
        self._topics = [self.topic, f"{self._folder}/{_MARKS}"]
        _DEVICES[self.client_id] = self

    def create(self, kind: type[MqttSource[Any]] = MqttSource, **arguments: Any) -> Any:
        options = {"topics": self._topics, "client_id": self.client_id, "decode": text_of, **arguments}
        return kind(self._url, tls=self._tls(), **options)

    def run(self, offset: SourceOffset = BEFORE_START, **arguments: Any) -> closing[SourceRun]:
        return closing(SourceRun(self.create(**arguments), offset))

    def send(self, *texts: str, topic: Any = None, **options: Any) -> None:
        self._publish(texts, topic or self.topic, **options)
        self.sent += 1

    def mark(self, mark: str) -> None:
        """Send a mark, which ``MarkedReceiver`` receives after all that was sent before."""
        self._publish([mark], self._topics[-1])

    def subscribe(self) -> None:
        """Create the session, which keeps messages from now on."""
        client = self.connect(clean_start=True, expiry_seconds=3600)
        answers: list[Any] = []
        client.on_subscribe = lambda *answer: answers.append(answer)
        client.subscribe([(topic, 1) for topic in self._topics])
        while not answers:
            assert not client.loop(60)
        client.disconnect()

    def connect(self, *, clean_start: bool, expiry_seconds: int = 0) -> Any:
        """Open a connection of the session, whose id then belongs to it."""
        client = Client(CallbackAPIVersion.VERSION2, client_id=self.client_id, protocol=MQTTv5)
        client.tls_set(self._certificate)
        client.username_pw_set(MosquittoBroker.USER, MosquittoBroker.PASSWORD)
        answers: list[Any] = []
        client.on_connect = lambda *answer: answers.append(answer)
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = expiry_seconds
        port = int(self._url.rpartition(":")[2])
        client.connect("127.0.0.1", port, clean_start=clean_start, properties=properties)
        while not answers:
            assert not client.loop(60)
        return client

    def _publish(self, texts: Sequence[str], topic: Any, **options: Any) -> None:
        payload = partial(str.encode, errors="surrogateescape")
        sink = MqttSink(self._url, topic, payload, tls=self._tls(), **options)
        sink.write(SinkBatch(SinkInfo("job", "out", 1), 0, 0, iter([RecordBatch([*texts])])))

    def _tls(self) -> partial[ssl.SSLContext]:
        return partial(ssl.create_default_context, cafile=self._certificate)
