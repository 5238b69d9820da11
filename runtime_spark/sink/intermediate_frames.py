"""Checks and builds the DataFrames that records pass through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql import types as t

from dsv2.checkpoint.task_report import TaskReport
from dsv2.errors import PlanError, SchemaError
from dsv2.graph import Operator, Plan
from dsv2.graph.sections import Passage
from dsv2.model.context import RuntimeExecutionMode
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.schema import check_readable, schema_of
from runtime_spark.platform.connect import check_passages_on
from runtime_spark.platform.java_classes import java_class
from runtime_spark.platform.streaming_dataframes import reads_the_same
from runtime_spark.sink.dataframe_function import RowsSink, TransformedRows
from runtime_spark.sink.record_frames import decoded
from runtime_spark.sink.sink_types import check_declared_type

_WITH_STATE = ("Aggregate", "Deduplicate", "Distinct", "Limit", "WithState")  # parts of the names of Spark's operators


class PassedReports:
    """The reports of subtasks before a DataFrame. Tasks send them to the driver past the DataFrame."""

    def __init__(self, spark: SparkSession) -> None:
        self._payloads: Accumulator[list[bytes]] = spark.sparkContext.accumulator([], _Joined())

    @property
    def payloads(self) -> Accumulator[list[bytes]]:
        """The accumulator to which tasks add the reports."""
        return self._payloads

    def take(self) -> TaskReport:
        """Return the reports since the last call. A task that was repeated has reported the same again."""
        payloads, self._payloads.value = self._payloads.value, []
        return TaskReport.distinct(payloads)


class _Joined(AccumulatorParam[list[bytes]]):
    def zero(self, value: list[bytes]) -> list[bytes]:
        return []

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:  # noqa: N802 - Spark's name
        return value1 + value2


def check_passages(spark: SparkSession, plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Check the DataFrames of ``plan``. Returns for each of them the operators of Spark with state in it.

    Raises:
        PlanError: Spark does not support a DataFrame, or its columns do not match.
        ConfigurationError: The session is one of Spark Connect.
    """
    if plan.passages:
        check_passages_on(spark, plan.job_name)
    return tuple(_checked(spark, plan, passage) for passage in plan.passages)


def passed(
    frames: DataFrame, plan: Plan, passage: Passage, layout: Layout, packed: bytes, reports: PassedReports
) -> DataFrame:
    """Return the rows that continue from those records in ``frames`` that reach ``passage``."""
    source = passage.source.body
    assert isinstance(source, TransformedRows)
    assert isinstance(passage.sink.body, RowsSink)
    rows = decoded(frames, passage.sink, layout, packed, passage.sink.body.schema, reports=reports.payloads)
    result = _transformed(source.transform, rows, passage.source)
    if plan.mode is RuntimeExecutionMode.STREAMING and not reads_the_same(result, rows):
        raise _one_stream(passage.source)
    return result


def _checked(spark: SparkSession, plan: Plan, passage: Passage) -> tuple[str, ...]:
    sink, source = passage.sink, passage.source
    assert isinstance(sink.body, RowsSink)
    assert isinstance(source.body, TransformedRows)
    schema = schema_of(sink.body.schema)
    check_declared_type(plan, sink, schema)
    streaming = plan.mode is RuntimeExecutionMode.STREAMING
    rows = _stand_in(spark, schema, streaming=streaming)
    result = _transformed(source.body.transform, rows, source)
    try:
        check_readable(source.body.record_type, result.schema, source.body.split_by)
    except SchemaError as error:
        raise SchemaError(f"{source}, defined at {source.location}: {error}") from error
    if not streaming:
        return ()
    if not reads_the_same(result, rows):
        raise _one_stream(source)
    analyzed = result._jdf.queryExecution().analyzed()
    _check_supported(spark, analyzed, source)
    return tuple(sorted(_operators_with_state(analyzed)))


def _stand_in(spark: SparkSession, schema: t.StructType, *, streaming: bool) -> DataFrame:
    """Return a DataFrame without rows in place of the records, to analyze what is made of it."""
    if not streaming:
        return spark.createDataFrame([], schema)
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return spark.readStream.format("rate").load().select(*columns)


def _transformed(transform: Callable[[DataFrame], DataFrame], rows: DataFrame, source: Operator) -> DataFrame:
    try:
        result = transform(rows)
    except AnalysisException as error:
        raise PlanError(f"The transform of {source}, defined at {source.location}: {_reason(error)}.") from error
    if not isinstance(result, DataFrame):
        raise PlanError(
            f"The transform of {source}, defined at {source.location}, returned a {type(result).__name__}, not a "
            f"DataFrame."
        )
    return result


def _check_supported(spark: SparkSession, analyzed: Any, source: Operator) -> None:
    """Apply Spark's own check. Spark cannot apply it to the whole query, whose levels it would refuse."""
    checker = java_class(spark._jvm, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
    modes = java_class(spark._jvm, "org.apache.spark.sql.streaming.OutputMode")
    try:
        checker.checkForStreaming(analyzed, modes.Append())
    except AnalysisException as error:
        raise PlanError(
            f"{source}, defined at {source.location}, uses something that Spark does not support in a streaming query: "
            f"{_reason(error)}. Process the records with a function of dsv2 instead, or write them to a table and run "
            f"this in a batch job."
        ) from error


def _reason(error: AnalysisException) -> str:
    """Spark's message, without the plan that follows it."""
    return str(error).partition(";\n")[0].rstrip(".")


def _one_stream(source: Operator) -> PlanError:
    return PlanError(
        f"The DataFrame of {source}, defined at {source.location}, must read the given DataFrame exactly once, and no "
        f"other stream. It may be joined with tables. Connect other streams before or after it, and use one DataFrame "
        f"with all columns instead of several that are joined."
    )


def _operators_with_state(node: Any) -> Iterator[str]:
    name = str(node.nodeName())
    if node.isStreaming() and any(part in name for part in _WITH_STATE):
        yield name
    children = node.children()
    for place in range(children.size()):
        yield from _operators_with_state(children.apply(place))
