"""The source of MQTT passes the suite for sources, on a real broker, and the cases that it does not have."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from threading import Semaphore
from typing import Any
from unittest import SkipTest
from uuid import uuid4

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from components.mosquitto import MosquittoBroker
from dsv2.connectors.mqtt import MqttMessage, MqttSink, MqttSource
from dsv2.connectors.mqtt.connection import MqttConnection
from dsv2.connectors.mqtt.receiver import MqttReceiver
from dsv2.connectors.received import ReceivedDiscovery, ReceivedSplit
from dsv2.errors import ConfigurationError, JobError
from dsv2.model import RecordBatch
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset
from dsv2.sinks import SinkBatch, SinkInfo
from dsv2.sources import AssignmentState, SplitEnumeratorContext
from dsv2.testing.connectors import SourceTestSuite
from dsv2.testing.connectors.source_run import SourceRun
from tests.connectors.test_mqtt import UNREACHABLE, tls_of
from tests.durations import ms
from tests.patience import SECONDS, PatientDiscovery, received

_ADDED: list[str] = []


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def text_of(message: MqttMessage) -> str:
    return message.payload.decode()


class PatientSource(MqttSource[str]):
    def create_discovery(
        self, ctx: SplitEnumeratorContext[ReceivedSplit], restored: AssignmentState[ReceivedSplit] | None, /
    ) -> ReceivedDiscovery:
        return PatientDiscovery(self.create_receiver(), lambda: len(_ADDED))


class Device:
    """A broker with a session, and a topic of its own."""

    def __init__(self, broker: MosquittoBroker) -> None:
        self.broker = broker
        self.subscriptions = Semaphore(0)
        self.client_id = f"reader-{uuid4()}"
        self.topic = f"suite/device-{uuid4()}/a"

    def create(self, kind: type[MqttSource[str]] = MqttSource, **arguments: Any) -> MqttSource[str]:
        options = {"topics": [self.topic], "client_id": self.client_id, "decode": text_of, **arguments}
        return kind(self.broker.url, tls=tls_of(self.broker), **options)

    def run(self, offset: SourceOffset = BEFORE_START, **arguments: Any) -> closing[SourceRun]:
        return closing(SourceRun(self.create(**arguments), offset))

    def send(self, *texts: str, topic: Any = None, **options: Any) -> None:
        sink = MqttSink(self.broker.url, topic or self.topic, bytes_of, tls=tls_of(self.broker), **options)
        sink.write(SinkBatch(SinkInfo("job", "out", 1), 0, 0, iter([RecordBatch([*texts])])))

    def await_subscription(self) -> None:
        """Wait until the broker has answered to the next subscription."""
        assert self.subscriptions.acquire(timeout=SECONDS.total_seconds())

    def connect(self, *, clean_start: bool) -> Any:
        """Open a connection of the session, whose id then belongs to it."""
        client = Client(CallbackAPIVersion.VERSION2, client_id=self.client_id, protocol=MQTTv5)
        client.tls_set(str(self.broker.certificate))
        client.username_pw_set(self.broker.USER, self.broker.PASSWORD)
        answers: list[Any] = []
        client.on_connect = lambda *answer: answers.append(answer)
        client.connect("127.0.0.1", self.broker.port, clean_start=clean_start)
        while not answers:
            assert not client.loop(60)
        return client


@pytest.fixture
def device(mosquitto_broker: MosquittoBroker, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A session that has subscribed already."""
    device, answered = Device(mosquitto_broker), MqttReceiver._on_subscribe

    def counted(self: MqttReceiver, *arguments: Any) -> None:
        answered(self, *arguments)
        device.subscriptions.release()

    monkeypatch.setattr(MqttReceiver, "_on_subscribe", counted)
    with device.run() as run:
        assert run.batch() == []
        device.await_subscription()
    return device


def acknowledge_all(run: SourceRun) -> None:
    """Plan the next micro-batch, which has no records."""
    assert run.batch() == []
    assert receiver_of(run).acknowledged == run.driver.positions[0].count


def await_received(receiver: Any, number: int) -> None:
    """Wait for the message with this number. The thread ends if it fails."""
    while receiver._received < number:
        receiver._thread.join(0.01)
        assert receiver._thread.is_alive()


def receiver_of(run: SourceRun) -> Any:
    return run.driver._enumerator._discovery._receiver  # type: ignore[attr-defined]


class TestMqtt(SourceTestSuite[str]):
    splits = 1
    new_splits = False
    exactly_once = False
    secrets = (MosquittoBroker.PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, device: Device) -> None:
        self.device = device
        _ADDED.clear()

    def create_source(self) -> MqttSource[str]:
        return self.device.create(PatientSource)

    def create_unreachable_source(self) -> MqttSource[str]:
        return MqttSource(UNREACHABLE, topics=["suite/a"], client_id="a", decode=text_of, retry_timeout=ms(100))

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.device.send(*texts)
        _ADDED.extend(texts)

    def add_undecodable(self, split: int) -> None:
        self.device.send("\udcff")
        _ADDED.append("undecodable")

    def _run_undecodable(self) -> None:
        _ADDED.clear()  # another job has read them
        super()._run_undecodable()

    def test_each_record_is_read_once(self) -> None:
        raise SkipTest("Only one job can read a message, and the test has several.")

    def test_error_policy_applies_to_undecodable_values(self) -> None:
        raise SkipTest("Only one job can read a message, and the test has several.")

    def test_restarted_source_continues(self) -> None:
        raise SkipTest("A run that ends with its first micro-batch acknowledges nothing.")

    def test_restarted_source_continues_with_another_parallelism(self) -> None:
        raise SkipTest("A run that ends with its first micro-batch acknowledges nothing.")


def test_messages_of_topics_in_order(device: Device) -> None:
    texts = [f"{number}" for number in range(2500)]
    topic = device.topic.replace("/a", "/+")
    with device.run(
        topics=[topic, f"suite/{uuid4()}/#"], decode=lambda message: (message.topic, message.payload)
    ) as run:
        assert run.batch() == []
        device.await_subscription()
        device.send(*texts, topic=lambda text: device.topic.replace("/a", f"/{text[-1]}"))
        found = received(run, len(texts), 900)
    assert found == [(device.topic.replace("/a", f"/{text[-1]}"), text.encode()) for text in texts]


def test_messages_wait_for_the_job(device: Device) -> None:
    device.send("a", "b")
    with device.run() as run:
        assert received(run, 2) == ["a", "b"]


def test_job_that_ends_between_micro_batches_repeats_nothing(device: Device) -> None:
    device.send(*"abc")
    with device.run() as run:
        assert received(run, 3, 2) == [*"abc"]
        acknowledge_all(run)
        offset = run.offset
    device.send("d")
    with device.run(offset) as run:
        assert received(run, 1) == ["d"]


def test_job_that_ends_within_a_micro_batch_repeats_it(device: Device) -> None:
    device.send(*"abcd")
    with device.run() as run:
        assert received(run, 2, 2) == ["a", "b"]
        assert received(run, 1, 1) == ["c"]
        offset = run.offset
    with device.run(offset) as run:
        assert run.repeated() == ["c"]  # from the checkpoint
        assert received(run, 2) == ["c", "d"]  # from the broker
        assert receiver_of(run).acknowledged == 3


def test_plan_that_was_lost_is_received_again(device: Device) -> None:
    device.send(*"abcd")
    with device.run() as run:
        assert received(run, 2, 2) == ["a", "b"]
        before = run.offset
        assert received(run, 2) == ["c", "d"]
        run.offset = before  # the driver died before it was stored
        assert received(run, 2) == ["c", "d"]


def test_connection_that_is_lost(device: Device) -> None:
    device.send(*"abcd")
    with device.run() as run:
        assert received(run, 2, 2) == ["a", "b"]
        receiver = receiver_of(run)
        await_received(receiver, 4)
        receiver._client.socket().shutdown(socket.SHUT_RDWR)
        device.send("e")
        assert received(run, 3) == [*"cde"]
        acknowledge_all(run)
        offset = run.offset
    device.send("f")
    with device.run(offset) as run:
        assert received(run, 1) == ["f"]


def test_broker_waits_while_the_inbox_is_full(device: Device) -> None:
    texts = [f"{number}" for number in range(20)]
    with device.run(records_per_batch=2) as run:
        assert run.batch() == []
        device.send(*texts)
        found = received(run, 2)
        receiver = receiver_of(run)
        await_received(receiver, 2 + 4)
        assert len(receiver._has_come) == 6  # those of the micro-batch, and the inbox
        while len(found) < len(texts):
            found += received(run, 1)
            assert len(receiver._inbox) <= 6
    assert found == texts


def test_session_that_the_broker_has_lost(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packet ids of its messages are those of others in the new session."""
    connect = MqttConnection.connect

    def connect_without_session(*args: Any, **options: Any) -> bool:
        monkeypatch.setattr(MqttConnection, "connect", connect)
        device.connect(clean_start=True).disconnect()
        return connect(*args, **options)

    device.send(*"abc")
    with device.run() as run:
        assert received(run, 2, 2) == ["a", "b"]
        device.await_subscription()
        receiver = receiver_of(run)
        await_received(receiver, 3)
        monkeypatch.setattr(MqttConnection, "connect", connect_without_session)
        receiver._client.socket().shutdown(socket.SHUT_RDWR)
        device.await_subscription()
        device.send("d")
        await_received(receiver, 4)
        assert len(receiver._has_come) == 1
        assert received(run, 2) == ["c", "d"]


def test_retained_message(device: Device) -> None:
    device.send("kept", topic=f"{device.topic}/kept", retain=True)
    with device.run(topics=[f"{device.topic}/#"], decode=lambda message: (message.payload, message.retained)) as run:
        assert received(run, 1) == [(b"kept", True)]
    device.send("", topic=f"{device.topic}/kept", retain=True)  # removes it


def test_messages_without_acknowledgements(device: Device) -> None:
    with device.run(qos=0) as run:
        assert run.batch() == []
        device.await_subscription()
        device.send("a")
        assert received(run, 1) == ["a"]
        assert not receiver_of(run)._has_come


def test_close_ends_the_thread(device: Device) -> None:
    with device.run() as run:
        assert run.batch() == []
        assert any(thread.name == "dsv2 receiver" for thread in threading.enumerate())
    assert not any(thread.name == "dsv2 receiver" for thread in threading.enumerate())


def test_second_client_with_the_same_id(device: Device) -> None:
    """The broker of the tests does not name the reason, unlike later versions."""
    reason = ReasonCode(PacketTypes.DISCONNECT, "Session taken over")
    with pytest.raises(ValueError, match="another client has connected with the same client_id"):
        device.create().create_receiver()._on_disconnect(None, None, None, reason)


def test_topics_that_are_refused(device: Device) -> None:
    with (
        device.run(topics=["a/#/c"]) as run,
        pytest.raises(JobError, match=r"Cannot receive messages as .*: Invalid subscription filter") as failed,
    ):
        run.batch()
    assert MosquittoBroker.PASSWORD not in str(failed.value)
    reasons = [ReasonCode(PacketTypes.SUBACK, "Not authorized")]
    with pytest.raises(ValueError, match=r"the broker refuses the subscription to 'suite/.*': Not authorized"):
        device.create().create_receiver()._on_subscribe(None, None, 1, reasons)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"url": "http://host"}, "MqttSource requires a URL that begins with mqtt:// or mqtts://"),
        ({"topics": []}, "topics must be a list"),
        ({"topics": "a"}, "topics must be a list"),
        ({"client_id": ""}, "client_id must not be empty"),
        ({"qos": 2}, "a qos of 0 or 1, not 2"),
        ({"session_expiry": timedelta(0)}, "session_expiry must be at least 1000 ms"),
        ({"records_per_batch": 0}, "records_per_batch must be"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        MqttSource(**{"url": "mqtt://host", "topics": ["a"], "client_id": "a", "decode": text_of, **arguments})
