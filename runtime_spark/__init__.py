"""Runs dsv2 plans on Spark Structured Streaming. The only package that imports PySpark."""

from dsv2.checks.client_library import require_client_library as _require

_require("pyspark", "spark", "The Spark runtime")

from runtime_spark.platform.versions import check_pyspark as _check_pyspark

_check_pyspark()  # first, because the imports below fail with an older PySpark

from importlib import import_module
from typing import TYPE_CHECKING, cast

from dsv2.errors import ConfigurationError
from dsv2.jobs.handle import JobRuntime

if TYPE_CHECKING:
    from runtime_spark.dataframe import to_dataframe
    from runtime_spark.frames.layout import StateLayout
    from runtime_spark.frames.session import SESSION_SETTINGS, starting
    from runtime_spark.frames.state_key import StateKey
    from runtime_spark.runtime import SparkRuntime
    from runtime_spark.savepoint.create import create_savepoint
    from runtime_spark.sink.dataframe_function import through_dataframe

__all__ = (
    "SESSION_SETTINGS",
    "SparkRuntime",
    "StateKey",
    "StateLayout",
    "create",
    "create_savepoint",
    "starting",
    "through_dataframe",
    "to_dataframe",
)


# Imported when they are used: each source and each worker is a Python process that needs few of these modules.
_MODULES = {
    "SESSION_SETTINGS": "frames.session",
    "SparkRuntime": "runtime",
    "StateKey": "frames.state_key",
    "StateLayout": "frames.layout",
    "create_savepoint": "savepoint.create",
    "starting": "frames.session",
    "through_dataframe": "sink.dataframe_function",
    "to_dataframe": "dataframe",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def create(spark: object) -> JobRuntime:
    """Create the runtime for ``get_instance(spark=session)``.

    Args:
        spark: The ``SparkSession``, a classic one or one of Spark Connect.

    Raises:
        ConfigurationError: ``spark`` is not a ``SparkSession``.
        MissingLibraryError: PySpark was installed without the extra.
    """
    for library in ("pyarrow", "pandas"):
        _require(library, "spark", "The Spark runtime")
    from pyspark.sql import SparkSession

    from runtime_spark.platform.connect import is_connect
    from runtime_spark.runtime import SparkRuntime

    if not isinstance(spark, SparkSession) and not is_connect(spark):
        raise ConfigurationError(f"spark=... must be a SparkSession, got {type(spark).__name__}.")
    return SparkRuntime(cast("SparkSession", spark))
