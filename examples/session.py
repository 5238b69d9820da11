"""The Spark session of the examples."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, getsignal, pthread_sigmask, signal
from typing import TYPE_CHECKING

from dsv2.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("new_session",)


def new_session(name: str) -> SparkSession:
    """Start a Spark session without a user interface: a local one with two cores, or that of ``spark-submit``.

    Args:
        name: The name of the application.

    Raises:
        ConfigurationError: Spark did not start, usually because a suitable Java is missing.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    print("Starting Spark ...", file=sys.stderr, flush=True)
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not started by spark-submit, which has settings of its own
        settings |= {
            "spark.master": "local[2]",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings}",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",  # one per core: more would only add overhead
        }
    builder = SparkSession.builder.appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    ctrl_c = getsignal(SIGINT)
    pthread_sigmask(SIG_BLOCK, [SIGINT])
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigurationError(
            f"Spark did not start. Is Java 17 or 21 installed? ./run finds an installed one. ({error})"
        ) from None
    finally:
        signal(SIGINT, ctrl_c)  # replaces Spark's handler, which cancels running jobs
        pthread_sigmask(SIG_UNBLOCK, [SIGINT])
