"""A job from Kafka to Kafka on Spark with failing brokers and undecodable messages."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from components.kafka import USER, KafkaBroker
from dsv2 import Collector, ExecutionEnvironment, JobError, UserFunctionError
from dsv2.connectors.kafka import DeadLetter, KafkaSink, KafkaSource, dead_letters, values
from dsv2.functions import TwoOutputStreamProcessFunction
from dsv2.job import JobResult, Trigger
from dsv2.sinks import CollectSink, ForeachBatchSink
from tests.durations import ms
from tests.topics import Topics

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


def test_missing_brokers_are_waited_for(spark: SparkSession, own_kafka_broker: KafkaBroker, checkpoint: str) -> None:
    topics = Topics(own_kafka_broker.bootstrap_servers)
    topic, out = topics.create(2), topics.create(2)
    for partition in range(2):
        topics.send(topic, map(encoded, range(partition, 1_000, 2)), partition)
    restarts: list[threading.Timer] = []

    def crash(records: list[int] | None = None, batch_id: int = 2) -> None:
        """At the start, and then in a micro-batch, between the write and the next one."""
        if batch_id == 2:
            own_kafka_broker.kill()
            restarts.append(threading.Timer(1.5, own_kafka_broker.start))
            restarts[-1].start()

    env = environment(spark)
    source = KafkaSource(
        topics.bootstrap_servers, topics=topic, decode=values(int), records_per_batch=200, retry_timeout=ms(60_000)
    )
    stream = env.from_source(source)
    stream.to_sink(KafkaSink[int](topics.bootstrap_servers, out, encoded, retry_timeout=ms(60_000)))
    stream.to_sink(ForeachBatchSink(crash))
    crash()
    run(env, checkpoint)
    for restart in restarts:
        restart.join()
    assert len(restarts) == 2
    assert numbers(topics, out) == list(range(1_000))


def test_wrong_credentials(spark: SparkSession, kafka_broker: KafkaBroker, checkpoint: str) -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka_broker.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": "wr-ng",
    }
    env = environment(spark)
    source = KafkaSource(kafka_broker.secured_servers, topics="t", decode=values(int), options=options)
    env.from_source(source).with_name("numbers").with_uid("in").to_sink(CollectSink[int]())
    with pytest.raises(JobError) as failed:
        run(env, checkpoint)
    message = str(failed.value)
    assert message.startswith(f"The source numbers (uid 'in'), defined at {__file__}:")
    assert f"at {kafka_broker.secured_servers}. The brokers rejected the credentials" in message
    assert "wr-ng" not in message


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


class Sort(TwoOutputStreamProcessFunction[int | DeadLetter, int, DeadLetter]):
    """Sends dead letters to their own output."""

    def process_record(
        self,
        record: int | DeadLetter,
        output1: Collector[int],
        output2: Collector[DeadLetter],
        ctx: Any,
    ) -> None:
        if isinstance(record, DeadLetter):
            output2.collect(record)
        else:
            output1.collect(record)


def test_dead_letters_go_to_their_own_topic(spark: SparkSession, topics: Topics, mixed: str, checkpoint: str) -> None:
    out, dead = topics.create(2), topics.create(1)
    env = environment(spark)
    source = KafkaSource(topics.bootstrap_servers, topics=mixed, decode=dead_letters(values(int)))
    sorted_out = env.from_source(source).process(Sort())
    good, bad = sorted_out.first, sorted_out.second
    good.to_sink(KafkaSink[int](topics.bootstrap_servers, out, encoded)).with_uid("good")
    letters = KafkaSink[DeadLetter](
        topics.bootstrap_servers,
        dead,
        lambda letter: letter.message.value,
        headers=lambda letter: [("error", letter.error.encode())],
    )
    bad.to_sink(letters).with_uid("bad")
    run(env, checkpoint)
    assert numbers(topics, out) == [1, 3, 5]
    assert sorted(topics.committed(dead)[0]) == [b"four", b"two"]


def test_undecodable_message_fails_the_job(spark: SparkSession, topics: Topics, mixed: str, checkpoint: str) -> None:
    env = environment(spark)
    source = KafkaSource(topics.bootstrap_servers, topics=mixed, decode=values(int))
    env.from_source(source).with_name("numbers").to_sink(CollectSink[int]())
    with pytest.raises(UserFunctionError) as failed:
        run(env, checkpoint)
    assert failed.value.cause_message.startswith(f"Cannot decode the message at offset 0 of {mixed}-1: ValueError")
    assert "numbers" in str(failed.value)


def test_skipped_messages_are_counted(spark: SparkSession, topics: Topics, mixed: str, checkpoint: str) -> None:
    env = environment(spark)
    source = KafkaSource(
        topics.bootstrap_servers, topics=mixed, decode=values(int), on_undecodable="skip", records_per_batch=2
    )
    good = CollectSink[int]()
    env.from_source(source).with_uid("in").to_sink(good)
    progress = run(env, checkpoint).progress.operators["in"]
    assert sorted(good.results) == [1, 3, 5]
    assert (progress.records_out, progress.counters) == (3, {"undecodable": 2})
