"""Writing each micro-batch once: a transaction per subtask, which remembers the micro-batch within itself.

A transactional id has one user at a time: whoever begins with it ends the transactions of all others that have it, and
waits until the fate of theirs is known. So, once it has begun, a subtask can trust what its consumer group says of the
micro-batches that were committed before, and nobody who is late can commit behind its back.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from dsv2.clock import SystemClock
from dsv2.connectors.kafka.broker import Broker, CommittedOffset
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.encoder import MessageEncoder
from dsv2.connectors.kafka.pool import Pool
from dsv2.connectors.kafka.producers import TransactionalProducer
from dsv2.connectors.kafka.split import TopicPartition
from dsv2.errors import JobError
from dsv2.sinks import SinkBatch, SinkInfo

__all__ = ("Transactions",)

T = TypeVar("T")
_brokers: Pool[Broker] = Pool(lambda connection: Broker(connection, SystemClock()))


@dataclass(frozen=True)
class Transactions:
    """Those of one sink of one job.

    Each subtask has a transactional id, and a consumer group of the same name. The group's offset for ``marker``, which
    stands for any partition that is there, is the number of the next micro-batch, with the id of the run that wrote the
    last one. One more group, the sink's own, has the parallelism.
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
        """Called on the driver when a run begins with ``batch_id``. Raises ``JobError`` if that cannot be written once.

        Which subtask writes which records depends on how many there are. So if that has changed, no subtask of the run
        before may have written ``batch_id`` already. Nor may any have written what the checkpoint does not know of.
        """
        with _brokers.lent(self.connection) as broker:
            self._begin(broker, batch_id)

    def _begin(self, broker: Broker, batch_id: int) -> None:
        now = self.info.parallelism
        if self.marker not in broker.partitions((self.marker.topic,), None):
            raise JobError(f"There is no topic {self.marker.topic} at {self.connection.bootstrap_servers}: create it.")
        committed = broker.group_offset(self._name, self.marker)
        before = None if committed is None else int(json.loads(committed.note)["parallelism"])
        for subtask in range(before or 0):
            if before != now:
                self._producer(subtask).close()  # ends what was left open
            if self._has(broker, subtask, batch_id) and before != now:
                raise JobError(
                    f"Micro-batch {batch_id} was written in part by {before} subtasks, before the job failed, and "
                    f"{now} cannot write the rest. Start the job once with parallelism {before} of this sink, and "
                    f"change it when that micro-batch is done."
                )
        if before != now:
            broker.set_group_offset(
                self._name, self.marker, CommittedOffset(batch_id, json.dumps({"parallelism": now}))
            )

    def write(self, batch: SinkBatch[T], encoder: MessageEncoder[T]) -> None:
        """Write ``batch``, unless it was written before. Raises ``JobError``."""
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
        """Whether ``subtask`` has committed ``batch_id``. Raises ``JobError`` if its marker is of another history."""
        marker = broker.group_offset(self._name_of(subtask), self.marker)
        return marker is not None and self.info.is_written(batch_id, marker.offset - 1, marker.note)
