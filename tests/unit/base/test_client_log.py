"""Output of client libraries goes to ``logging`` under documented names, a few lines per kind and minute."""

from __future__ import annotations

import logging

import pytest

from dsv2.base.clock import SystemClock
from dsv2.base.secrets import OptionValue
from dsv2.connectors.client_log import ClientLog
from dsv2.connectors.kafka import TopicPartition
from dsv2.connectors.kafka import client_errors as kafka_log
from dsv2.connectors.kafka.broker import Broker
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.producers import RecordProducer, TransactionalProducer
from dsv2.connectors.kafka.reader import RangeConsumer
from dsv2.connectors.postgres.server import _NOTICES
from dsv2.errors import JobError
from tests.durations import ms

KAFKA, POSTGRES = "dsv2.connectors.kafka.client", "dsv2.connectors.postgres.client"
UNREACHABLE = "127.0.0.1:1"


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_first_messages_of_each_kind_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    seconds = Seconds()
    log = ClientLog("some.client", seconds)
    for number in range(1000):
        log.write(logging.ERROR, "FAIL", f"failure {number}")
    log.write(logging.WARNING, "SLOW", "slow")
    assert caplog.messages == ["failure 0", "failure 1", "failure 2", "slow"]
    caplog.clear()
    seconds.now = 60.0
    log.write(logging.ERROR, "FAIL", "failure again")
    log.write(logging.ERROR, "FAIL", "and again")
    assert caplog.messages == ["failure again (similar messages suppressed: 997)", "and again"]
    assert {record.name for record in caplog.records} == {"some.client"}


def test_suppressed_levels_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog("some.client")
    caplog.set_level(logging.WARNING)
    for _ in range(10):
        log.write(logging.INFO, "FAIL", "a remark")
    log.write(logging.ERROR, "FAIL", "a failure")
    assert caplog.messages == ["a failure"]


def kafka_clients_without_a_broker(connection: KafkaConnection) -> None:
    """Clients of every kind, until librdkafka has reported many failures for each."""
    broker = Broker(connection, SystemClock())
    with pytest.raises(JobError, match="Cannot list topics"):
        broker.partitions(["t"], None)
    broker.close()
    consumer = RangeConsumer(connection)
    consumer.begin(TopicPartition("t", 0), 0)
    for _ in range(10):
        consumer.messages(1, 0.05)
    consumer.close()
    producer = RecordProducer(connection)
    producer._client.poll(0.2)
    producer.close()
    with pytest.raises(JobError, match="Cannot begin transactions"):
        TransactionalProducer(connection, "id", "t")


def test_unreachable_broker_logs_a_few_lines(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_log, "_LOG", ClientLog(KAFKA))
    options: dict[str, OptionValue] = {
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 10,
        "sasl.password": "refused",
    }
    kafka_clients_without_a_broker(KafkaConnection("test", UNREACHABLE, options, ms(100)))
    messages = [record.getMessage() for record in caplog.records if record.name == KAFKA]
    assert 1 <= len(messages) <= 9  # three of each kind, and there are few kinds
    assert any("Connect to" in message for message in messages)
    assert not any("refused" in message for message in messages)
    assert any("***" in message for message in messages)  # the password is "refused", as in "Connection refused"
    assert "rdkafka" not in "".join(capfd.readouterr())  # nothing bypasses the loggers


def test_notices_of_postgres_have_a_logger() -> None:
    assert _NOTICES._logger.name == POSTGRES
