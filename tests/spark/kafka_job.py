"""A job from Kafka to Kafka, to be killed at gates: ``python -m tests.spark.kafka_job FOLDER SERVERS IN OUT``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.job import Trigger
from dsv2.sinks import ForeachBatchSink

RECORDS_PER_BATCH = 400
KEYS = 7


class Gate:
    """A place where the job waits, once it is shut, until it is killed or the gate is opened."""

    def __init__(self, folder: str, name: str) -> None:
        self._shut = Path(folder, f"{name}.shut")
        self._waiting = Path(folder, f"{name}.waiting")

    def pass_through(self) -> None:
        """Wait while the gate is shut; tell who waits."""
        while self._shut.exists():
            partial = self._waiting.with_suffix(f".{os.getpid()}")
            partial.write_text(str(os.getpid()))
            partial.rename(self._waiting)
            time.sleep(0.02)


class Count(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Numbers the records of each key: 1, 2, 3, … if none is lost and none comes twice."""

    def __init__(self, gate: Gate) -> None:
        self.counts: dict[int, int] = {}
        self._gate = gate

    def process_record(
        self, record: int, output: Collector[tuple[int, int]], ctx: PartitionedContext[tuple[int, int]]
    ) -> None:
        self._gate.pass_through()
        self.counts[record % KEYS] = self.counts.get(record % KEYS, 0) + 1
        output.collect((record, self.counts[record % KEYS]))


def main(folder: str, servers: str, topic_in: str, topic_out: str) -> None:
    """Read all that there is now, from where the checkpoint in ``folder`` stands."""
    reading, counting, writing, written = (
        Gate(folder, name) for name in ("reading", "counting", "writing", "written")
    )

    def decode(value: bytes) -> int:
        reading.pass_through()
        return int(value)

    def encode(record: tuple[int, int]) -> bytes:
        writing.pass_through()
        return b"%d %d" % record

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kafka")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    source = KafkaSource(
        servers, topics=topic_in, decode=values(decode), group_id="killed", records_per_batch=RECORDS_PER_BATCH
    )
    counted = env.from_source(source).key_by(lambda record: record % KEYS).process(Count(counting)).with_uid("count")
    counted.to_sink(KafkaSink[tuple[int, int]](servers, topic_out, encode)).with_uid("out")
    # Written after the other sink, in the main process.
    counted.to_sink(ForeachBatchSink(lambda records, batch_id: written.pass_through())).with_uid("gate")
    env.execute("kafka", checkpoint_location=f"{folder}/checkpoint", trigger=Trigger.available_now())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
