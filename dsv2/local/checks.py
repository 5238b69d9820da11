"""Checks before a local job starts that the local runtime can run it."""

from __future__ import annotations

from dsv2.errors import ConfigurationError
from dsv2.graph import OperatorKind, Plan
from dsv2.jobs.handle import RunOptions, check_batch_options
from dsv2.local.sinks import check_file_sink
from dsv2.model.context import RuntimeExecutionMode
from dsv2.sinks import DriverSink, FileSink, ParallelSink
from dsv2.sources import DataFrameSource


def check_start(plan: Plan, options: RunOptions) -> None:
    """Check the plan and the options of a start.

    Raises:
        ConfigurationError: The local runtime does not support a source, a sink or an option.
    """
    if plan.mode is RuntimeExecutionMode.BATCH:
        check_batch_options(options)
    if options.checkpoint_location == "":
        raise ConfigurationError("checkpoint_location is empty. Name a folder, or omit it to begin with empty state.")
    check_plan(plan)


def check_plan(plan: Plan) -> None:
    """Check the sources and sinks. Raises ``ConfigurationError`` or ``SchemaError``."""
    for operator in plan.operators:
        where = f"{operator}, defined at {operator.location},"
        if operator.kind is OperatorKind.SOURCE and isinstance(operator.body, DataFrameSource):
            raise ConfigurationError(
                f"The source {where} is a DataFrame, which only Spark can read. Use the Spark runtime, or "
                f"pass dataframe.toPandas() or dataframe.toArrow(), which both runtimes read, if it fits into memory."
            )
        if isinstance(operator.body, FileSink):
            check_file_sink(operator, operator.body)
        elif operator.kind is OperatorKind.SINK and not isinstance(operator.body, DriverSink | ParallelSink):
            raise ConfigurationError(
                f"The sink {where} has a type that the local runtime does not support. Use the Spark runtime, or "
                f"another sink locally, such as CollectSink."
            )
