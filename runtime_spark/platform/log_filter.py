"""Keeps warnings out of Spark's log that concern neither the program nor anything that a user can change."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from runtime_spark.platform.java_classes import java_class

# Logger -> a regular expression for the messages to leave out. Each start or end of a query logs them.
_MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream": (
            r"spark\.sql\.adaptive\.enabled is not supported in streaming .*"
        ),
        "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution": (
            r"Disabling AQE since AQE is not supported in stateful workloads.*"
        ),
        "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer": (
            r"No more data to read from the socket.*"
        ),
        # A query that ends cancels its jobs, although none runs. Other job groups do not have such an id.
        "org.apache.spark.scheduler.DAGScheduler": (
            r"Failed to cancel job group [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\. Cannot find active jobs for it\..*"
        ),
    }
)

_ROOT = ""  # the logger that has the settings of all loggers without settings


def leave_out_warnings(spark: SparkSession) -> None:
    """Let the log of ``spark`` leave out these messages, unless the user has configured their loggers.

    Everything else that these loggers have to say is logged as before.
    """
    jvm: Any = getattr(spark, "_jvm", None)  # Spark Connect has none
    with suppress(Exception):  # another logging library; then the warnings stay
        result = java_class(jvm, "org.apache.logging.log4j.core.Filter").Result
        new_filter = java_class(jvm, "org.apache.logging.log4j.core.filter.RegexFilter").createFilter
        context = java_class(jvm, "org.apache.logging.log4j.LogManager").getContext(False)
        for name, message in _MESSAGES.items():
            # A logger of its own would have a level of its own, which setLogLevel would not change.
            logger = context.getConfiguration().getLoggerConfig(name)
            if logger.getName() == _ROOT and message not in str(logger.getFilter()):
                logger.addFilter(new_filter(message, None, False, result.DENY, result.NEUTRAL))
