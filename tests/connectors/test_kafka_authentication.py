"""Sources, sinks and their requests to the brokers log in by SCRAM, by certificates and by tokens."""

from __future__ import annotations

import functools
import itertools
import logging
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import cloudpickle
import pytest

from components.kafka import PASSWORD, USER, KafkaBroker
from components.kafka_certificates import Authority
from dsv2 import CollectSink, JobError
from dsv2.base.secrets import OptionValue
from dsv2.connectors.kafka import KafkaSink, KafkaSource, KafkaSplit, OffsetsInitializer, values
from dsv2.connectors.kafka.tokens import OAuthCallback
from dsv2.model import RecordBatch
from dsv2.sinks import SinkBatch, SinkInfo
from dsv2.testing.connectors.source_run import Reader
from tests.durations import ms
from tests.kafka_topics import Topics
from tests.support import local_environment
from tests.unsigned_tokens import UnsignedTokens

JOBS = itertools.count()
WRONG = "wr-ng"
SECONDS = 60.0


@dataclass
class Login:
    """The arguments with which sources and sinks log in."""

    servers: str
    options: dict[str, OptionValue]
    oauth_cb: OAuthCallback | None = None
    secrets: list[str] = field(default_factory=list)

    def source(self, topic: str, **arguments: Any) -> KafkaSource[int]:
        return KafkaSource(
            self.servers,
            topics=topic,
            decode=values(int),
            stopping_offsets=OffsetsInitializer.latest(),
            retry_timeout=ms(60_000),
            options=self.options,
            oauth_cb=self.oauth_cb,
            **arguments,
        )

    def sink(self, topic: str, delivery: Any, seconds: float = SECONDS) -> KafkaSink[int]:
        return KafkaSink(
            self.servers,
            topic,
            lambda number: b"%d" % number,
            delivery=delivery,
            retry_timeout=ms(int(seconds * 1000)),
            options=self.options,
            oauth_cb=self.oauth_cb,
        )


def scram(broker: KafkaBroker, bits: int, password: str = PASSWORD) -> Login:
    login = {"sasl.mechanism": f"SCRAM-SHA-{bits}", "sasl.username": USER, "sasl.password": password}
    return Login(broker.scram_servers, {"security.protocol": "SASL_PLAINTEXT", **login}, secrets=[password])


def certificates(broker: KafkaBroker, **options: str) -> Login:
    files = {
        "ssl.ca.location": str(broker.certificate),
        "ssl.certificate.location": str(broker.client_certificate),
        "ssl.key.location": str(broker.client_key),
        "ssl.key.password": PASSWORD,
    }
    return Login(broker.certified_servers, {"security.protocol": "SSL", **files, **options}, secrets=[PASSWORD])


def tokens(broker: KafkaBroker, callback: OAuthCallback, secrets: list[str]) -> Login:
    options: dict[str, OptionValue] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    return Login(broker.token_servers, options, callback, secrets)


SHA_512 = pytest.param("SCRAM-SHA-512", marks=pytest.mark.nightly)


@pytest.fixture(params=["SCRAM-SHA-256", SHA_512, "certificate", "token"])
def login(request: pytest.FixtureRequest, kafka_broker: KafkaBroker) -> Login:
    service = UnsignedTokens()
    return {
        "SCRAM-SHA-256": lambda: scram(kafka_broker, 256),
        "SCRAM-SHA-512": lambda: scram(kafka_broker, 512),
        "certificate": lambda: certificates(kafka_broker),
        "token": lambda: tokens(kafka_broker, service, service.issued),
    }[request.param]()


def test_login_of_a_job(topics: Topics, login: Login, caplog: pytest.LogCaptureFixture) -> None:
    topic, exactly, at_least = topics.create(), topics.create(), topics.create()
    topics.send(topic, [b"1", b"2"])
    source = login.source(topic, group_id=f"readers-{topic}")
    sinks = [login.sink(exactly, "exactly-once"), login.sink(at_least, "at-least-once")]
    env, collected = local_environment(1), CollectSink[int]()
    numbers = env.from_source(source)
    numbers.to_sink(collected)
    for number, sink in enumerate(sinks):
        numbers.to_sink(sink).with_uid(f"sink-{number}")
    with caplog.at_level(logging.DEBUG):
        env.execute(f"login-{next(JOBS)}")
    assert sorted(collected.results) == [1, 2]
    for name in (exactly, at_least):
        assert topics.committed(name) == {0: [b"1", b"2"]}
    shown = caplog.text + repr([source, *sinks]) + str(env.explain())
    assert login.oauth_cb is None or login.secrets
    for secret in login.secrets:
        assert secret not in shown


def stranger(broker: KafkaBroker, folder: Path) -> Login:
    """A client with a certificate of another authority."""
    certificate, key = folder / "client.pem", folder / "client.key"
    Authority("a stranger", folder / "authority.pem").sign("client", certificate, key)
    files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    return certificates(broker, **files)


def rejected_logins(broker: KafkaBroker, folder: Path) -> dict[str, Login]:
    service = UnsignedTokens(user="")
    return {
        "SCRAM-SHA-256": scram(broker, 256, WRONG),
        "SCRAM-SHA-512": scram(broker, 512, WRONG),
        "stranger": stranger(broker, folder),
        "key": certificates(broker, **{"ssl.key.password": WRONG}),
        "token": tokens(broker, service, service.issued),
    }


MESSAGES = {
    "stranger": "The brokers rejected the certificate of the client, or it has none",
    "key": "The client library rejected the options|A secure connection to the brokers could not be established",
}


@pytest.mark.parametrize("way", ["SCRAM-SHA-256", SHA_512, "stranger", "key", "token"])
def test_rejected_login(
    kafka_broker: KafkaBroker, topics: Topics, way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job fails at once, without a retry, and nothing shows a secret."""
    topic = topics.create()
    topics.send(topic, [b"1"])
    login = rejected_logins(kafka_broker, tmp_path)[way]
    info, batches = SinkInfo(f"rejected-{next(JOBS)}", "out", 1), [RecordBatch([1])]
    exactly, at_least = (login.sink(topic, delivery, 600) for delivery in ("exactly-once", "at-least-once"))

    def discover() -> None:
        env = local_environment(1)
        env.from_source(login.source(topic)).to_sink(CollectSink[int]())
        env.execute()

    def read() -> None:
        list(login.source(topic).create_reader(Reader()).read(KafkaSplit(topic, 0, 0), KafkaSplit(topic, 0, 1)))

    for call in (
        discover,
        read,
        lambda: exactly.begin(info, 0),
        lambda: exactly.write(SinkBatch(info, 0, 0, iter(batches))),
        lambda: at_least.write(SinkBatch(info, 0, 0, iter(batches))),
    ):
        with caplog.at_level(logging.DEBUG), pytest.raises(JobError) as failed:
            call()
        assert failed.match(MESSAGES.get(way, "The brokers rejected the credentials"))
        for secret in login.secrets:
            assert secret not in str(failed.value) + caplog.text + str(failed.value.__cause__)


def fails(secret: str, config: str) -> tuple[str, float]:
    raise RuntimeError(f"No token for {secret}")


def test_failed_callback_fails_the_job_at_once(kafka_broker: KafkaBroker, topics: Topics) -> None:
    topic = topics.create()
    login = tokens(kafka_broker, functools.partial(fails, "hush"), [])
    with pytest.raises(
        JobError, match=r"Cannot get a token for Kafka\. oauth_cb raised RuntimeError \(test_"
    ) as failed:
        login.sink(topic, "at-least-once").write(SinkBatch(SinkInfo("j", "out", 1), 0, 0, iter([RecordBatch([1])])))
    assert "hush" not in str(failed.value)
    assert failed.value.__cause__ is None
    assert "hush" not in repr(login.source(topic))


@pytest.mark.nightly
def test_tokens_are_renewed_while_nothing_is_read(kafka_broker: KafkaBroker, topics: Topics) -> None:
    """The broker ends a session with its token, so a client that did not renew it could not read the second message."""
    topic, calls = topics.create(), Queue[str]()
    service = UnsignedTokens(seconds=12.0)  # brokers refuse two logins of a connection within a second

    def next_token(config: str) -> tuple[str, float]:
        calls.put(config)
        return service(config)

    source = tokens(kafka_broker, next_token, []).source(topic)
    for number in range(2):
        topics.send(topic, [b"%d" % number])
        reader = source.create_reader(Reader())
        (batch,) = reader.read(KafkaSplit(topic, 0, number), KafkaSplit(topic, 0, number + 1))
        assert list(batch.records) == [number]
        reader.close()
        for _ in range(2):
            calls.get(timeout=SECONDS)


def test_source_with_tokens_arrives_in_tasks(kafka_broker: KafkaBroker, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"5"])
    source = tokens(kafka_broker, UnsignedTokens(), []).source(topic)
    arrived: KafkaSource[int] = cloudpickle.loads(cloudpickle.dumps(source))
    reader = arrived.create_reader(Reader())
    (batch,) = reader.read(KafkaSplit(topic, 0, 0), KafkaSplit(topic, 0, 1))
    reader.close()
    assert list(batch.records) == [5]
