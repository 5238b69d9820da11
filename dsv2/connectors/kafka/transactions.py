"""Exactly-once writes to Kafka: one transaction per subtask and micro-batch, which contains the micro-batch's number.

A transactional id has one owner at a time. A producer that initializes it fences the earlier producers with this id and
waits until their transactions are completed. After that, a subtask can rely on the offset of its consumer group to find
out which micro-batches were committed, and no delayed attempt can commit any more.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass

from dsv2.base.clock import SystemClock
from dsv2.base.type_variables import T
from dsv2.connectors.kafka.broker import Broker, CommittedOffset
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.encoder import MessageEncoder
from dsv2.connectors.kafka.pool import Pool
from dsv2.connectors.kafka.producers import TransactionalProducer
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import JobError
from dsv2.sinks import SinkBatch, SinkInfo

_brokers: Pool[Broker] = Pool(lambda connection: Broker(connection, SystemClock()))


@dataclass(frozen=True)
class Transactions:
    """The transactions of one sink of one job.

    Each subtask has a transactional id and a consumer group of the same name. The group's offset for ``marker`` (any
    existing partition) is the number of the next micro-batch; its metadata is the id of the run that wrote the last
    one. A further group holds the parallelism of the sink.
    """

    connection: KafkaConnection
    prefix: str
    marker: TopicPartition
    info: SinkInfo

    @property
    def _name(self) -> str:
        return f"{self.prefix}-{self.info.job_id}-{self.info.uid}"

    def _name_of(self, subtask: int) -> str:
        return f"{self._name}-{subtask}"

    def begin(self, batch_id: int) -> None:
        """Check that ``batch_id`` can be written exactly once. Called on the driver when a run begins.

        The parallelism determines which subtask writes which records. If it has changed, no subtask of the previous run
        may have written ``batch_id`` already. No subtask may have written a micro-batch that is not in the checkpoint.

        Raises:
            JobError: The micro-batch cannot be written exactly once, or the brokers do not answer.
        """
        with _brokers.lent(self.connection) as broker:
            self._begin(broker, batch_id)

    def _begin(self, broker: Broker, batch_id: int) -> None:
        now = self.info.parallelism
        if self.marker not in broker.partitions((self.marker.topic,), None):
            raise JobError(
                f"Topic {self.marker.topic} does not exist at {self.connection.bootstrap_servers}. Create it."
            )
        committed = broker.group_offset(self._name, self.marker)
        before = None if committed is None else int(json.loads(committed.note)["parallelism"])
        for subtask in range(before or 0):
            self._producer(subtask).close()  # aborts the open transaction, for which the offset would wait
            if self._has(broker, subtask, batch_id) and before != now:
                raise JobError(
                    f"Micro-batch {batch_id} was written in part by {before} subtasks before the job failed, and {now} "
                    f"subtasks cannot write the rest. Start the job with parallelism {before} for this sink, and "
                    f"change the parallelism after that micro-batch is complete."
                )
        if before != now:
            broker.set_group_offset(
                self._name, self.marker, CommittedOffset(batch_id, json.dumps({"parallelism": now}))
            )

    def write(self, batch: SinkBatch[T], encoder: MessageEncoder[T]) -> None:
        """Write ``batch`` unless it has been written already. Raises ``JobError``."""
        with closing(self._producer(batch.subtask)) as producer:
            if self._is_written(batch.subtask, batch.batch_id):
                return
            producer.begin()
            try:
                for records in batch.batches:
                    producer.send(records, encoder)
                producer.prepare(self.marker, batch.batch_id + 1, self.info.run.run_id)
                producer.commit()
            except BaseException:
                producer.abort()
                raise

    def _producer(self, subtask: int) -> TransactionalProducer:
        return TransactionalProducer(self.connection, self._name_of(subtask), self.marker.topic)

    def _is_written(self, subtask: int, batch_id: int) -> bool:
        with _brokers.lent(self.connection) as broker:
            return self._has(broker, subtask, batch_id)

    def _has(self, broker: Broker, subtask: int, batch_id: int) -> bool:
        """Return whether ``subtask`` has committed ``batch_id``. Raises ``JobError`` if another history did."""
        marker = broker.group_offset(self._name_of(subtask), self.marker)
        return marker is not None and self.info.is_written(batch_id, marker.offset - 1, marker.note)
