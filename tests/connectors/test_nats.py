"""NATS JetStream passes the suites for connectors, on a real server, and the cases that they do not have."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from unittest import SkipTest

import nats
import pytest
from nats.aio.client import Client as NatsClient
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from paho.mqtt.client import Client, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion

from components.nats import NatsServer
from dsv2.connectors.nats import NatsMessage, NatsSink, NatsSource
from dsv2.connectors.nats.connection import NatsConnection
from dsv2.errors import ConfigurationError, JobError
from dsv2.model import RecordBatch
from dsv2.sinks import SinkBatch, SinkInfo
from dsv2.testing.connectors import SinkTestSuite, SourceTestSuite
from dsv2.testing.connectors.source_run import SourceRun
from tests.durations import ms
from tests.support import wait_until

NUMBERS = itertools.count()
LOGIN = {"user": NatsServer.USER, "password": NatsServer.PASSWORD}
UNREACHABLE = f"tls://{NatsServer.USER}:{NatsServer.PASSWORD}@127.0.0.1:1"


class Streams:
    """Creates, fills and reads streams. A stream has the subjects ``<stream>.<any>``."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.tls = partial(ssl.create_default_context, cafile=str(server.certificate))

    def create(self, **config: Any) -> str:
        stream = f"stream{next(NUMBERS)}"
        self.run(lambda jet: jet.add_stream(StreamConfig(stream, subjects=[f"{stream}.*"], **config)))
        return stream

    def add(self, subject: str, *values: bytes) -> None:
        async def publish(jet: JetStreamContext) -> None:
            for value in values:
                await jet.publish(subject, value)

        self.run(publish)

    def read(self, stream: str) -> list[Any]:
        """The messages of a stream."""

        async def messages(jet: JetStreamContext) -> list[Any]:
            state = (await jet.stream_info(stream)).state
            return [await jet.get_msg(stream, number) for number in range(state.first_seq, state.last_seq + 1)]

        found: list[Any] = self.run(messages)
        return found

    def run(self, call: Any) -> Any:
        async def called() -> Any:
            async with await nats.connect(self.server.url, tls=self.tls(), connect_timeout=60, **LOGIN) as client:
                return await call(client.jetstream(timeout=60))

        return asyncio.run(called())


@pytest.fixture
def streams(nats_server: NatsServer) -> Streams:
    return Streams(nats_server)


def text_of(message: NatsMessage) -> str:
    return message.data.decode()


class StreamSuite(SourceTestSuite[str]):
    bounded = False
    new_splits = False
    secrets = (NatsServer.PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, streams: Streams) -> None:
        self.system = streams
        self.names = [streams.create() for _ in range(self.splits)]

    def source(self, url: str, retry_ms: int) -> NatsSource[str]:
        options: Any = {"retry_timeout": ms(retry_ms), "options": LOGIN, "tls": self.system.tls}
        return NatsSource(url, streams=self.names, decode=text_of, bounded=self.bounded, **options)

    def create_source(self) -> NatsSource[str]:
        return self.source(self.system.server.url, 60_000)

    def create_unreachable_source(self) -> NatsSource[str]:
        return self.source(UNREACHABLE, 100)

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.system.add(f"{self.names[split]}.a", *(text.encode() for text in texts))

    def add_undecodable(self, split: int) -> None:
        self.system.add(f"{self.names[split]}.a", b"\xff")


class TestNatsStreams(StreamSuite): ...


class TestBoundedNatsStreams(StreamSuite):
    bounded = True


class TestNatsSink(SinkTestSuite[str]):
    exactly_once = True  # within the duplicate window
    secrets = (NatsServer.PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, streams: Streams) -> None:
        self.system = streams
        self.stream = streams.create()

    def sink(self, url: str, retry_ms: int) -> NatsSink[str]:
        options: Any = {"retry_timeout": ms(retry_ms), "options": LOGIN, "tls": self.system.tls}
        return NatsSink(url, f"{self.stream}.a", str.encode, **options)

    def create_sink(self) -> NatsSink[str]:
        return self.sink(self.system.server.url, 60_000)

    def create_unreachable_sink(self) -> NatsSink[str]:
        return self.sink(UNREACHABLE, 100)

    def create_unwritable_record(self) -> str:
        return "\udcff"

    def read(self) -> Iterable[str]:
        return [(message.data or b"").decode() for message in self.system.read(self.stream)]

    def test_other_parallelism_within_a_micro_batch(self) -> None:
        raise SkipTest("The documentation of the sink excludes it.")


def source_of(streams: Streams, stream: str, **options: Any) -> NatsSource[NatsMessage]:
    login: Any = {"options": LOGIN, "tls": streams.tls}
    return NatsSource(streams.server.url, streams=[stream], decode=lambda message: message, **login, **options)


def write(streams: Streams, batch_id: int, *records: str, subtask: int = 0, **options: Any) -> None:
    login: Any = {"options": LOGIN, "tls": streams.tls}
    sink = NatsSink[str](streams.server.url, lambda text: text.partition("=")[0], str.encode, **login, **options)
    sink.write(SinkBatch(SinkInfo("job", "out", 2), subtask, batch_id, iter([RecordBatch(list(records))])))


def test_messages_of_a_subject_are_read_in_parts(streams: Streams) -> None:
    """Three thousand messages, where some others lie between."""
    stream = streams.create()
    write(streams, 0, *(f"{stream}.{'abb'[number % 3]}={number}" for number in range(4500)))
    run = SourceRun(source_of(streams, stream, subject=f"{stream}.b"))
    texts = [f"{stream}.b={number}".encode() for number in range(4500) if number % 3]
    assert [message.data for message in run.batch(4498)] == texts[:-2]
    (batch,) = run.batches()[-1:]
    assert [message.timestamp for message in batch.records] == list(batch.timestamps or ())
    assert [message.data for message in run.batch(10)] == texts[-2:]
    assert not run.plan_next()


def test_messages_that_devices_publish_by_mqtt_are_read(streams: Streams) -> None:
    """The bridge that docs/connectors.md recommends."""
    streams.run(lambda jet: jet.add_stream(StreamConfig("sensors", subjects=["sensors.>"])))
    device = Client(CallbackAPIVersion.VERSION2, "device", protocol=MQTTv311)
    device.username_pw_set(NatsServer.USER, NatsServer.PASSWORD)
    device.connect("127.0.0.1", streams.server.mqtt_port)
    published = [device.publish(f"sensors/{number}/heat", f"{number}", qos=1) for number in range(3)]
    while not all(message.is_published() for message in published):
        assert not device.loop(60)
    device.disconnect()
    wait_until(lambda: streams.run(lambda jet: jet.stream_info("sensors")).state.messages == 3)  # after the answers
    run = SourceRun(source_of(streams, "sensors"))
    assert [(message.subject, message.data) for message in run.batch()] == [
        (f"sensors.{number}.heat", f"{number}".encode()) for number in range(3)
    ]


def test_messages_are_read_where_an_event_loop_runs(streams: Streams, caplog: pytest.LogCaptureFixture) -> None:
    """As in a notebook. Closed connections leave nothing in its log."""
    stream = streams.create()
    streams.add(f"{stream}.a", b"0")
    caplog.clear()

    async def read() -> list[NatsMessage]:
        return SourceRun(source_of(streams, stream)).batch()

    assert [message.data for message in asyncio.run(read())] == [b"0"]
    assert not caplog.records


def test_deleted_messages_leave_gaps(streams: Streams) -> None:
    stream = streams.create()
    streams.add(f"{stream}.a", *(b"%d" % number for number in range(6)))
    for number in (3, 6):
        streams.run(lambda jet, number=number: jet.delete_msg(stream, number))
    run = SourceRun(source_of(streams, stream))
    assert [message.data for message in run.batch()] == [b"0", b"1", b"3", b"4"]
    assert not run.plan_next()


def test_discarded_messages_fail_the_job(streams: Streams) -> None:
    """Before they are planned, and before they are read again."""
    stream = streams.create(max_msgs=4)
    streams.add(f"{stream}.a", *(b"%d" % number for number in range(6)))
    run = SourceRun(source_of(streams, stream))
    assert [message.data for message in run.batch(2)] == [b"2", b"3"]
    streams.add(f"{stream}.a", b"6")
    with pytest.raises(JobError, match=f"{stream} has discarded the messages 3 to 3 before they were read"):
        run.repeated()
    assert [message.data for message in run.batch(1)] == [b"4"]
    streams.add(f"{stream}.a", b"7", b"8", b"9")
    with pytest.raises(JobError, match=r"discarded the messages 6 to 6.*allow_discarded=True"):
        run.batch()
    run = SourceRun(source_of(streams, stream, allow_discarded=True), run.offset)
    assert [message.data for message in run.batch()] == [b"6", b"7", b"8", b"9"]


def test_stream_that_is_created_again_fails_the_job(streams: Streams) -> None:
    stream = streams.create()
    streams.add(f"{stream}.a", b"0")
    run = SourceRun(source_of(streams, stream))
    assert run.batch()
    streams.run(lambda jet: jet.delete_stream(stream))
    streams.run(lambda jet: jet.add_stream(StreamConfig(stream, subjects=[f"{stream}.*"])))
    streams.add(f"{stream}.a", b"1", b"2")
    with pytest.raises(JobError, match="was deleted and created again"):
        run.batch()


def test_sink_writes_subjects_and_headers(streams: Streams) -> None:
    """More messages than are published at once. Equal records of a micro-batch are different messages."""
    stream = streams.create()
    texts = [f"{stream}.{number % 2}={number % 5}" for number in range(1500)]
    for _ in range(2):
        write(streams, 7, *texts, headers=lambda text: {"size": f"{len(text)}"})
    found = streams.read(stream)
    assert [message.data.decode() for message in found] == texts
    assert (found[1].subject, found[1].headers["size"]) == (f"{stream}.1", f"{len(texts[1])}")


def test_equal_records_of_subtasks_are_different_messages(streams: Streams) -> None:
    stream = streams.create()
    for subtask in (0, 1, 0):
        write(streams, 3, f"{stream}.a=1", subtask=subtask)
    assert len(streams.read(stream)) == 2


def test_subject_without_a_stream_fails_the_job(streams: Streams) -> None:
    with pytest.raises(JobError, match=r"Cannot write at tls://.*NoStreamResponseError"):
        write(streams, 0, "nothing=1")
    with pytest.raises(JobError, match=r"Cannot read streams at tls://.*stream not found"):
        SourceRun(source_of(streams, "nothing")).batch()


def test_wrong_password_fails_at_once_and_is_not_shown(streams: Streams) -> None:
    login: Any = {"options": {**LOGIN, "password": "wr-ng"}, "tls": streams.tls}
    with pytest.raises(JobError, match="Authorization Violation") as failed:
        SourceRun(NatsSource(streams.server.url, streams=["a"], decode=text_of, **login)).batch()
    assert "wr-ng" not in str(failed.value)


def test_secrets_are_hidden_in_what_the_client_says(streams: Streams) -> None:
    connection = NatsConnection("NatsSink", streams.server.url, LOGIN, streams.tls, ms(60_000))

    async def fail(client: Any) -> None:
        raise ValueError(f"{LOGIN} are wrong")

    with pytest.raises(JobError, match=r"Cannot write at tls://.*\*\*\*.* are wrong") as failed:
        connection.run("Cannot write", fail)
    assert (NatsServer.PASSWORD in str(failed.value), failed.value.__cause__) == (False, None)


@pytest.mark.parametrize(("options", "seconds"), [({}, 10), ({"connect_timeout": 3}, 3)])
def test_time_for_each_step_of_a_connection(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], seconds: int
) -> None:
    given: dict[str, Any] = {}

    async def connect(client: NatsClient, servers: list[str], **options: Any) -> None:
        given.update(options)
        raise ValueError("this is enough")

    monkeypatch.setattr(NatsClient, "connect", connect)
    with pytest.raises(JobError, match="this is enough"):
        SourceRun(NatsSource("nats://host", streams=["a"], decode=text_of, options=options)).batch()
    assert given["connect_timeout"] == seconds


def test_invalid_arguments() -> None:
    with pytest.raises(ConfigurationError, match="requires URLs that begin with nats://"):
        NatsSink(["nats://a", "localhost:4222"], "a", str.encode)
    for names in ("a", [], ["a", "a"]):
        with pytest.raises(ConfigurationError, match="streams must be a list of different names"):
            NatsSource("nats://localhost", streams=names, decode=text_of)
    assert repr(NatsSink("nats://t0ken@host", "a", str.encode)) == "NatsSink(nats://***@host)"
    data: Any = str
    with pytest.raises(TypeError, match="A message has a subject"):
        NatsSink[Any]("nats://localhost", "a", data).check_record("a")
