"""A job from Kafka to Kafka on Spark whose broker crashes."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from components.kafka import KafkaBroker
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.jobs.handle import Trigger
from dsv2.sinks import ForeachBatchSink
from tests.durations import ms
from tests.kafka_topics import Topics
from tests.spark.programs import environment


def encoded(number: int) -> bytes:
    return b"%d" % number


def numbers(topics: Topics, topic: str) -> list[int]:
    return sorted(int(value) for found in topics.committed(topic).values() for value in found)


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

    env = environment(spark, 2)
    source = KafkaSource(
        topics.bootstrap_servers, topics=topic, decode=values(int), records_per_batch=200, retry_timeout=ms(180_000)
    )
    stream = env.from_source(source)
    stream.to_sink(KafkaSink[int](topics.bootstrap_servers, out, encoded, retry_timeout=ms(180_000)))
    stream.to_sink(ForeachBatchSink(crash))
    crash()
    env.execute("bad input", checkpoint_location=checkpoint, trigger=Trigger.available_now())
    for restart in restarts:
        restart.join()
    assert len(restarts) == 2
    assert numbers(topics, out) == list(range(1_000))
