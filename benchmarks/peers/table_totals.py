"""The end of jobs on tables: adds up the results of each table, and counts them in a sink."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dsv2 import NonKeyedPartitionStream
from dsv2.arrow import ArrowForeachBatchSink, map_tables, schema_of

__all__ = ("add_up_tables",)


class Totals(NamedTuple):
    """The number and the sum of some results."""

    number: int
    total: int


class _AddUp:
    def __init__(self, column: str) -> None:
        self.column = column

    def __call__(self, results: pa.Table) -> pa.Table:
        total = pc.sum(results[self.column], min_count=0).as_py()
        return pa.table({"number": [results.num_rows], "total": [total]}, schema_of(Totals))


def add_up_tables(results: NonKeyedPartitionStream[Any], kind: type[Any], column: str) -> list[tuple[int, int]]:
    """Return a list that will contain the number of results and the sum of a column, per micro-batch."""
    totals: list[tuple[int, int]] = []

    def write(table: pa.Table, batch_id: int) -> None:
        totals.append(tuple(pc.sum(table[name], min_count=0).as_py() for name in Totals._fields))

    results.process(map_tables(_AddUp(column), kind, Totals)).to_sink(ArrowForeachBatchSink(write, Totals))
    return totals
