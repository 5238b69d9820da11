"""From Kafka to Kafka under kill -9: readers of committed messages see each message once.

Gates, at which the job waits, determine the point of the kill in a micro-batch. A short form runs with all tests.
``DSV2_KILLS=7 ./run test tests/spark/test_kafka_kills.py`` kills that many times, at one gate after the other.
"""

from __future__ import annotations

import os
import signal
from itertools import cycle, islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from components.kafka import KafkaBroker
from tests.kafka_topics import Topics
from tests.spark import kafka_job
from tests.spark.kafka_job import KEYS, RECORDS_PER_BATCH
from tests.spark.processes import Gate, JobProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("DSV2_KILLS", "2"))
MESSAGES = RECORDS_PER_BATCH * (3 * KILLS + 2)
"""Enough, because a run takes no more than three micro-batches for each kill."""

GATES_IN_WORKERS = ("committed", "reading", "committing", "counting", "preparing", "sending")
GATES_OF_DRIVER = ("committing", "written", "reading", "committed", "counting", "preparing", "sending")


@pytest.fixture(scope="module")
def topics(kafka_broker: KafkaBroker) -> Topics:
    return Topics(kafka_broker.bootstrap_servers)


class CopyingJob(JobProcess):
    """``tests.spark.kafka_job`` with its own topics."""

    def __init__(self, folder: Path, topics: Topics) -> None:
        self._topics = topics
        self._in, self._out = topics.create(3), topics.create(2)
        for partition in range(3):
            topics.send(self._in, (b"%d" % number for number in range(partition, MESSAGES, 3)), partition)
        self._arguments = (topics.bootstrap_servers, self._in, self._out)
        super().__init__(folder, "kafka_job", *self._arguments)

    def run_to_end(self, spark: SparkSession) -> None:
        """Continue the job in the session of the tests."""
        kafka_job.run(spark, str(self.folder), *self._arguments)

    def check(self) -> None:
        """Check that every message is present once, and was counted once."""
        found = [value for values in self._topics.committed(self._out).values() for value in values]
        pairs = [tuple(map(int, value.split())) for value in found]
        assert sorted(number for number, _ in pairs) == list(range(MESSAGES))
        for key in range(KEYS):
            counts = sorted(count for number, count in pairs if number % KEYS == key)
            assert counts == list(range(1, len(counts) + 1))


def test_kills_of_the_driver(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    job = CopyingJob(tmp_path, topics)
    for name in islice(cycle(GATES_OF_DRIVER), KILLS):
        gate = Gate(tmp_path, name)
        job.start()
        job.run_to(gate)
        job.kill()
        gate.open()
    job.run_to_end(spark)
    job.check()


def test_kills_of_a_worker(topics: Topics, tmp_path: Path) -> None:
    job = CopyingJob(tmp_path, topics)
    job.start()
    for name in islice(cycle(GATES_IN_WORKERS), KILLS):
        gate = Gate(tmp_path, name)
        worker = job.run_to(gate)
        assert worker != job.pid
        os.kill(worker, signal.SIGKILL)
        gate.open()
    job.finish()
    job.check()
