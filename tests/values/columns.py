"""Ways through columns: tables in, through and out, keyed state and declared aggregates, on either runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from dsv2 import Collector, CollectSink, ExecutionEnvironment, OneInputStreamProcessFunction, PartitionedContext
from dsv2.aggregates import Last
from dsv2.arrow import ArrowForeachBatchSink, map_tables
from tests.values.awkward import annotation_at, holder_of, value_at
from tests.values.same import equal
from tests.values.ways import NotSentError


def holder_at(position: int) -> Any:
    """The class of records for the value at this position."""
    return holder_of(annotation_at(position))


class EmitHolder(OneInputStreamProcessFunction[int, Any]):
    """Emits the values at the positions that it receives, in records of their class."""

    def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(holder_at(record)(record, value_at(record)))


def _holders(env: ExecutionEnvironment, positions: Sequence[int]) -> Any:
    return env.from_collection(list(positions)).process(EmitHolder())


def _same(table: pa.Table) -> pa.Table:
    return table


def build_map_tables(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Any]:
    """Through a function on tables, and an exchange."""
    sink, kind = CollectSink[Any](), holder_at(positions[0])
    _holders(env, positions).shuffle().process(map_tables(_same, kind, kind)).shuffle().process(
        map_tables(_same, kind, kind)
    ).to_sink(sink)
    return sink


def build_table_sink(env: ExecutionEnvironment, positions: Sequence[int], received: list[Any]) -> None:
    """Into a sink on tables."""
    kind = holder_at(positions[0])

    def write(table: pa.Table, batch_id: int) -> None:
        received.extend(kind(**row) for row in table.to_pylist())

    _holders(env, positions).to_sink(ArrowForeachBatchSink(write, kind))


def build_pandas_source(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Any]:
    """From a DataFrame of pandas."""
    values = [value_at(position) for position in positions]
    try:
        series = pd.Series(values)
    except Exception as error:
        raise NotSentError(f"pandas has no column of these values: {error}") from error
    _check_column(values, series.tolist())
    return _read(env, positions, pd.DataFrame({"position": list(positions), "value": series}))


def build_arrow_source(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Any]:
    """From an Arrow table, with the types that Arrow infers."""
    values = [value_at(position) for position in positions]
    try:
        column = pa.array(values)
        held = column.to_pylist(maps_as_pydicts="strict")
    except Exception as error:
        raise NotSentError(f"Arrow has no column of these values: {error}") from error
    _check_column(values, held)
    return _read(env, positions, pa.table({"position": list(positions), "value": column}))


def _check_column(values: Sequence[Any], held: Sequence[Any]) -> None:
    """Check that a column has not changed the values itself."""
    if not all(map(equal, values, held)):
        raise NotSentError("The column holds other values.")


def _read(env: ExecutionEnvironment, positions: Sequence[int], table: Any) -> CollectSink[Any]:
    sink = CollectSink[Any]()
    env.from_dataframe(table, holder_at(positions[0])).to_sink(sink)
    return sink


def build_aggregate(env: ExecutionEnvironment, positions: Sequence[int], part: Any, selector: Any) -> CollectSink[Any]:
    """As a declared aggregate of one value for each key."""
    sink, kind = CollectSink[Any](), holder_at(positions[0])
    keyed = _holders(env, positions).key_by(selector)
    keyed.aggregate(kind, kind, position=Last("position"), value=part).to_sink(sink)
    return sink
