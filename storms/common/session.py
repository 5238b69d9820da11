"""Spark sessions of the storms."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ("new_session",)

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that is killed soon spends most of its time compiling; so it takes half of the processor's time."""


def new_session(folder: str | Path, *, memory: str = "1g") -> SparkSession:
    """A session for jobs in ``folder``. It tries a task up to four times, as clusters do."""
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
