"""From Kafka to Kafka on Spark: readers of committed messages always see every message once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from components.kafka import KafkaBroker
from dsv2 import ExecutionEnvironment
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.jobs.handle import Trigger
from tests.kafka_topics import Topics
from tests.spark.kafka_job import KEYS, NumberPerKey

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def topics(kafka_broker: KafkaBroker) -> Topics:
    return Topics(kafka_broker.bootstrap_servers)


def key_of(number: int) -> int:
    return number % KEYS


def run(
    spark: SparkSession, topics: Topics, checkpoint: str, read: list[str], out: str, parallelism: int, **options: Any
) -> None:
    """Copy new messages of ``read`` to ``out``. ``parallelism`` is that of the source."""
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    source = KafkaSource(topics.bootstrap_servers, topics=read, decode=values(int), **options)
    numbers = env.from_source(source).with_parallelism(parallelism).with_uid("in").key_by(key_of)
    numbered = numbers.process(NumberPerKey()).with_uid("number")
    sink = KafkaSink[tuple[int, int]](topics.bootstrap_servers, out, lambda pair: b"%d %d" % pair)
    numbered.to_sink(sink).with_uid("out")
    env.execute("copy", checkpoint_location=checkpoint, trigger=Trigger.available_now())


def send(topics: Topics, topic: str, partitions: int, numbers: range) -> None:
    """Distribute ``numbers`` over the partitions."""
    for partition in range(partitions):
        topics.send(topic, (b"%d" % number for number in numbers[partition::partitions]), partition)


def copied(topics: Topics, topic: str) -> list[int]:
    """The numbers that readers of committed messages see. Each counted once."""
    pairs = [tuple(map(int, value.split())) for found in topics.committed(topic).values() for value in found]
    for key in range(KEYS):
        counts = sorted(count for number, count in pairs if key_of(number) == key)
        assert counts == list(range(1, len(counts) + 1))
    return sorted(number for number, _ in pairs)


def owners(checkpoint: str) -> dict[str, int]:
    """The owner of each partition, according to the last offset in the checkpoint."""
    last = max(Path(checkpoint, "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    (offset,) = (json.loads(line) for line in last.read_text().splitlines() if '"readers"' in line)
    return {
        split["at"]["topic"] + "-" + str(split["at"]["partition"]): subtask
        for subtask, reader in enumerate(offset["readers"])
        for split in reader["splits"]
    }


def test_from_3_subtasks_to_6_with_new_partitions(spark: SparkSession, topics: Topics, checkpoint: str) -> None:
    topic, out = topics.create(4), topics.create(2)
    send(topics, topic, 4, range(400))
    run(spark, topics, checkpoint, [topic], out, 3, split_assigner="round-robin", records_per_batch=100)
    assert sorted(Counter(owners(checkpoint).values()).values()) == [1, 1, 2]
    topics.add_partitions(topic, 6)
    send(topics, topic, 6, range(400, 1000))
    run(spark, topics, checkpoint, [topic], out, 6, split_assigner="round-robin", records_per_batch=100)
    assert sorted(Counter(owners(checkpoint).values()).items()) == [(subtask, 1) for subtask in range(6)]
    assert copied(topics, out) == list(range(1000))
