"""Checks that the executors of a cluster have what tasks import, before a job starts."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from dsv2.errors import ConfigurationError

__all__ = ("check_executors",)

_MODULES = ("dsv2", "runtime_spark", "cloudpickle", "msgspec", "typing_extensions", "pandas", "pyarrow")
_CHECKED: set[str] = set()  # the applications


def check_executors(spark: SparkSession) -> None:
    """Run a task that imports what tasks need, once in an application. Workers on this machine are not checked.

    Raises:
        ConfigurationError: The Python of an executor lacks packages.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None or context.master == "local" or context.master.startswith("local["):
        return
    if context.applicationId in _CHECKED:
        return
    ((python, missing),) = context.parallelize([0], 1).map(_finder(_MODULES)).collect()
    if missing:
        raise ConfigurationError(
            f"The Python of Spark's executors ({python}) cannot import {', '.join(missing)}. Ship the packages of this "
            f"project with --py-files (a zip file) and install the others there, or ship a whole "
            f"environment with --archives and set spark.pyspark.python to its Python. See docs/cluster.md."
        )
    _CHECKED.add(context.applicationId)


def _finder(modules: tuple[str, ...]) -> Any:
    def find(_: int) -> tuple[str, list[str]]:  # pickled by value: the executor may not have this module
        import importlib
        import platform
        import sys

        missing = []
        for module in modules:
            try:
                importlib.import_module(module)
            except ImportError:
                missing.append(module)
        return f"{platform.python_version()}, {sys.executable}", missing

    return find
