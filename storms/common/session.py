"""The Spark sessions of the storms."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from components.python_path import python_path

__all__ = ("new_cluster_session", "new_session")

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that is soon killed spends most of its time on compilation. These options halve its CPU time."""


def new_session(folder: str | Path, *, memory: str = "1g") -> SparkSession:
    """Create a session for jobs in ``folder``. It attempts tasks up to four times, like a cluster."""
    spark: SparkSession = _builder(folder, "local[2, 4]").config("spark.driver.memory", memory).getOrCreate()
    return spark


def new_cluster_session(folder: str | Path, master: str) -> SparkSession:
    """Create a session for jobs in ``folder`` on a cluster of this machine. Its executors have one core each."""
    spark: SparkSession = (
        _builder(folder, master)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", _SHORT_LIVED)
        .config("spark.executorEnv.PYTHONPATH", python_path())
        .getOrCreate()
    )
    return spark


def _builder(folder: str | Path, master: str) -> SparkSession.Builder:
    return (
        SparkSession.builder.master(master)
        .appName("storm")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", _SHORT_LIVED)
        .config("spark.log.level", "FATAL")
        .config("spark.local.dir", f"{folder}/spark-local")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
