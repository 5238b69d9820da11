"""The Spark session of the examples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("new_session",)


def new_session(name: str) -> SparkSession:
    """A session on two cores of this machine, without a user interface; ``name`` is that of the application."""
    from pyspark.sql import SparkSession

    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",  # one per core: more would only add overhead
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()
