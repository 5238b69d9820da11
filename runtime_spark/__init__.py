"""Runs dsv2 plans on Spark Structured Streaming. The only package that imports PySpark."""

from runtime_spark.versions import check_pyspark as _check_pyspark

_check_pyspark()  # first, because the imports below fail with an older PySpark

from pyspark.sql import SparkSession

from dsv2.errors import ConfigurationError
from dsv2.job import JobRuntime
from runtime_spark.dataframe import to_dataframe
from runtime_spark.layout import StateLayout
from runtime_spark.runtime import SparkRuntime
from runtime_spark.savepoint.create import create_savepoint
from runtime_spark.session import SESSION_SETTINGS, starting
from runtime_spark.state_key import StateKey

__all__ = (
    "SESSION_SETTINGS",
    "SparkRuntime",
    "StateKey",
    "StateLayout",
    "create",
    "create_savepoint",
    "starting",
    "to_dataframe",
)


def create(spark: object) -> JobRuntime:
    """Create the runtime for ``get_instance(spark=session)``.

    Args:
        spark: The ``SparkSession``.

    Raises:
        ConfigurationError: ``spark`` is not a ``SparkSession``.
    """
    if not isinstance(spark, SparkSession):
        raise ConfigurationError(f"spark=... must be a SparkSession, got {type(spark).__name__}.")
    return SparkRuntime(spark)
