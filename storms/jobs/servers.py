"""A job from Kafka to Kafka and PostgreSQL, with exactly-once delivery."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from dsv2 import Collector, PartitionedContext, Trigger
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.connectors.postgres import PostgresSink
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.state import StateDeclaration, StateDeclarations
from storms.common.outputs import Output, read_files
from storms.common.processes import Gate
from storms.common.runtimes import environment, rolling_files
from tests.kafka_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("GATES", "SINKS", "Servers", "expected", "run")

KEYS = 11
PARTITIONS = 3
MESSAGES = 10_000
PER_BATCH = 400
GATES = ("count", "encode", "row")
SINKS = ("counted",)
COUNT = StateDeclarations.value_state("count", int, default=0)


class Counted(NamedTuple):
    number: int
    nth: int


def number_of(value: bytes) -> int:
    return int(value)


def key_of(number: int) -> int:
    return number % KEYS


class Count(OneInputStreamProcessFunction[int, Counted]):
    """Numbers the records of each key."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        self._gate.pass_through()
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect(Counted(record, count.value()))


class Encode:
    """Encodes records as values of messages, and as rows of the table."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def message(self, record: Counted) -> bytes:
        self._gate.pass_through()
        return b"%d %d" % record

    def row(self, record: Counted) -> tuple[int, int]:
        self._gate.pass_through()
        return record.number, record.nth


def run(spark: SparkSession | None, folder: str, layout: str, brokers: str, into: str, out: str, conninfo: str) -> None:
    """Run or resume the job, with its checkpoint in ``folder``. It reads the topic ``into`` and writes to ``out``."""
    env = environment(spark, layout)
    env.set_parallelism(2)
    source = KafkaSource(brokers, topics=into, decode=values(number_of), group_id=out, records_per_batch=PER_BATCH)
    numbers = env.from_source(source).with_uid("messages").key_by(key_of)
    counted = numbers.process(Count(Gate(folder, "count"))).with_uid("count")
    messages, rows = Encode(Gate(folder, "encode")), Encode(Gate(folder, "row"))
    counted.to_sink(rolling_files(spark, f"{folder}/counted", Counted)).with_uid("files")
    counted.to_sink(KafkaSink(brokers, out, messages.message)).with_uid("kafka")
    table = PostgresSink(conninfo, out.replace("-", "_"), ["number", "nth"], row=rows.row)
    counted.to_sink(table).with_uid("postgres")
    env.execute("servers", checkpoint_location=f"{folder}/checkpoint", trigger=Trigger.available_now())


def expected() -> Output:
    """The expected content of each of the three sinks: the numbered records of each key, and all records.

    The number of a record depends on the order in which partitions are read.
    """
    sizes = Counter(map(key_of, range(MESSAGES)))
    numbered = Counter((key, nth) for key, size in sizes.items() for nth in range(1, size + 1))
    records = Counter((number,) for number in range(MESSAGES))
    sinks = ("files", "kafka", "postgres")
    return dict.fromkeys(sinks, numbered) | {f"{sink}, records": records for sink in sinks}


class Servers:
    """The servers of a storm. Each life of the job has its own topic and table."""

    def __init__(self, broker: KafkaBroker, database: PostgresServer) -> None:
        self._topics = Topics(broker.bootstrap_servers)
        self._conninfo = database.conninfo
        self._into = self._topics.create(PARTITIONS)
        for partition in range(PARTITIONS):
            self._topics.send(
                self._into, (b"%d" % number for number in range(partition, MESSAGES, PARTITIONS)), partition
            )

    def prepare(self, life: str) -> list[str]:
        """Create the topic and the table. Returns the arguments of the job."""
        out = self._topics.create(2, f"out-{life}")
        with psycopg.connect(self._conninfo) as connection:
            connection.execute(f"CREATE TABLE {out.replace('-', '_')} (number int, nth int)")
        return [self._topics.bootstrap_servers, self._into, out, self._conninfo]

    def written(self, folder: Path, out: str) -> Output:
        """Read the content of the sinks."""
        files = read_files(folder / "counted")
        messages = [value.split() for part in self._topics.committed(out).values() for value in part]
        with psycopg.connect(self._conninfo) as connection:
            rows = connection.execute(f"SELECT number, nth FROM {out.replace('-', '_')}").fetchall()
        held: dict[str, Counter[tuple[int, int]]] = {
            "files": files,
            "kafka": Counter((int(number), int(nth)) for number, nth in messages),
            "postgres": Counter((number, nth) for number, nth in rows),
        }
        found: dict[str, Counter[tuple[int, ...]]] = {}
        for sink, pairs in held.items():
            found[sink] = Counter((key_of(number), nth) for number, nth in pairs.elements())
            found[f"{sink}, records"] = Counter((number,) for number, _ in pairs.elements())
        return found
