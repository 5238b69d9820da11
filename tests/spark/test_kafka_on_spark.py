"""From Kafka to Kafka on Spark: every message once in what readers of committed messages see, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from components.kafka import KafkaBroker
from dsv2 import ExecutionEnvironment
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.job import Trigger
from tests.spark.kafka_job import KEYS, RECORDS_PER_BATCH
from tests.topics import Topics

pytestmark = [pytest.mark.spark]

DEADLINE_SECONDS = 120.0


@pytest.fixture(scope="module")
def topics(kafka_broker: KafkaBroker) -> Topics:
    return Topics(kafka_broker.bootstrap_servers)


def encoded(number: int) -> bytes:
    return b"%d" % number


def run(
    spark: SparkSession, topics: Topics, checkpoint: str, read: list[str], out: str, parallelism: int, **options: Any
) -> None:
    """Copy what is in ``read`` now, and was not copied yet, to ``out``."""
    env = ExecutionEnvironment.get_instance(spark=spark)
    source = KafkaSource(topics.bootstrap_servers, topics=read, decode=values(int), **options)
    stream = env.from_source(source).with_parallelism(parallelism).with_uid("in")
    sink = KafkaSink[int](topics.bootstrap_servers, out, encoded)
    stream.to_sink(sink).with_parallelism(2).with_uid("out")
    env.execute("copy", checkpoint_location=checkpoint, trigger=Trigger.available_now())


def send(topics: Topics, topic: str, partitions: int, numbers: range) -> None:
    """Spread ``numbers`` over the partitions."""
    for partition in range(partitions):
        topics.send(topic, map(encoded, numbers[partition::partitions]), partition)


def copied(topics: Topics, topic: str) -> list[int]:
    return sorted(int(value) for found in topics.committed(topic).values() for value in found)


def owners(checkpoint: str) -> dict[str, int]:
    """Who holds which partition, as the last offset in the checkpoint tells."""
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
    send(topics, one, 4, range(0, 400))
    send(topics, two, 4, range(400, 800))
    run(spark, topics, checkpoint, [one, two], out, 8, split_assigner=assigner)
    assert copied(topics, out) == list(range(800))
    held = Counter(owners(checkpoint).values())
    if assigner == "round-robin":
        assert held == dict.fromkeys(range(8), 1)
    else:
        for topic in (one, two):  # those of each topic are spread evenly
            assert len({owners(checkpoint)[f"{topic}-{number}"] for number in range(4)}) == 4


def test_from_3_subtasks_to_6_with_partitions_added_in_between(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    topic, out = topics.create(4), topics.create(2)
    send(topics, topic, 4, range(0, 400))
    run(spark, topics, checkpoint, [topic], out, 3, split_assigner="round-robin", records_per_batch=100)
    assert sorted(Counter(owners(checkpoint).values()).values()) == [1, 1, 2]
    topics.add_partitions(topic, 6)
    send(topics, topic, 6, range(400, 1000))
    run(spark, topics, checkpoint, [topic], out, 6, split_assigner="round-robin", records_per_batch=100)
    assert sorted(Counter(owners(checkpoint).values()).items()) == [(subtask, 1) for subtask in range(6)]
    assert copied(topics, out) == list(range(1000))


def test_a_topic_that_is_dropped_at_a_restart(spark: SparkSession, topics: Topics, checkpoint: str) -> None:
    kept, dropped, out = topics.create(2), topics.create(2), topics.create(2)
    send(topics, kept, 2, range(0, 100))
    send(topics, dropped, 2, range(100, 200))
    run(spark, topics, checkpoint, [kept, dropped], out, 2)
    send(topics, kept, 2, range(200, 300))
    send(topics, dropped, 2, range(900, 999))
    run(spark, topics, checkpoint, [kept], out, 2)
    assert copied(topics, out) == list(range(300)) or copied(topics, out) == [*range(200), *range(200, 300)]
    assert {name.rpartition("-")[0] for name in owners(checkpoint)} == {kept}


# --- Kills -----------------------------------------------------------------------------------------------------------

MESSAGES = 8_000


class KilledJob:
    """The job of ``tests.spark.kafka_job``: started, stopped at a gate, killed, started again."""

    def __init__(self, folder: Path, topics: Topics) -> None:
        self.folder = folder
        self.topics = topics
        self.topic, self.out = topics.create(3), topics.create(2)

    def start(self) -> subprocess.Popen[bytes]:
        log = (self.folder / "log").open("ab")
        arguments = [str(self.folder), self.topics.bootstrap_servers, self.topic, self.out]
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, "-m", "tests.spark.kafka_job", *arguments]
        return subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log, start_new_session=True)

    def committed_batches(self) -> int:
        """How many micro-batches Spark has finished."""
        return len(list((self.folder / "checkpoint/commits").glob("[0-9]*")))

    def kill_at(self, gate: str, kill: Callable[[int, int], None]) -> None:
        """Run the job up to ``gate``, and call ``kill`` with the process that waits there and with the leader's."""
        job = self.start()
        batch = self.committed_batches() + 1  # let a micro-batch pass: the first one after a start may be a repeated one
        shut, waiting = self.folder / f"{gate}.shut", self.folder / f"{gate}.waiting"
        self._wait_for(job, lambda: self.committed_batches() >= batch)
        shut.touch()
        self._wait_for(job, waiting.exists)
        kill(int(waiting.read_text()), job.pid)
        shut.unlink()  # whoever is left ends by itself, or goes on until it finds that out
        assert job.wait(DEADLINE_SECONDS) != 0
        kill_session(job.pid)
        waiting.unlink()

    def finish(self) -> None:
        assert self.start().wait(DEADLINE_SECONDS) == 0, self.log()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _wait_for(self, job: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not happened():
            if job.poll() is not None or time.monotonic() > deadline:
                kill_session(job.pid)
                pytest.fail(f"The job did not come so far: {self.log()}")
            time.sleep(0.01)


def kill_session(leader: int) -> None:
    """SIGKILL for every process of a session: Spark's Python daemon has a process group of its own."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == leader:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                pass  # it was quicker


def kill_driver(waiting: int, leader: int) -> None:
    """The driver with its JVM and all workers."""
    kill_session(leader)


def kill_worker(waiting: int, leader: int) -> None:
    """Only the worker that waits at the gate."""
    assert waiting != leader
    os.kill(waiting, signal.SIGKILL)


GATES = {
    kill_driver: ["reading", "counting", "writing", "written", "writing"],
    kill_worker: ["reading", "counting", "writing", "reading", "writing"],
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kill", GATES, ids=lambda kill: kill.__name__)
def test_every_message_once_after_five_kills(
    topics: Topics, tmp_path: Path, kill: Callable[[int, int], None]
) -> None:
    job = KilledJob(tmp_path, topics)
    send(topics, job.topic, 3, range(MESSAGES))
    for gate in GATES[kill]:
        job.kill_at(gate, kill)
    assert job.committed_batches() < MESSAGES // RECORDS_PER_BATCH  # else the last kills came too late
    job.finish()
    pairs = [tuple(map(int, value.split())) for found in topics.committed(job.out).values() for value in found]
    assert sorted(number for number, _ in pairs) == list(range(MESSAGES))
    for key in range(KEYS):
        counted = sorted(count for number, count in pairs if number % KEYS == key)
        assert counted == list(range(1, len(counted) + 1))
