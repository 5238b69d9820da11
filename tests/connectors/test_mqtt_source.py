"""The source of MQTT passes the suite for sources, on a real broker, and the cases that it does not have."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from typing import Any
from unittest import SkipTest
from uuid import uuid4

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from components.mosquitto import MosquittoBroker
from components.python_path import python_path
from dsv2.connectors.mqtt import MqttSource
from dsv2.connectors.mqtt.connection import MqttConnection
from dsv2.connectors.mqtt.receiver import MqttReceiver, message_of
from dsv2.errors import ConfigurationError
from dsv2.testing.connectors import SourceTestSuite
from dsv2.testing.connectors.source_run import SourceRun
from tests.connectors.test_mqtt import UNREACHABLE
from tests.durations import ms
from tests.mqtt_device import Device, MarkedSource, text_of
from tests.patience import SECONDS, received, receiver_of

_SUBSCRIBED = Semaphore(0)


@pytest.fixture
def device(mosquitto_broker: MosquittoBroker, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A session that exists already."""
    answered = MqttReceiver._on_subscribe

    def counted(self: MqttReceiver, *arguments: Any) -> None:
        answered(self, *arguments)
        _SUBSCRIBED.release()

    monkeypatch.setattr(MqttReceiver, "_on_subscribe", counted)
    device = Device(mosquitto_broker.url, mosquitto_broker.certificate)
    device.subscribe()
    while _SUBSCRIBED.acquire(blocking=False):
        pass
    return device


def await_subscription() -> None:
    """Wait until the broker has answered to the next subscription."""
    assert _SUBSCRIBED.acquire(timeout=SECONDS.total_seconds())


def complete(run: SourceRun) -> None:
    """Complete the last micro-batch."""
    run.driver.commit(run.offset)


def await_received(receiver: Any, number: int) -> None:
    """Wait for the message with this number. The thread ends if it fails."""
    while receiver._received < number:
        receiver._thread.join(0.01)
        assert receiver._thread.is_alive()


def drop_connection(run: SourceRun) -> None:
    """Drop the connection below TLS, whose state belongs to the thread of the receiver."""
    socket.socket.shutdown(receiver_of(run)._client.socket(), socket.SHUT_RDWR)


class TestMqtt(SourceTestSuite[str]):
    splits = 1
    new_splits = False
    exactly_once = False
    secrets = (MosquittoBroker.PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, device: Device) -> None:
        self.device = device

    def create_source(self) -> MqttSource[str]:
        return self.device.create(MarkedSource)  # type: ignore[no-any-return]

    def create_unreachable_source(self) -> MqttSource[str]:
        return MqttSource(UNREACHABLE, topics=["suite/a"], client_id="a", decode=text_of, retry_timeout=ms(100))

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.device.send(*texts)

    def add_undecodable(self, split: int) -> None:
        self.device.send("\udcff")

    def test_each_record_is_read_once(self) -> None:
        raise SkipTest("Only one job can read a message, and the test has several.")

    def test_error_policy_applies_to_undecodable_values(self) -> None:
        raise SkipTest("Only one job can read a message, and the test has several.")

    def test_restarted_source_continues(self) -> None:
        raise SkipTest("Its runs complete no micro-batch, so nothing is acknowledged.")

    def test_restarted_source_continues_with_another_parallelism(self) -> None:
        raise SkipTest("Its runs complete no micro-batch, so nothing is acknowledged.")


def test_messages_of_topics_in_order(device: Device) -> None:
    texts = [f"{number}" for number in range(2500)]
    topic = device.topic.replace("/a", "/+")
    with device.run(
        topics=[topic, f"suite/{uuid4()}/#"], decode=lambda message: (message.topic, message.payload)
    ) as run:
        assert run.batch() == []
        await_subscription()
        device.send(*texts, topic=lambda text: device.topic.replace("/a", f"/{text[-1]}"))
        found = received(run, len(texts), 900)
    assert found == [(device.topic.replace("/a", f"/{text[-1]}"), text.encode()) for text in texts]


def test_messages_wait_for_the_job(device: Device) -> None:
    device.send("a", "b")
    with device.run() as run:
        assert received(run, 2) == ["a", "b"]


def test_job_that_ends_after_a_micro_batch_repeats_nothing(device: Device) -> None:
    device.send(*"abc")
    with device.run() as run:
        assert received(run, 3, 2) == [*"abc"]
        complete(run)
        offset = run.offset
    device.send("d")
    with device.run(offset) as run:
        assert received(run, 1) == ["d"]


def test_acknowledgements_arrive_although_messages_are_unread(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed while the fourth message and what follows it are not read."""
    put = MqttReceiver.put

    def blocked(self: MqttReceiver, position: str, message: str) -> None:
        if self._received == 3:
            with self._changed:
                self._changed.wait_for(lambda: self.is_closed)
        put(self, position, message)

    device.send(*"abcd")
    with monkeypatch.context() as patch, device.run() as run:
        patch.setattr(MqttReceiver, "put", blocked)
        assert received(run, 3) == [*"abc"]
        complete(run)
        offset = run.offset
    with device.run(offset) as run:
        assert received(run, 1) == ["d"]


def test_run_that_plans_nothing_more_has_acknowledged_all(device: Device) -> None:
    """As with ``Trigger.available_now()`` on Spark, which does not notify of the last micro-batch."""
    device.send(*"abc")
    with device.run() as run:
        assert received(run, 3) == [*"abc"]
        assert run.batch() == []
        offset = run.offset
    device.send("d")
    with device.run(offset) as run:
        assert received(run, 1) == ["d"]


def test_job_that_ends_within_a_micro_batch_repeats_it(device: Device) -> None:
    device.send(*"abcd")
    with device.run() as run:
        assert received(run, 2) == ["a", "b"]
        assert received(run, 1) == ["c"]
        offset = run.offset
    with device.run(offset) as run:
        assert run.repeated() == ["c"]  # from the checkpoint
        assert received(run, 2) == ["c", "d"]  # from the broker


def test_plan_that_was_lost_is_received_again(device: Device) -> None:
    device.send(*"abcd")
    with device.run() as run:
        assert received(run, 2) == ["a", "b"]
        before = run.offset
        assert received(run, 2) == ["c", "d"]
        run.offset = before  # the driver died before it was stored
        assert received(run, 2) == ["c", "d"]


def test_connection_that_is_lost_before_messages_are_acknowledged(device: Device) -> None:
    device.send(*"abcd")
    with device.run() as run:
        assert received(run, 2) == ["a", "b"]
        await_subscription()
        await_received(receiver_of(run), 4)
        drop_connection(run)
        await_subscription()
        device.send("e")
        assert received(run, 3) == [*"cde"]  # those that the broker repeats are recognized
        complete(run)
        offset = run.offset
    device.send("f")
    with device.run(offset) as run:
        assert received(run, 1) == ["f"]


def test_connections_that_are_lost_again_and_again(device: Device) -> None:
    """A lost acknowledgement repeats a message, and none is lost."""
    texts = [f"{number}" for number in range(15)]
    found = list[str]()
    with device.run(records_per_batch=2) as run:
        for text in texts:
            device.send(text)
            while text not in found:
                found += received(run, 1)
            drop_connection(run)
        complete(run)
        offset = run.offset
    assert list(dict.fromkeys(found)) == texts
    device.send("last")
    with device.run(offset) as run:
        while "last" not in found:
            found += received(run, 1)
    assert {*found} == {*texts, "last"}


def test_only_the_same_message_is_taken_for_a_repetition(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may give the packet id of a message to another one."""
    receiver: Any = device.create().create_receiver()
    acknowledged: list[int] = []
    receiver._client = SimpleNamespace(ack=lambda packet_id, qos: acknowledged.append(packet_id), subscribe=list)
    monkeypatch.setattr(MqttConnection, "connect", lambda *args, **options: True)

    def receive(packet_id: int, text: str, *, dup: bool) -> list[bytes]:
        message = SimpleNamespace(mid=packet_id, qos=1, dup=dup, topic="a", payload=text.encode(), retain=False)
        receiver._on_message(receiver._client, None, message)
        return [message_of(text).payload for _, text in receiver.take(None)]

    assert receive(1, "a", dup=False) == [b"a"]
    assert receive(2, "b", dup=False) == [b"b"]
    receiver._connect()
    receiver.acknowledged = 2
    receiver._acknowledge()
    assert acknowledged == []  # they did not come in this connection
    assert receive(1, "a", dup=True) == []
    assert receive(2, "b", dup=False) == [b"b"]
    assert receive(2, "c", dup=True) == [b"c"]
    receiver._acknowledge()
    assert acknowledged == [1]
    receiver._connect()
    assert receive(1, "a", dup=True) == [b"a"]  # perhaps another one, as the broker may have the acknowledgement
    monkeypatch.setattr(MqttConnection, "connect", lambda *args, **options: False)
    receiver._connect()
    assert receive(2, "c", dup=True) == [b"c"]  # of a new session


def test_broker_waits_while_the_inbox_is_full(device: Device) -> None:
    texts = [f"{number}" for number in range(20)]
    with device.run(records_per_batch=2) as run:
        assert run.batch() == []
        device.send(*texts)
        found = received(run, 2)
        receiver = receiver_of(run)
        await_received(receiver, 6)
        assert len(receiver._unacknowledged) == 6  # those of the micro-batch, and the inbox
        while len(found) < len(texts):
            found += received(run, 1)
            assert len(receiver._inbox) <= 6
    assert found == texts


def test_session_that_the_broker_has_lost(
    device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The packet ids of its messages are those of others in the new session."""
    connect = MqttConnection.connect

    def connect_without_session(*args: Any, **options: Any) -> bool:
        monkeypatch.setattr(MqttConnection, "connect", connect)
        device.connect(clean_start=True).disconnect()
        return connect(*args, **options)

    device.send(*"abc")
    with device.run() as run:
        assert received(run, 2) == ["a", "b"]
        await_subscription()
        receiver = receiver_of(run)
        await_received(receiver, 3)
        monkeypatch.setattr(MqttConnection, "connect", connect_without_session)
        drop_connection(run)
        await_subscription()
        device.send("d")
        await_received(receiver, 4)
        assert len(receiver._unacknowledged) == 1
        assert received(run, 2) == ["c", "d"]
    (record,) = [record for record in caplog.records if record.name == "dsv2.connectors.mqtt.receiver"]
    assert record.levelno == logging.WARNING
    assert "messages may be lost" in record.getMessage()
    assert MosquittoBroker.PASSWORD not in record.getMessage()


def test_retained_message(device: Device) -> None:
    device.send("kept", topic=f"{device.topic}/kept", retain=True)
    with device.run(topics=[f"{device.topic}/#"], decode=lambda message: (message.payload, message.retained)) as run:
        assert received(run, 1) == [(b"kept", True)]
    device.send("", topic=f"{device.topic}/kept", retain=True)  # removes it


def test_messages_without_acknowledgements(device: Device) -> None:
    with device.run(qos=0) as run:
        assert run.batch() == []
        await_subscription()
        device.send("a")
        assert received(run, 1) == ["a"]
        assert not receiver_of(run)._unacknowledged


def test_close_ends_the_thread(device: Device) -> None:
    with device.run() as run:
        assert run.batch() == []
        thread = receiver_of(run)._thread
        assert thread.is_alive()
    thread.join(SECONDS.total_seconds())
    assert not thread.is_alive()


def test_second_client_with_the_same_id(device: Device) -> None:
    """The broker of the tests does not name the reason, unlike later versions."""
    reason = ReasonCode(PacketTypes.DISCONNECT, "Session taken over")
    with pytest.raises(ValueError, match="another client has connected with the same client_id"):
        device.create().create_receiver()._on_disconnect(None, None, None, reason)


def test_topics_that_are_refused(device: Device) -> None:
    reasons = [ReasonCode(PacketTypes.SUBACK, "Not authorized")]
    with pytest.raises(ValueError, match=r"the broker refuses the subscription to 'suite/.*': Not authorized"):
        device.create(topics=["suite/a"]).create_receiver()._on_subscribe(None, None, 1, reasons)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"url": "http://host"}, "MqttSource requires a URL that begins with mqtt:// or mqtts://"),
        ({"topics": []}, "topics must be a list"),
        ({"topics": "a"}, "topics must be a list"),
        ({"topics": ["a", ""]}, "topics must be a list"),
        ({"topics": ["a/#/c"]}, r"topics must be a list of topics, in which .* not \['a/#/c'\]"),
        ({"topics": ["a/b#"]}, "topics must be a list"),
        ({"topics": ["a/b+/c"]}, "topics must be a list"),
        ({"client_id": ""}, "client_id must not be empty"),
        ({"qos": 2}, "a qos of 0 or 1, not 2"),
        ({"session_expiry": timedelta(0)}, "session_expiry must be at least 1000 ms"),
        ({"records_per_batch": 0}, "records_per_batch must be"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        MqttSource(**{"url": "mqtt://host", "topics": ["a"], "client_id": "a", "decode": text_of, **arguments})


@pytest.mark.parametrize("topic", ["#", "+", "/", "a", "a/#", "+/b/+", "a//#", "$share/group/a/+"])
def test_valid_topics(topic: str) -> None:
    MqttSource("mqtt://host", topics=[topic], client_id="a", decode=text_of)


@pytest.mark.nightly
@pytest.mark.parametrize("kills", [30, 40])
def test_processes_that_are_killed_lose_nothing(mosquitto_broker: MosquittoBroker, tmp_path: Path, kills: int) -> None:
    """``kill -9`` at each of the first steps of jobs that continue from one checkpoint, behind the other tests."""
    command = [sys.executable, "-m", "tests.killed_mqtt_job", mosquitto_broker.url]
    command += [str(mosquitto_broker.certificate), str(tmp_path), str(kills)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert (result["killed"], result["ended"]) == (kills, 0)
    assert {*result["read"]} == {*result["sent"]}
