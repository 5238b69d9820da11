"""Defaults for the user's session that make a first program work and its output readable.

Each applies only where the user has not decided otherwise.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

__all__ = ("be_quiet", "use_this_python")

_LOGS = "DSV2_SPARK_LOGS"
_DEFAULT_CONFIGURATION = "org/apache/spark/log4j2-defaults.properties"
_LEVELS = {
    "org.apache.spark": "ERROR",
    "org.apache.hadoop": "ERROR",
    # The handle of the job reports how its query ended. This logger shows a stopped query as a failure.
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution": "OFF",
    # When a job ends, Spark may be about to begin another micro-batch, and says that it could not.
    "org.apache.spark.broadcast.TorrentBroadcast": "OFF",
}


def use_this_python(spark: SparkSession) -> None:
    """Let the Python workers of a local session run the Python of this program, instead of any ``python3``.

    Not if the user has set PYSPARK_PYTHON or ``spark.pyspark.python``; and not on a cluster, whose machines may not
    have this Python in the same place.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None or "PYSPARK_PYTHON" in os.environ or not sys.executable:
        return
    if context.master.startswith("local") and context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable


def be_quiet(spark: SparkSession) -> None:
    """Let Spark log errors only, without progress bars.

    Not if the user has a log4j configuration, has called ``setLogLevel``, or has set DSV2_SPARK_LOGS=1.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None or os.environ.get(_LOGS, "0") != "0":
        return
    with contextlib.suppress(Exception):  # these are internals of Spark, and a job does not depend on them
        log4j = context._jvm.org.apache.logging.log4j
        configuration = log4j.LogManager.getContext(False).getConfiguration()
        if not str(configuration.getConfigurationSource().getLocation()).endswith(_DEFAULT_CONFIGURATION):
            return
        if str(configuration.getRootLogger().getLevel()) != "WARN":
            return
        for name, level in _LEVELS.items():
            log4j.core.config.Configurator.setLevel(name, log4j.Level.valueOf(level))
        bar = context._jsc.sc().progressBar()
        if bar.isDefined():
            bar.get().stop()
