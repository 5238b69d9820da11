"""The committed state of a running job on Spark, read from its checkpoint with Spark's state reader."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2.base.folders import Folder
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.live_state import CommittedState, no_micro_batch
from runtime_spark.checkpoint.generation import read_generation
from runtime_spark.checkpoint.spark_logs import listed_beginning
from runtime_spark.frames.failures import job_failure, marked_failures
from runtime_spark.frames.state_key import StateKey
from runtime_spark.savepoint.state_entries import state_entries
from runtime_spark.savepoint.state_rows import ROWS_SCHEMA, RowMaker, persisted_rows
from runtime_spark.savepoint.tables import HAVE_STATE

_SCHEMA = f"{ROWS_SCHEMA}, hash long"


class CheckpointState:
    """The state of a job after its last committed micro-batch. Any thread may read it.

    It is read once for each micro-batch that is asked for, and kept by Spark's executors until the next one is.

    Args:
        spark: The session.
        folder: The generation of the checkpoint.
        begun: The micro-batch with which the run began, by Spark's number.
        types: The classes of the job.
        state_key: The key of the job, if its state is signed.
        job_name: The name of the job.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Folder,
        begun: int,
        types: TypeRegistry,
        state_key: StateKey | None,
        job_name: str,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._begun = begun
        self._types = types
        self._state_key = state_key
        self._job_name = job_name
        self._reading = threading.Lock()
        self._last: _ReadState | None = None

    @contextmanager
    def committed(self, codec: Codec) -> Iterator[CommittedState]:
        """Give access to the state. Raises ``JobError`` if the run has not completed a micro-batch."""
        try:
            yield self._read()
        except Exception as error:
            raise job_failure(error, self._job_name) from error

    def release(self) -> None:
        """Let Spark forget the state. A thread that reads it continues from the checkpoint."""
        if self._last is not None:
            self._last.persisted.unpersist()
            self._last = None

    def _read(self) -> _ReadState:
        with self._reading:
            following = listed_beginning(self._folder).batch_id
            if following <= self._begun:
                raise no_micro_batch(self._job_name)
            if self._last is None or self._last.following != following:
                self.release()
                generation = read_generation(self._folder)
                make = _HashedRows(RowMaker.of(generation, self._state_key), self._types)
                rows = state_entries(self._spark, generation).mapInArrow(make, _SCHEMA)
                persisted = persisted_rows(rows, generation)
                self._last = _ReadState(persisted, generation.next_batch - 1, generation.beginning.batch_id)
            return self._last


@dataclass(frozen=True)
class _ReadState:
    """Implements ``CommittedState``.

    Attributes:
        persisted: The rows of all states, with the hashes of their keys.
        batch_id: The micro-batch.
        following: The one that follows, by Spark's number.
    """

    persisted: DataFrame
    batch_id: int
    following: int

    def rows(self, uid: str) -> Iterator[StateRow]:
        """Return the rows of an operator."""
        return map(_state_row, self.persisted.where(F.col("uid") == uid).toLocalIterator())

    def rows_near(self, uid: str, key: object) -> Iterator[StateRow]:
        """Return the rows of an operator whose keys have the hash of ``key``."""
        near = self.persisted.where((F.col("uid") == uid) & (F.col("hash") == stable_hash(key)))
        return map(_state_row, near.collect())


def _state_row(row: Row) -> StateRow:
    _, subtask, kind, state, key, value, _ = row
    return StateRow(subtask, RowKind(kind), state, None if key is None else bytes(key), bytes(value))


@dataclass(frozen=True)
class _HashedRows:
    """Makes the rows of states, with the hashes of their keys. Sent to the tasks."""

    make: RowMaker
    types: TypeRegistry

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for ``mapInArrow``, over the entries of ``state_entries``."""
        codec = Codec(self.types)
        for rows in self.make(batches):
            found = rows.filter(pc.is_in(rows["kind"], pa.array(HAVE_STATE)))
            with marked_failures():
                keys = (None if key is None else codec.loads(key, "A key") for key in found["key_bytes"].to_pylist())
                hashes = [None if key is None else stable_hash(key) for key in keys]
            yield found.append_column("hash", pa.array(hashes, pa.int64()))
