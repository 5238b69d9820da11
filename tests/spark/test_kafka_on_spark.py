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
from tests.spark.kafka_job import KEYS, NumberPerKey
from tests.topics import Topics

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


@pytest.mark.parametrize("assigner", ["hash", "round-robin"])
def test_two_topics_of_four_partitions_at_parallelism_8(
    spark: SparkSession, topics: Topics, checkpoint: str, assigner: str
) -> None:
    one, two, out = topics.create(4), topics.create(4), topics.create(2)
    send(topics, one, 4, range(400))
    send(topics, two, 4, range(400, 800))
    run(spark, topics, checkpoint, [one, two], out, 8, split_assigner=assigner)
    assert copied(topics, out) == list(range(800))
    held = owners(checkpoint)
    assert len(held) == 8
    if assigner == "round-robin":
        assert Counter(held.values()) == dict.fromkeys(range(8), 1)
    else:
        for topic in (one, two):  # the partitions of each topic are distributed evenly
            assert len({held[f"{topic}-{number}"] for number in range(4)}) == 4


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


def test_topic_removed_at_a_restart(spark: SparkSession, topics: Topics, checkpoint: str) -> None:
    kept, dropped, out = topics.create(2), topics.create(2), topics.create(2)
    send(topics, kept, 2, range(100))
    send(topics, dropped, 2, range(100, 200))
    run(spark, topics, checkpoint, [kept, dropped], out, 2)
    send(topics, kept, 2, range(200, 300))
    send(topics, dropped, 2, range(900, 999))
    run(spark, topics, checkpoint, [kept], out, 2)
    assert copied(topics, out) == list(range(300))  # only the earlier messages of the removed topic
    assert {name.rpartition("-")[0] for name in owners(checkpoint)} == {kept}
