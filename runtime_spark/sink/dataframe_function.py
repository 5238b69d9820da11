"""Passes the records of a stream through a DataFrame, in the middle of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pyspark.sql import DataFrame

from dsv2.checks.tracebacks import short_traceback
from dsv2.environment import ExecutionEnvironment
from dsv2.errors import ConfigurationError, PlanError
from dsv2.graph.builder import caller_location
from dsv2.sinks import Sink
from dsv2.sources import ContinuedDataFrameSource
from dsv2.streams.kinds import ConfiguredStream, GlobalStream, KeyedPartitionStream, NonKeyedPartitionStream
from runtime_spark.frames.schema import schema_of

T = TypeVar("T")
R = TypeVar("R")


class RowsSink(Sink[Any]):
    """Marks where records become the rows of a DataFrame with a ``schema``."""

    def __init__(self, schema: type | str) -> None:
        self.schema = schema


class TransformedRows(ContinuedDataFrameSource[T], Generic[T]):
    """The rows that ``transform`` makes of the rows of ``sink``."""

    def __init__(
        self,
        sink: RowsSink,
        transform: Callable[[DataFrame], DataFrame],
        record_type: type[T],
        split_by: str | None,
    ) -> None:
        super().__init__(sink, record_type, split_by=split_by)
        self.transform = transform


@short_traceback
def through_dataframe(
    env: ExecutionEnvironment,
    stream: NonKeyedPartitionStream[T] | KeyedPartitionStream[Any, T] | GlobalStream[T],
    transform: Callable[[DataFrame], DataFrame],
    schema: type[T] | str,
    record_type: type[R],
    *,
    split_by: str | None = None,
    name: str = "DataFrame",
) -> ConfiguredStream[R]:
    """Pass the records of ``stream`` through Spark SQL, and return the rows as a stream.

    The whole job is one query of Spark, with one checkpoint. All records of the job up to here have to pass through
    the DataFrame. Watermarks, timestamps and, in a STREAMING job, the end of the input do not pass. If ``transform``
    has state in Spark, such as an aggregation, the job has no savepoints and its checkpoint is not migrated.

    Args:
        env: The environment of ``stream``.
        stream: The stream.
        transform: Returns the DataFrame that continues from the given one. It is called on the driver before the job
            starts, more than once.
        schema: The columns of the given DataFrame: a dataclass or NamedTuple class, or a DDL string for tuples and
            dicts.
        record_type: The class of the returned records: a dataclass or NamedTuple class, ``dict`` or ``Row``.
        split_by: A column. Rows with the same value reach the same subtask. None: the rows of each Spark partition do.
        name: The name of the operator.

    Raises:
        ConfigurationError: ``transform`` is not callable.
        SchemaError: ``schema`` is not valid.
        PlanError: ``stream`` belongs to another environment. When the job starts: ``transform`` uses something that
            Spark does not support here, or records would pass by the DataFrame.
    """
    if not callable(transform):
        raise ConfigurationError(f"transform must be a callable (DataFrame) -> DataFrame, not {transform!r}.")
    schema_of(schema)
    if env._builder is not stream._builder:
        raise PlanError(f"through_dataframe at {caller_location()}: the stream belongs to another environment.")
    sink = RowsSink(schema)
    stream.to_sink(sink).with_name(f"{name}, input")
    return env.from_source(TransformedRows(sink, transform, record_type, split_by), name)
