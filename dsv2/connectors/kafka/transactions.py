"""Writing each micro-batch once: a transaction per subtask, which remembers the micro-batch within itself.

A transactional id has one user at a time: whoever takes it ends the transactions of all others that had it, and waits
until the fate of theirs is known. So, once it has it, a subtask can trust what its consumer group says of the
micro-batches that were committed before, and nobody who is late can commit behind its back. It keeps the id for the
next micro-batch, if that comes to the same process. A transaction begins by telling its micro-batch, which the brokers
refuse if another one has the id by then; if they take it, nobody else can have written anything since.
"""

from __future__ import annotations

import json
import logging
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


@dataclass
class _Writer:
    """A producer, and the last micro-batch that was committed under its name."""

    producer: TransactionalProducer
    last_batch: int = -1

    def close(self) -> None:
        """Let go of the connections."""
        self.producer.close()


_LOG = logging.getLogger(__name__)
_brokers: Pool[Broker] = Pool()
_writers: Pool[_Writer] = Pool()


def _broker(connection: KafkaConnection) -> Broker:
    return _brokers.take(connection) or Broker(connection, SystemClock())


@dataclass(frozen=True)
class Transactions:
    """Those of one sink of one job.

    Each subtask has a transactional id, and a consumer group of the same name. The group's offset for ``marker``, which
    stands for any partition that is there, is the number of the next micro-batch. One more group, the sink's own, tells
    the parallelism.
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
        before may have written ``batch_id`` already.
        """
        now, broker = self.info.parallelism, _broker(self.connection)
        if self.marker not in broker.partitions((self.marker.topic,), None):
            raise JobError(f"There is no topic {self.marker.topic} at {self.connection.bootstrap_servers}: create it.")
        committed = broker.group_offset(self._name, self.marker)
        before = None if committed is None else int(json.loads(committed.note)["parallelism"])
        if before is not None and before != now:
            self._check_unwritten(broker, batch_id, before)
        if before != now:
            broker.set_group_offset(
                self._name, self.marker, CommittedOffset(batch_id, json.dumps({"parallelism": now}))
            )
        _brokers.give_back(broker, self.connection)

    def _check_unwritten(self, broker: Broker, batch_id: int, parallelism: int) -> None:
        for subtask in range(parallelism):
            name = self._name_of(subtask)
            TransactionalProducer(self.connection, name).close()  # ends what was left open
            if self._last_batch(broker, name) >= batch_id:
                raise JobError(
                    f"Micro-batch {batch_id} was written in part by {parallelism} subtasks, before the job failed, and "
                    f"{self.info.parallelism} cannot write the rest. Start the job once with parallelism {parallelism} "
                    f"of this sink, and change it when that micro-batch is done."
                )

    def write(self, batch: SinkBatch[T], encoder: MessageEncoder[T]) -> None:
        """Write ``batch``, unless it was written before. Raises ``JobError``."""
        name = self._name_of(batch.subtask)
        writer = self._begun(name, batch.batch_id)
        if writer.last_batch < batch.batch_id:
            try:
                for run in batch.runs:
                    writer.producer.send(run, encoder)
                writer.producer.commit()
            except BaseException:
                writer.producer.abort()
                writer.close()
                raise
            writer.last_batch = batch.batch_id
        _writers.give_back(writer, self.connection, name)

    def _begun(self, name: str, batch_id: int) -> _Writer:
        """One in a transaction for ``batch_id``; in none if that was written before. Raises ``JobError``."""
        if (kept := _writers.take(self.connection, name)) is not None:
            try:
                return self._in_transaction(kept, batch_id)
            except JobError as error:
                _LOG.info("%r is taken anew: %s", name, error)
        writer = _Writer(TransactionalProducer(self.connection, name))
        broker = _broker(self.connection)
        writer.last_batch = self._last_batch(broker, name)
        _brokers.give_back(broker, self.connection)
        return self._in_transaction(writer, batch_id)

    def _in_transaction(self, writer: _Writer, batch_id: int) -> _Writer:
        if writer.last_batch < batch_id:
            try:
                writer.producer.begin(self.marker, batch_id + 1)
            except BaseException:
                writer.close()
                raise
        return writer

    def _last_batch(self, broker: Broker, name: str) -> int:
        """The last micro-batch that was committed under ``name``, -1 if there is none."""
        marker = broker.group_offset(name, self.marker)
        return -1 if marker is None else marker.offset - 1
