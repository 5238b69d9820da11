"""Sinks that take Arrow tables instead of single records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from dsv2.arrow.declared_types import declared_types
from dsv2.arrow.records import table_of
from dsv2.arrow.schema import schema_of
from dsv2.record_batch import RecordBatch
from dsv2.sinks import DriverSink, ParallelSink, SinkBatch, SinkInfo

__all__ = ("ArrowForeachBatchSink", "ArrowSink", "ArrowSinkBatch")

T = TypeVar("T")


class ArrowForeachBatchSink(DriverSink[T], Generic[T]):
    """``ForeachBatchSink`` with tables: calls ``function(table, batch_id)`` on the driver, for each micro-batch.

    At least once: after a crash the same ``batch_id`` may come again, with the same rows; use it to drop repeats.
    """

    def __init__(self, function: Callable[[pa.Table, int], None], of: type[T]) -> None:
        """``of``: the class of the records, whose columns the table has: a NamedTuple class or dataclass.

        Raises ``SchemaError``.
        """
        schema_of(of)
        self.function = function
        self.of = of

    @property
    def record_types(self) -> Collection[type]:
        return (self.of,)

    def write_batch(self, batches: Sequence[RecordBatch[T]], batch_id: int) -> None:
        tables = [table_of(batch.records, self.of) for batch in batches]
        self.function(pa.concat_tables(tables) if tables else schema_of(self.of).empty_table(), batch_id)


@dataclass(frozen=True, slots=True)
class ArrowSinkBatch:
    """What one subtask writes: its records of one micro-batch. As ``SinkBatch``, but for ``tables``.

    ``tables`` gives the records once, some thousand at a time. Those of one channel come in their order.
    """

    info: SinkInfo
    subtask: int
    batch_id: int
    tables: Iterator[pa.Table]


class ArrowSink(ParallelSink[T], Generic[T]):
    """``ParallelSink`` with tables. Single records that reach it are put into tables.

    ``T`` is said in the class statement, ``class Lake(ArrowSink[Total])``, and is a NamedTuple class or dataclass whose
    fields have column types.
    """

    @abstractmethod
    def write_tables(self, batch: ArrowSinkBatch) -> None:
        """Write one batch; called in a task, for each subtask that has records.

        It is there when this returns. If this is called again with the same id, nothing may be there twice.
        """

    def check(self) -> None:
        for kind in self.record_types:
            schema_of(kind)

    @property
    def record_types(self) -> tuple[type, ...]:
        return declared_types(type(self), ArrowSink, "Total")

    def write(self, batch: SinkBatch[T]) -> None:
        (kind,) = self.record_types
        tables = (table_of(part.records, kind) for part in batch.batches)
        self.write_tables(ArrowSinkBatch(batch.info, batch.subtask, batch.batch_id, tables))
