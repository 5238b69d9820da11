"""The sink of MQTT passes the suite for sinks, on a real broker, and the cases that it does not have."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from components.mosquitto import MosquittoBroker
from dsv2.connectors.mqtt import MqttSink
from dsv2.connectors.mqtt.connection import MqttConnection
from dsv2.errors import ConfigurationError, JobError
from dsv2.model import RecordBatch
from dsv2.sinks import SinkBatch, SinkInfo
from dsv2.testing.connectors import SinkTestSuite
from tests.durations import ms
from tests.support import wait_until

UNREACHABLE = f"mqtt://user:{MosquittoBroker.PASSWORD.replace('/', '%2F')}@127.0.0.1:1"


class Subscriber:
    """Receives all messages of the topics below ``suite``, from when it is created."""

    def __init__(self, broker: MosquittoBroker) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        self._client.tls_set(str(broker.certificate))
        self._client.username_pw_set(broker.USER, broker.PASSWORD)
        self._messages: list[Any] = []
        self._answers = 0
        self._client.on_connect = self._client.on_subscribe = self._client.on_unsubscribe = self._answered
        self._client.on_message = lambda client, _, message: self._messages.append(message)
        self._client.connect("127.0.0.1", broker.port, keepalive=0)  # it is silent while a test does something else
        self._await_answer()
        self._client.subscribe("suite/#", qos=1)
        self._await_answer()

    def messages(self) -> list[Any]:
        """The messages up to now: the broker sends them before an answer."""
        self._client.unsubscribe("another topic")
        self._await_answer()
        return self._messages

    def close(self) -> None:
        self._client.disconnect()

    def _answered(self, *answer: Any) -> None:
        self._answers += 1

    def _await_answer(self) -> None:
        before = self._answers
        while self._answers == before:
            assert not self._client.loop(60)


@pytest.fixture
def subscriber(mosquitto_broker: MosquittoBroker) -> Iterator[Subscriber]:
    subscriber = Subscriber(mosquitto_broker)
    yield subscriber
    subscriber.close()


def tls_of(broker: MosquittoBroker) -> partial[ssl.SSLContext]:
    return partial(ssl.create_default_context, cafile=str(broker.certificate))


def write(broker: MosquittoBroker, *records: str, **options: Any) -> None:
    topic = options.pop("topic", "suite/a")
    sink = MqttSink(broker.url, topic, str.encode, tls=tls_of(broker), **options)
    sink.write(SinkBatch(SinkInfo("job", "out", 1), 0, 0, iter([RecordBatch(list(records))])))


class TestMqttSink(SinkTestSuite[str]):
    secrets = (MosquittoBroker.PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, mosquitto_broker: MosquittoBroker, subscriber: Subscriber) -> None:
        self.broker, self.subscriber = mosquitto_broker, subscriber

    def create_sink(self) -> MqttSink[str]:
        return MqttSink(self.broker.url, "suite/a", str.encode, tls=tls_of(self.broker))

    def create_unreachable_sink(self) -> MqttSink[str]:
        return MqttSink(UNREACHABLE, "suite/a", str.encode, retry_timeout=ms(100))

    def create_unwritable_record(self) -> str:
        return "\udcff"

    def read(self) -> Iterable[str]:
        return [message.payload.decode() for message in self.subscriber.messages()]


def test_messages_have_the_topics_and_order_of_records(
    mosquitto_broker: MosquittoBroker, subscriber: Subscriber
) -> None:
    """More messages than are published at once."""
    texts = [f"{number}" for number in range(2500)]
    write(mosquitto_broker, *texts, topic=lambda text: f"suite/{text[-1]}")
    found = subscriber.messages()
    assert [message.payload.decode() for message in found] == texts
    assert (found[1234].topic, found[1234].qos) == ("suite/4", 1)


def test_messages_without_acknowledgements(mosquitto_broker: MosquittoBroker, subscriber: Subscriber) -> None:
    """The broker has not received them yet when the micro-batch is complete."""
    texts = [f"{number}" for number in range(500)]
    write(mosquitto_broker, *texts, qos=0)
    wait_until(lambda: len(subscriber.messages()) == len(texts))
    found = subscriber.messages()
    assert [message.payload.decode() for message in found] == texts
    assert {message.qos for message in found} == {0}


def test_no_connection_is_idle_while_records_are_computed(
    mosquitto_broker: MosquittoBroker, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker would close it when functions take a minute."""
    open_now, opened = [False], MqttConnection.opened

    @contextmanager
    def watched(self: MqttConnection, what: str) -> Iterator[Any]:
        with opened(self, what) as client:
            open_now[0] = True
            yield client
            open_now[0] = False

    def computed() -> Iterator[RecordBatch[str]]:
        for number in range(5):
            assert not open_now[0]
            yield RecordBatch([f"{number}"] * 500)

    monkeypatch.setattr(MqttConnection, "opened", watched)
    sink = MqttSink(mosquitto_broker.url, "suite/a", str.encode, tls=tls_of(mosquitto_broker))
    sink.write(SinkBatch(SinkInfo("job", "out", 1), 0, 0, computed()))
    assert len(subscriber.messages()) == 2500


def test_broker_that_takes_few_messages_at_a_time(
    mosquitto_broker: MosquittoBroker, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsv2.connectors.mqtt.connection.RECEIVE_MAXIMUM", 7)
    publish, unacknowledged = Client.publish, list[Any]()

    def counted(*arguments: Any) -> Any:
        unacknowledged[:] = [message for message in unacknowledged if not message.is_published()]
        assert len(unacknowledged) < 7
        unacknowledged.append(publish(*arguments))
        return unacknowledged[-1]

    monkeypatch.setattr(Client, "publish", counted)
    write(mosquitto_broker, *map(str, range(50)))
    assert [message.payload.decode() for message in subscriber.messages()] == [*map(str, range(50))]


def test_retained_message_is_kept_for_later_subscribers(mosquitto_broker: MosquittoBroker) -> None:
    write(mosquitto_broker, "old", "new", topic="suite/kept", retain=True)
    later = Subscriber(mosquitto_broker)
    assert [message.payload for message in later.messages()] == [b"new"]
    later.close()
    write(mosquitto_broker, "", topic="suite/kept", retain=True)  # ends it


def test_what_the_broker_refuses_fails_the_job(mosquitto_broker: MosquittoBroker) -> None:
    with pytest.raises(JobError, match=r"Cannot write at mqtts://.*refuses 1 messages: Not authorized"):
        write(mosquitto_broker, "a", "b", topic=lambda text: "refused/x" if text == "b" else "suite/a")


def test_wrong_password_fails_at_once_and_is_not_shown(mosquitto_broker: MosquittoBroker) -> None:
    url = mosquitto_broker.url.replace("s3cret", "wr-ng")
    sink = MqttSink(url, "suite/a", str.encode, tls=tls_of(mosquitto_broker))
    with pytest.raises(JobError, match="the broker refuses the connection: Not authorized") as failed:
        sink.begin(SinkInfo("job", "out", 1), 0)
    assert "wr-ng" not in str(failed.value)


def test_secrets_are_hidden_in_what_the_client_says(mosquitto_broker: MosquittoBroker) -> None:
    connection = MqttConnection("MqttSink", mosquitto_broker.url, tls_of(mosquitto_broker), ms(60_000))
    said = r"Cannot write at mqtts://.*: \*\*\*, mqtts://\*\*\*@.* is wrong"
    with pytest.raises(JobError, match=said) as failed, connection.opened("Cannot write"):
        raise ValueError(f"{mosquitto_broker.PASSWORD}, {mosquitto_broker.url} is wrong")
    assert failed.value.__cause__ is None


def test_unknown_certificate_fails_the_job(mosquitto_broker: MosquittoBroker) -> None:
    sink = MqttSink(mosquitto_broker.url, "suite/a", str.encode, retry_timeout=ms(1))
    with pytest.raises(JobError, match="SSLCertVerificationError"):
        sink.begin(SinkInfo("job", "out", 1), 0)


def test_invalid_arguments() -> None:
    for url in ("localhost:1883", "http://localhost", "mqtt://"):
        with pytest.raises(ConfigurationError, match="requires a URL that begins with mqtt://"):
            MqttSink(url, "a", str.encode)
    qos: Any = 2
    with pytest.raises(ConfigurationError, match="a qos of 0 or 1, not 2"):
        MqttSink("mqtt://host", "a", str.encode, qos=qos)
    topics: list[Any] = ["", "a/+", "#", "a\0", "ä" * 40_000, None]
    for topic in topics:
        with pytest.raises((TypeError, ValueError), match="topic"):
            MqttSink[Any]("mqtt://host", lambda record: record, lambda record: b"").check_record(topic)
