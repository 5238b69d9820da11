"""Ways through columns: tables in, through and out, keyed state and declared aggregates, on either runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from dsv2 import Collector, CollectSink, ExecutionEnvironment, OneInputStreamProcessFunction, PartitionedContext
from dsv2.aggregates import Last
from dsv2.arrow import ArrowForeachBatchSink, map_tables
from dsv2.errors import ConfigurationError
from tests.values.awkward import annotation_at, holder_of, value_at

__all__ = (
    "EmitHolder",
    "build_aggregate",
    "build_arrow_source",
    "build_map_tables",
    "build_pandas_source",
    "build_table_sink",
    "holder_at",
)


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
    values = pd.Series([value_at(position) for position in positions])
    return _read(env, positions, pd.DataFrame({"position": list(positions), "value": values}))


def build_arrow_source(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Any]:
    """From an Arrow table, with the types that Arrow infers."""
    values = [value_at(position) for position in positions]
    try:
        column = pa.array(values)
    except Exception as error:
        raise ConfigurationError(f"value: Arrow has no column of these values: {error}") from error
    return _read(env, positions, pa.table({"position": list(positions), "value": column}))


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
