"""The Spark session of the examples."""

from __future__ import annotations

import sys
from pathlib import Path
from signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, getsignal, pthread_sigmask, signal
from typing import TYPE_CHECKING

from dsv2 import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("new_session",)


def new_session(name: str) -> SparkSession:
    """A session on two cores of this machine, without a user interface; ``name`` is that of the application.

    Raises ``ConfigurationError`` if there is no Java that Spark runs on.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    print("Starting Spark ...", file=sys.stderr, flush=True)
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",  # one per core: more would only add overhead
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    ctrl_c = getsignal(SIGINT)
    pthread_sigmask(SIG_BLOCK, [SIGINT])
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigurationError(f"Spark did not start. Has it a Java 17 or 21? ./run finds one. ({error})") from None
    finally:
        signal(SIGINT, ctrl_c)  # Spark has put its own in place, which cancels what is running
        pthread_sigmask(SIG_UNBLOCK, [SIGINT])
