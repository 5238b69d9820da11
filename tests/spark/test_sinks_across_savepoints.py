"""Exactly-once sinks of jobs that continue from savepoints: files, Kafka and PostgreSQL, of one job."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psycopg
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from dsv2 import JobError, Trigger
from dsv2.connectors.files import read_files
from dsv2.connectors.kafka import KafkaSink
from dsv2.connectors.postgres import PostgresSink
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.savepoint import Savepoint
from dsv2.sinks import FileSink
from dsv2.testing import Stop, TestSource
from runtime_spark import create_savepoint
from tests.kafka_topics import Topics
from tests.numbering import Numbering
from tests.spark.programs import environment

NUMBERS = range(60)
PER_BATCH = 10


class Counted(NamedTuple):
    number: int
    nth: int


def counted(key: int, number: int, nth: int) -> Counted:
    return Counted(number, nth)


EXPECTED = sorted(Counted(number, number // 7 + 1) for number in NUMBERS)


def encoded(record: Counted) -> bytes:
    return b"%d %d" % record


class Outputs:
    """A folder, a topic and a table."""

    def __init__(self, folder: Path, servers: str, conninfo: str) -> None:
        self.folder = folder
        self._topics = Topics(servers)
        self._topic = self._topics.create(2)
        self._conninfo = conninfo
        with psycopg.connect(conninfo) as connection:
            connection.execute("CREATE TABLE counted (number int, nth int)")

    def run(
        self,
        spark: SparkSession,
        checkpoint: str,
        *,
        stop: int | None = None,
        savepoint: str | None = None,
        parallelism: int = 2,
        sinks: Iterable[str] = ("file", "kafka", "postgres"),
        as_new_job: bool = False,
    ) -> None:
        """Run until ``stop`` numbers have been read, or to the end."""
        items = [*NUMBERS] if stop is None else [*NUMBERS[:stop], Stop(), *NUMBERS[stop:]]
        env = environment(spark, parallelism)
        source = TestSource[int](items, records_per_batch=PER_BATCH)
        numbers = env.from_source(source).with_uid("numbers").with_parallelism(1)  # keeps the order of each key
        keyed = numbers.key_by(lambda number: number % 7, version=1)
        numbered = keyed.process(Numbering(counted)).with_uid("counting")
        if "file" in sinks:
            numbered.to_sink(FileSink(self.folder / "out", schema=Counted)).with_uid("file")
        if "kafka" in sinks:
            kafka = KafkaSink[Counted](self._topics.bootstrap_servers, self._topic, encoded)
            numbered.to_sink(kafka).with_uid("kafka")
        if "postgres" in sinks:
            table = PostgresSink[Counted](self._conninfo, "counted", ["number", "nth"])
            numbered.to_sink(table).with_uid("postgres")
        env.execute(
            "counting",
            checkpoint_location=f"{self.folder}/{checkpoint}",
            savepoint=savepoint,
            as_new_job=as_new_job,
            trigger=Trigger.available_now(),
        )

    def written(self) -> dict[str, list[Counted]]:
        """Return the records that readers of each sink see."""
        files = ds.dataset(self.folder / "out", partitioning="hive").to_table(columns=["number", "nth"]).to_pylist()
        messages = [value.split() for found in self._topics.committed(self._topic).values() for value in found]
        with psycopg.connect(self._conninfo) as connection:
            rows = connection.execute("SELECT number, nth FROM counted").fetchall()
        return {
            "file": sorted(Counted(**row) for row in files),
            "kafka": sorted(Counted(int(number), int(nth)) for number, nth in messages),
            "postgres": sorted(Counted(*row) for row in rows),
        }


def test_sinks_continue_where_the_savepoint_was_taken(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker, postgres_server: PostgresServer
) -> None:
    outputs = Outputs(tmp_path, kafka_broker.bootstrap_servers, postgres_server.conninfo)
    outputs.run(spark, "first", stop=30)
    position = read_files(tmp_path / "out").position
    savepoint = create_savepoint(tmp_path / "first", tmp_path / "savepoint", spark=spark)
    written = Savepoint.open(savepoint).sinks
    assert {uid: sink.exactly_once for uid, sink in written.items()} == dict.fromkeys(written, True)
    assert written["kafka"].target.endswith(", transactions dsv2-*")
    outputs.run(spark, "second", savepoint=savepoint, parallelism=3)
    continued = create_savepoint(tmp_path / "second", tmp_path / "continued", spark=spark)
    assert {sink.job_id for sink in Savepoint.open(continued).sinks.values()} == {written["file"].job_id}
    assert Savepoint.open(continued).sinks["postgres"].batch_id > written["postgres"].batch_id
    assert outputs.written() == dict.fromkeys(("file", "kafka", "postgres"), EXPECTED)
    # Its micro-batches continue the count, so a reader of the first part continues as well.
    assert sorted(read_files(tmp_path / "out", after=position).to_arrow()["number"].to_pylist()) == [*NUMBERS[30:]]

    # The job whose state is in the savepoint cannot write to sinks that another one has continued.
    with pytest.raises(ConfigurationError, match="is written by a job that started from a savepoint of this one"):
        outputs.run(spark, "first")
    for sink in ("kafka", "postgres"):
        with pytest.raises(JobError, match="The sink already has micro-batch"):
            outputs.run(spark, "first", sinks=[sink])
    # Nor can a second job from the same savepoint, unless it is a new one with other outputs.
    with pytest.raises(IncompatibleCheckpointError, match="already has micro-batch"):
        outputs.run(spark, "third", savepoint=savepoint)
    with pytest.raises(ConfigurationError, match="holds the output of another run"):
        outputs.run(spark, "third", savepoint=savepoint, as_new_job=True)
    assert outputs.written() == dict.fromkeys(("file", "kafka", "postgres"), EXPECTED)
    outputs.run(spark, "third", savepoint=savepoint, as_new_job=True, sinks=["postgres"])
    twice = outputs.written()["postgres"]
    assert sorted({*twice}) == EXPECTED
    assert len(twice) == len(EXPECTED) + len(NUMBERS) - 30
