"""Converts a stream to a DataFrame, so that Spark continues where the pipeline ends."""

from __future__ import annotations

from typing import Any, TypeVar

from pyspark.sql import DataFrame

from dsv2.checks.tracebacks import short_traceback
from dsv2.environment import ExecutionEnvironment
from dsv2.errors import ConfigurationError, PlanError
from dsv2.graph import OperatorKind
from dsv2.sinks import Sink
from dsv2.streams.kinds import GlobalStream, KeyedPartitionStream, NonKeyedPartitionStream
from runtime_spark.frames.schema import schema_of
from runtime_spark.runtime import SparkRuntime
from runtime_spark.sink.record_frames import decoded
from runtime_spark.sink.sink_types import check_declared_type

T = TypeVar("T")


class _DataFrameSink(Sink[Any]):
    """Marks the place in a plan where its DataFrame begins."""


@short_traceback
def to_dataframe(
    env: ExecutionEnvironment,
    stream: NonKeyedPartitionStream[T] | KeyedPartitionStream[Any, T] | GlobalStream[T],
    schema: type[T] | str,
    job_name: str = "dsv2 job",
) -> DataFrame:
    """Return the records of ``stream`` as a DataFrame: a streaming one, or a batch one in BATCH mode.

    Call it instead of ``execute``, on a pipeline without sinks. Start your query over a streaming DataFrame within
    ``with starting(spark, parallelism):``. The checkpoint of that query has no record of the
    job, so a restart does not check that the pipeline is unchanged.

    Args:
        env: The environment. It is empty afterwards.
        stream: The stream.
        schema: A dataclass or NamedTuple class, or a DDL string for tuples and dicts.
        job_name: The name of the job.

    Raises:
        ConfigurationError: ``env`` does not use the Spark runtime.
        PlanError: The pipeline has sinks or stores dead letters, or is not valid.
        SchemaError: The records do not fit ``schema``.
    """
    runtime = env.load_runtime()
    if not isinstance(runtime, SparkRuntime):
        raise ConfigurationError(
            "to_dataframe requires the Spark runtime: ExecutionEnvironment.get_instance(spark=session)."
        )
    stream.to_sink(_DataFrameSink()).with_name("DataFrame")
    plan = env.take_plan(job_name)
    sinks = [operator for operator in plan.operators if operator.kind is OperatorKind.SINK]
    if len(sinks) > 1:
        raise PlanError(
            f"to_dataframe requires a pipeline without sinks, but there is {sinks[0]} at {sinks[0].location}."
        )
    for operator in plan.operators:
        if operator.stores_dead_letters:
            raise PlanError(
                f"{operator}, defined at {operator.location}, has dead letters, which to_dataframe cannot store. Use "
                f"skip() in its error policy."
            )
    check_declared_type(plan, sinks[0], schema_of(schema))
    compiled = runtime.compile(plan)
    return decoded(compiled.frames, sinks[0], compiled.layout, compiled.packed, schema)
