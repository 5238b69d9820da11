"""A job from Kafka to Kafka that tests kill at gates: ``python -m tests.spark.kafka_job FOLDER SERVERS IN OUT``."""

from __future__ import annotations

import sys
from unittest.mock import patch

from pyspark.sql import SparkSession

from dsv2 import Collector, PartitionedContext
from dsv2.connectors.kafka import KafkaSink, KafkaSource, TopicPartition, values
from dsv2.connectors.kafka.producers import TransactionalProducer
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.handle import Trigger
from dsv2.sinks import ForeachBatchSink, SinkBatch
from tests.spark.kill_job import new_session
from tests.spark.processes import Gate
from tests.spark.programs import environment

RECORDS_PER_BATCH = 400
KEYS = 7
TRANSACTIONS = "dsv2.connectors.kafka.transactions.TransactionalProducer"


class NumberPerKey(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Numbers the records of each key: 1, 2, 3, … if none is lost or repeated."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.counts: dict[int, int] = {}
        self._gate = gate

    def process_record(
        self, record: int, output: Collector[tuple[int, int]], ctx: PartitionedContext[tuple[int, int]]
    ) -> None:
        if self._gate is not None:
            self._gate.pass_through()
        self.counts[record % KEYS] = self.counts.get(record % KEYS, 0) + 1
        output.collect((record, self.counts[record % KEYS]))


class GatedSink(KafkaSink[tuple[int, int]]):
    """Its transactions pass gates: after messages were sent, before they are prepared, before and after the commit."""

    def __init__(self, servers: str, topic: str, folder: str) -> None:
        sending = Gate(folder, "sending")

        def encode(record: tuple[int, int]) -> bytes:
            sending.pass_through()
            return b"%d %d" % record

        super().__init__(servers, topic, encode)
        self._folder = folder

    def write(self, batch: SinkBatch[tuple[int, int]]) -> None:
        preparing, committing, committed = (
            Gate(self._folder, name) for name in ("preparing", "committing", "committed")
        )

        class GatedProducer(TransactionalProducer):
            def prepare(self, partition: TopicPartition, offset: int, note: str) -> None:
                self.flush()
                preparing.pass_through()
                super().prepare(partition, offset, note)

            def commit(self) -> None:
                committing.pass_through()
                super().commit()
                committed.pass_through()

        with patch(TRANSACTIONS, GatedProducer):
            super().write(batch)


def run(spark: SparkSession, folder: str, servers: str, topic_in: str, topic_out: str) -> None:
    """Read all available messages, starting at the checkpoint in ``folder``."""
    reading, counting, written = (Gate(folder, name) for name in ("reading", "counting", "written"))

    def decode(value: bytes) -> int:
        reading.pass_through()
        return int(value)

    env = environment(spark, 2)
    source = KafkaSource(
        servers, topics=topic_in, decode=values(decode), group_id="killed", records_per_batch=RECORDS_PER_BATCH
    )
    numbers = env.from_source(source).key_by(lambda number: number % KEYS)
    numbered = numbers.process(NumberPerKey(counting)).with_uid("count")
    numbered.to_sink(GatedSink(servers, topic_out, folder)).with_uid("out")
    # In the main process, when the other sink has written a complete micro-batch.
    numbered.to_sink(ForeachBatchSink(lambda records, batch_id: written.pass_through())).with_uid("gate")
    env.execute("kafka", checkpoint_location=f"{folder}/checkpoint", trigger=Trigger.available_now())


def main(folder: str, servers: str, topic_in: str, topic_out: str) -> None:
    """Run the job with its own session."""
    spark = new_session(folder)
    run(spark, folder, servers, topic_in, topic_out)
    spark.stop()


if __name__ == "__main__":
    # The importable module, not this copy of it: workers find its classes by the name of the module.
    from tests.spark import kafka_job

    kafka_job.main(*sys.argv[1:])
