"""The environments of jobs under attack."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dsv2 import ExecutionEnvironment, FileSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("environment", "rolling_files")

_ROLLED_BYTES = 10_000


def environment(spark: SparkSession | None, layout: str = "blob", **options: Any) -> ExecutionEnvironment:
    """Create the environment of a job on Spark, or on the local runtime if there is no session.

    Args:
        spark: The session.
        layout: The state layout on Spark, or the number of processes on the local runtime. Not a number: one.
        options: More options of ``SparkRuntime``.
    """
    if spark is None:
        from dsv2.local import LocalRuntime

        return ExecutionEnvironment.get_instance(
            LocalRuntime(checks=False, processes=int(layout) if layout.isdigit() else 1)
        )
    from runtime_spark import SparkRuntime, StateLayout

    return ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=StateLayout(layout), **options))


def rolling_files(spark: SparkSession | None, path: str, schema: type[Any]) -> FileSink[Any]:
    """Create a sink whose files are merged all the time, but not on Spark, whose storms look for the small ones."""
    if spark is not None:
        return FileSink(path, schema=schema)
    return FileSink(path, schema=schema, roll_bytes=_ROLLED_BYTES, retention=timedelta(0))
