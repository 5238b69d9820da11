"""Sinks that receive Arrow tables instead of single records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

import pyarrow as pa

from dsv2.arrow.records import table_of
from dsv2.arrow.schema import declared_types, schema_of
from dsv2.base.type_variables import T
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import DriverLimit, DriverSink, ParallelSink, SinkBatch, SinkInfo
from dsv2.sinks.sink import MAX_BYTES, MAX_RECORDS


class ArrowForeachBatchSink(DriverSink[T], Generic[T]):
    """Calls ``function(table, batch_id)`` on the driver for each micro-batch; a ``ForeachBatchSink`` with tables.

    Delivery is at least once: after a crash a ``batch_id`` may be repeated, with the same rows. Use it to deduplicate.
    """

    def __init__(
        self,
        function: Callable[[pa.Table, int], None],
        of: type[T],
        *,
        max_records: int | None = MAX_RECORDS,
        max_bytes: int | None = MAX_BYTES,
    ) -> None:
        """Create the sink.

        Args:
            function: Called with all records of a micro-batch and the micro-batch's id.
            of: The class of the records, a NamedTuple class or dataclass. Its fields are the columns of the table.
            max_records: The most records that a micro-batch may contain. None: any number.
            max_bytes: The most bytes, likewise; see ``CollectSink``.

        Raises:
            SchemaError: The class has no columns, or a field has no column type.
            ConfigurationError: A limit is not a whole number of at least 1.
        """
        schema_of(of)
        self.function = function
        self.of = of
        self.dsv2_limit = DriverLimit(max_records, max_bytes)

    @property
    def record_types(self) -> Collection[type]:
        return (self.of,)

    @property
    def dsv2_tables_of(self) -> type:
        return self.of

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        tables = [table_of(batch.records, self.of) for batch in batches]
        self.function(pa.concat_tables(tables) if tables else schema_of(self.of).empty_table(), batch_id)


@dataclass(frozen=True, slots=True)
class ArrowSinkBatch:
    """The records of one subtask in one micro-batch; a ``SinkBatch`` with tables.

    ``tables`` can be iterated once and yields up to some thousand records at a time. Records of a channel are in order.
    """

    info: SinkInfo
    subtask: int
    batch_id: int
    tables: Iterator[pa.Table]


class ArrowSink(ParallelSink[T], Generic[T]):
    """A ``ParallelSink`` that receives tables. Single records are gathered into tables.

    Declare ``T`` in the class statement: ``class Lake(ArrowSink[Total])``. It is a NamedTuple class or dataclass whose
    fields have column types.
    """

    @abstractmethod
    def write_tables(self, batch: ArrowSinkBatch) -> None:
        """Write one batch. Called in a task, for each subtask with records.

        The records must be durable when this returns. A repeated call with the same id must not duplicate them.
        """

    def check(self) -> None:
        for kind in self.record_types:
            schema_of(kind)

    @property
    def record_types(self) -> tuple[type, ...]:
        return declared_types(type(self), ArrowSink, "Total")

    @property
    def dsv2_tables_of(self) -> type:
        return self.record_types[0]

    def write(self, batch: SinkBatch[T]) -> None:
        (kind,) = self.record_types
        tables = (table_of(part.records, kind) for part in batch.batches)
        self.write_tables(ArrowSinkBatch(batch.info, batch.subtask, batch.batch_id, tables))
