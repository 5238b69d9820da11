"""Settings of the user's session that a query needs while it starts, and only then."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from runtime_spark.layout import Layout

__all__ = ("settings_for_start", "start_settings")

# A query copies the session's settings when it starts; two queries must not start with each other's.
_STARTING = threading.Lock()


def start_settings(layout: Layout) -> dict[str, str]:
    """What a streaming query of ``layout`` has to be started with."""
    settings = {"spark.sql.shuffle.partitions": str(layout.partitions)}
    if len(layout.levels) > 1:
        # Spark refuses a second applyInPandasWithState in a query, but runs it correctly.
        settings["spark.sql.streaming.unsupportedOperationCheck"] = "false"
    return settings


@contextmanager
def settings_for_start(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply ``settings`` and put everything back as it was."""
    with _STARTING:
        before = {name: spark.conf.get(name, None) for name in settings}
        try:
            for name, value in settings.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
