"""The environments of jobs under attack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsv2 import ExecutionEnvironment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("environment",)


def environment(spark: SparkSession | None, layout: str = "blob", **options: Any) -> ExecutionEnvironment:
    """Create the environment of a job on Spark, or on the local runtime if there is no session.

    Args:
        spark: The session.
        layout: The state layout on Spark.
        options: More options of ``SparkRuntime``.
    """
    if spark is None:
        from dsv2.local import LocalRuntime

        return ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
    from runtime_spark import SparkRuntime, StateLayout

    return ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=StateLayout(layout), **options))
