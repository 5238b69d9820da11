"""``KafkaSink`` on a real broker: what readers of committed messages see after repeats, crashes and changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from components.kafka import PASSWORD, USER, KafkaBroker
from dsv2 import JobError
from dsv2.connectors.kafka import KafkaSink
from dsv2.connectors.kafka.producers import TransactionalProducer
from dsv2.errors import ConfigurationError
from dsv2.model import RecordBatch
from dsv2.sinks import SinkBatch, SinkInfo
from tests.durations import ms
from tests.kafka_topics import Topics

JOBS = itertools.count()


@pytest.fixture
def job() -> str:
    return f"job-{next(JOBS)}"


def encoded(number: int) -> bytes:
    return b"%d" % number


def sink_of(topics: Topics, topic: Any, **options: Any) -> KafkaSink[int]:
    options = {"partition": lambda number: number % 2, "retry_timeout": ms(120_000), **options}
    return KafkaSink(topics.bootstrap_servers, topic, encoded, **options)


def write(sink: KafkaSink[int], job: str, batch_id: int, *records: int, subtask: int = 0, parallelism: int = 2) -> None:
    """One subtask's part of a micro-batch."""
    batches = (RecordBatch([record], [record * 1000]) for record in records)
    sink.write(SinkBatch(SinkInfo(job, "out", parallelism), subtask, batch_id, batches))


def begin(sink: KafkaSink[int], job: str, batch_id: int, parallelism: int = 2) -> None:
    sink.begin(SinkInfo(job, "out", parallelism), batch_id)


def numbers(topics: Topics, topic: str) -> list[int]:
    return sorted(int(value) for values in topics.committed(topic).values() for value in values)


# --- Messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_message_fields(topics: Topics, job: str, delivery: Any) -> None:
    topic, odd = topics.create(2), topics.create(2)
    sink = sink_of(
        topics,
        lambda number: odd if number % 2 else topic,
        key=lambda number: None if number == 3 else b"k%d" % number,
        headers=lambda number: [("h", b"%d" % number), ("none", None)],
        partition=lambda number: 1,
        marker_topic=topic,
        delivery=delivery,
    )
    begin(sink, job, 0)
    write(sink, job, 0, 2, 3, 4)
    seen = [*messages(topics, topic, 1), *messages(topics, odd, 1)]
    assert [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in seen] == [
        (b"k2", b"2", [("h", b"2"), ("none", None)], 2000),
        (b"k4", b"4", [("h", b"4"), ("none", None)], 4000),
        (None, b"3", [("h", b"3"), ("none", None)], 3000),
    ]


def test_keys_have_the_partitions_of_the_java_client(topics: Topics, job: str) -> None:
    """The hashes are those of Kafka's own test of murmur2."""
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    topic, keys = topics.create(7), list(hashes)
    sink = sink_of(topics, topic, key=lambda number: keys[number - 1], partition=None)
    begin(sink, job, 0)
    write(sink, job, 0, 1, 2, 3, 4)
    found = {message.key(): partition for partition in range(7) for message in messages(topics, topic, partition)}
    assert found == {key: (value & 0x7FFFFFFF) % 7 for key, value in hashes.items()}


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_awkward_messages_are_written_as_they_are_or_refused(topics: Topics, job: str, delivery: Any) -> None:
    topic = topics.create()
    headers = [("", b""), ("twice", b"1"), ("twice", None), ("\u00e9", b"\0\xff")]
    keys: list[bytes | None] = [b"", None, b"\0\xff"]
    sink = KafkaSink[int](
        topics.bootstrap_servers,
        topic,
        lambda number: [b"", None, b"v"][number % 3],
        key=lambda number: keys[number % 3],
        headers=lambda number: headers,
        partition=lambda number: 0 if number < 9 else -1,
        delivery=delivery,
        retry_timeout=ms(120_000),
    )
    info = SinkInfo(job, "out", 1)
    sink.begin(info, 0)
    sink.write(SinkBatch(info, 0, 0, iter([RecordBatch([3, 4, 5], [1, -1, -(10**12)])])))
    for record, stamp, told in ((3, 0, "the record 3: .* timestamp 0"), (9, 5, "the record 9: .* partition is -1")):
        with pytest.raises(JobError, match=told):
            sink.write(SinkBatch(info, 0, 1, iter([RecordBatch([record], [stamp])])))
    assert [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in messages(topics, topic, 0)] == [
        (b"", b"", headers, 1),
        (None, None, headers, -1),
        (b"\0\xff", b"v", headers, -(10**12)),
    ]


def messages(topics: Topics, topic: str, partition: int) -> Iterator[Message]:
    topics.await_commits(topic)
    consumer = Consumer({**topics.config, "group.id": "tests", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    while (message := consumer.poll(10)) is not None and message.error() is None:
        yield message
    consumer.close()


# --- Exactly once ----------------------------------------------------------------------------------------------------


def test_another_prefix_is_no_repeat(topics: Topics, job: str) -> None:
    topic = topics.create(2)
    for number, prefix in enumerate(("dsv2", "another"), 1):
        write(sink_of(topics, topic, transactional_id_prefix=prefix), job, 0, number)
    assert numbers(topics, topic) == [1, 2]


def test_failed_batch_is_not_visible(topics: Topics, job: str) -> None:
    topic = topics.create(2)

    def strict(number: int) -> bytes:
        if number == 3:
            while topics.end(topic) + topics.end(topic, 1) == 0:
                pass  # wait until the earlier messages have been sent
            raise ValueError("no three")
        return encoded(number)

    with pytest.raises(JobError, match="Cannot write the record 3: ValueError: no three"):
        write(KafkaSink(topics.bootstrap_servers, topic, strict), job, 0, 1, 2, 3)
    topics.send(topic, [b"9"])
    topics.send(topic, [b"9"], 1)
    assert numbers(topics, topic) == [9, 9]  # other writers are not blocked
    write(sink_of(topics, topic), job, 0, 1, 2, 3)
    assert numbers(topics, topic) == [1, 2, 3, 9, 9]


def test_overtaken_attempt_cannot_commit(topics: Topics, job: str) -> None:
    topic = topics.create(2)
    sink = sink_of(topics, topic)

    def overtaken() -> Iterator[RecordBatch[int]]:
        yield RecordBatch([1])
        write(sink, job, 0, 1, 2)  # Spark has started another attempt, which is faster
        yield RecordBatch([2])

    with pytest.raises(JobError, match="A newer attempt of the same task has taken over"):
        sink.write(SinkBatch(SinkInfo(job, "out", 2), 0, 0, overtaken()))
    assert numbers(topics, topic) == [1, 2]


def test_crashed_attempt_blocks_nothing(topics: Topics, job: str) -> None:
    topic = topics.create(2)
    sink = sink_of(topics, topic)

    def crashing() -> Iterator[RecordBatch[int]]:
        yield RecordBatch([1])
        raise GeneratorExit  # no cleanup except for the abort, which is removed below

    crashed = sink_of(topics, topic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsv2.connectors.kafka.producers.TransactionalProducer.abort", lambda self: None)
        with pytest.raises(GeneratorExit):
            crashed.write(SinkBatch(SinkInfo(job, "out", 2), 0, 0, crashing()))
    write(sink, job, 0, 1, 2)
    assert numbers(topics, topic) == [1, 2]


def test_old_attempt_of_another_parallelism_cannot_commit(topics: Topics, job: str) -> None:
    topic = topics.create(2)
    sink = sink_of(topics, topic)
    begin(sink, job, 0, parallelism=3)

    def late() -> Iterator[RecordBatch[int]]:
        yield RecordBatch([1])
        begin(sink, job, 0, parallelism=2)

    with pytest.raises(JobError, match="A newer attempt of the same task has taken over"):
        sink.write(SinkBatch(SinkInfo(job, "out", 3), 2, 0, late()))
    write(sink, job, 0, 1)
    assert numbers(topics, topic) == [1]


@pytest.mark.usefixtures("patient_requests")
def test_restart_waits_for_no_transaction_of_the_previous_run(
    topics: Topics, job: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create(2)
    begin(sink_of(topics, topic), job, 0)
    caplog.clear()

    def restart(producer: Any) -> None:  # the previous run was suspended before the commit
        begin(sink_of(topics, topic), job, 0)
        commit(producer)

    with pytest.MonkeyPatch.context() as patch:
        producer = "dsv2.connectors.kafka.producers.TransactionalProducer"
        commit = TransactionalProducer.commit
        patch.setattr(f"{producer}.commit", restart)
        with pytest.raises(JobError, match="A newer attempt of the same task has taken over"):
            write(sink_of(topics, topic), job, 0, 1)
    assert "Retrying" not in caplog.text
    write(sink_of(topics, topic), job, 0, 1)
    assert numbers(topics, topic) == [1]


def test_at_least_once_writes_a_repeated_batch_again(topics: Topics, job: str) -> None:
    topic = topics.create(2)
    sink = sink_of(topics, topic, delivery="at-least-once")
    for _ in range(2):
        begin(sink, job, 0)
        write(sink, job, 0, 1, 2)
    assert numbers(topics, topic) == [1, 1, 2, 2]


def test_many_messages(topics: Topics, job: str) -> None:
    topic = topics.create(2)
    batches = (RecordBatch(list(range(start, start + 5_000))) for start in range(0, 250_000, 5_000))
    sink_of(topics, topic).write(SinkBatch(SinkInfo(job, "out", 1), 0, 0, batches))  # more than the client buffers
    seen = topics.committed(topic)
    assert [int(value) for value in seen[0]] == list(range(0, 250_000, 2))  # in order
    assert [int(value) for value in seen[1]] == list(range(1, 250_000, 2))


# --- Failures --------------------------------------------------------------------------------------------------------


def test_missing_topic(topics: Topics, job: str) -> None:
    with pytest.raises(JobError, match=r"Topic nowhere does not exist at 127\.0\.0\.1:\d+\. Create it\."):
        begin(sink_of(topics, "nowhere"), job, 0)


def test_missing_partition(topics: Topics, job: str) -> None:
    topic = topics.create(1)
    with pytest.raises(JobError, match=rf"Cannot write a message to {topic}-7 .* The request failed \(_UNKNOWN_P"):
        write(sink_of(topics, topic, partition=lambda number: 7), job, 0, 1)
    assert numbers(topics, topic) == []


def test_message_that_is_too_large(topics: Topics, job: str) -> None:
    topic = topics.create(1, max_message_bytes="1000")
    sink = KafkaSink[int](topics.bootstrap_servers, topic, lambda number: b"x" * number)
    with pytest.raises(JobError, match=r"Cannot write messages .*MSG_SIZE_TOO_LARGE"):
        write(sink, job, 0, 10, 2_000)
    assert numbers(topics, topic) == []


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_unreachable_broker(topics: Topics, job: str, delivery: Any) -> None:
    sink = KafkaSink[int]("127.0.0.1:1", "t", encoded, delivery=delivery, retry_timeout=ms(1_000))
    with pytest.raises(JobError, match=r"127\.0\.0\.1:1"):
        write(sink, job, 0, 1)


def test_wrong_credentials_show_no_secret(kafka_broker: KafkaBroker, topics: Topics, job: str) -> None:
    topic = topics.create()

    def sink_with(password: str, retry_timeout: timedelta) -> KafkaSink[int]:
        options = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(kafka_broker.certificate),
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": password,
        }
        return KafkaSink(kafka_broker.secured_servers, topic, encoded, options=options, retry_timeout=retry_timeout)

    rejected = sink_with("wr-ng", ms(600_000))
    for call in (begin, lambda sink, job, batch: write(sink, job, batch, 1)):
        with pytest.raises(JobError, match="The brokers rejected the credentials") as failed:
            call(rejected, job, 0)
        assert "wr-ng" not in str(failed.value) + repr(rejected)
    accepted = sink_with(PASSWORD, ms(60_000))
    begin(accepted, job, 0)
    write(accepted, job, 0, 1)
    assert numbers(topics, topic) == [1]


def test_invalid_sink_options() -> None:
    with pytest.raises(ConfigurationError, match=r"If topic is a function, specify this topic with marker_topic"):
        KafkaSink[int]("host:1", lambda number: "t", encoded)
    with pytest.raises(ConfigurationError, match="delivery must be one of 'exactly-once', 'at-least-once', or a"):
        KafkaSink[int]("host:1", "t", encoded, delivery="once")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"'transactional\.id' itself\. Use transactional_id_prefix"):
        KafkaSink[int]("host:1", "t", encoded, options={"transactional.id": "mine"})
