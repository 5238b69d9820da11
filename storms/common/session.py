"""The Spark sessions of the storms."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ("new_session",)

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that is soon killed spends most of its time on compilation. These options halve its CPU time."""


def new_session(folder: str | Path, *, memory: str = "1g") -> SparkSession:
    """Create a session for jobs in ``folder``. It attempts tasks up to four times, like a cluster."""
    spark: SparkSession = (
        SparkSession.builder.master("local[2, 4]")
        .appName("storm")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.driver.extraJavaOptions", _SHORT_LIVED)
        .config("spark.log.level", "FATAL")
        .config("spark.local.dir", f"{folder}/spark-local")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    return spark
