"""Settings of the user's session that a query needs while it starts, and only then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

__all__ = ("starting",)

# A query copies the session's settings when it starts; two queries must not start with each other's.
_STARTING = threading.Lock()


@contextmanager
def starting(spark: SparkSession, partitions: int, *, unchecked: bool = True) -> Iterator[None]:
    """Settings of ``spark`` under which a streaming query of dsv2 may start; put back as they were afterwards.

    The runtime does this by itself. You need it only around ``start()`` of a query of your own over ``to_dataframe``;
    ``partitions`` is then the parallelism of the pipeline; ``unchecked``: it has several levels or reads a DataFrame.
    """
    settings = {"spark.sql.shuffle.partitions": str(partitions)}
    if unchecked:
        # Spark refuses a second applyInPandasWithState in a query, and row ids; but it runs both correctly.
        settings["spark.sql.streaming.unsupportedOperationCheck"] = "false"
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
