"""Groups the Spark jobs of a batch job, so that they can be cancelled together."""

from __future__ import annotations

import itertools

from pyspark.sql import SparkSession

__all__ = ("JobGroup",)

_NUMBERS = itertools.count()  # of this process


class JobGroup:
    """A Spark job group with a unique name.

    ``SparkSession.addTag`` and ``interruptTag`` are the newer interface, but ``interruptTag`` does not find the jobs
    that PySpark runs in a thread of a classic session (seen with Spark 4.3.0).
    """

    def __init__(self, spark: SparkSession, description: str) -> None:
        self._context = spark.sparkContext
        self._name = f"dsv2-batch-{next(_NUMBERS)}"
        self._description = description

    def add_thread(self) -> None:
        """Add all further jobs of this thread to the group. Cancelling interrupts them."""
        self._context.setJobGroup(self._name, self._description, interruptOnCancel=True)

    def cancel(self) -> None:
        """Cancel the running jobs of the group."""
        self._context.cancelJobGroup(self._name)
