"""A job from Kafka to Kafka on Spark with failing brokers and undecodable messages."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from pyspark.sql import SparkSession

from components.kafka import KafkaBroker
from dsv2 import DeadLetter, ErrorPolicy, ExecutionEnvironment
from dsv2.connectors.kafka import KafkaMessage, KafkaSink, KafkaSource, values
from dsv2.errors import UserFunctionError
from dsv2.jobs.handle import JobResult, Trigger
from dsv2.sinks import CollectSink, ForeachBatchSink
from tests.durations import ms
from tests.kafka_topics import Topics

pytestmark = [pytest.mark.spark]


def encoded(number: int) -> bytes:
    return b"%d" % number


def numbers(topics: Topics, topic: str) -> list[int]:
    return sorted(int(value) for found in topics.committed(topic).values() for value in found)


def environment(spark: SparkSession) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    return env


def run(env: ExecutionEnvironment, checkpoint: str) -> JobResult:
    return env.execute("bad input", checkpoint_location=checkpoint, trigger=Trigger.available_now())


# --- Brokers ---------------------------------------------------------------------------------------------------------


def test_missing_brokers_are_waited_for(
    spark: SparkSession, restarted_kafka_broker: KafkaBroker, checkpoint: str
) -> None:
    topics = Topics(restarted_kafka_broker.bootstrap_servers)
    topic, out = topics.create(2), topics.create(2)
    for partition in range(2):
        topics.send(topic, map(encoded, range(partition, 1_000, 2)), partition)
    restarts: list[threading.Timer] = []

    def crash(records: list[int] | None = None, batch_id: int = 2) -> None:
        """At the start, and then in a micro-batch, between the write and the next one."""
        if batch_id == 2:
            restarted_kafka_broker.kill()
            restarts.append(threading.Timer(1.5, restarted_kafka_broker.start))
            restarts[-1].start()

    env = environment(spark)
    source = KafkaSource(
        topics.bootstrap_servers, topics=topic, decode=values(int), records_per_batch=200, retry_timeout=ms(180_000)
    )
    stream = env.from_source(source)
    stream.to_sink(KafkaSink[int](topics.bootstrap_servers, out, encoded, retry_timeout=ms(180_000)))
    stream.to_sink(ForeachBatchSink(crash))
    crash()
    run(env, checkpoint)
    for restart in restarts:
        restart.join()
    assert len(restarts) == 2
    assert numbers(topics, out) == list(range(1_000))


# --- Messages --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def topics(kafka_broker: KafkaBroker) -> Topics:
    return Topics(kafka_broker.bootstrap_servers)


@pytest.fixture
def mixed(topics: Topics) -> str:
    """A topic with undecodable messages among its numbers."""
    topic = topics.create(2)
    topics.send(topic, [b"1", b"3"])
    topics.send(topic, [b"four", b"5", b"two"], 1)
    return topic


def value_of(letter: DeadLetter[KafkaMessage]) -> bytes | None:
    return None if letter.record is None else letter.record.value


def error_of(letter: DeadLetter[KafkaMessage]) -> list[tuple[str, bytes | None]]:
    return [("error", letter.error_message.encode())]


def test_dead_letters_go_to_their_own_topic(spark: SparkSession, topics: Topics, mixed: str, checkpoint: str) -> None:
    out, dead = topics.create(2), topics.create(1)
    env = environment(spark)
    source = KafkaSource(topics.bootstrap_servers, topics=mixed, decode=values(int), records_per_batch=2)
    stream = env.from_source(source).with_uid("in").with_error_policy(ErrorPolicy().dead_letter(ValueError))
    stream.to_sink(KafkaSink[int](topics.bootstrap_servers, out, encoded)).with_uid("good")
    letters = KafkaSink[DeadLetter[KafkaMessage]](topics.bootstrap_servers, dead, value_of, headers=error_of)
    stream.dead_letters(KafkaMessage).to_sink(letters).with_uid("bad")
    progress = run(env, checkpoint).progress.operators["in"]
    assert numbers(topics, out) == [1, 3, 5]
    assert sorted(topics.committed(dead)[0]) == [b"four", b"two"]
    assert progress.counters == {"errors_dead_lettered": 2}


def test_messages_are_skipped_once(spark: SparkSession, topics: Topics, mixed: str, checkpoint: str) -> None:
    """By request, after the micro-batch has failed. The fixed program does not read them again either."""
    good = CollectSink[int]()
    source = KafkaSource(topics.bootstrap_servers, topics=mixed, decode=values(int), records_per_batch=2)
    for options in ({}, {"in": [(1, 0)]}, {"in": [(1, 2)]}):
        env = environment(spark)
        env.from_source(source).with_uid("in").to_sink(good)
        with suppress(UserFunctionError):
            env.execute("skip", checkpoint_location=checkpoint, trigger=Trigger.available_now(), skip_records=options)
    assert sorted(good.results) == [1, 3, 5]
