"""The Spark jobs of a batch job, which are cancelled together."""

from __future__ import annotations

import itertools

from pyspark.sql import SparkSession

__all__ = ("JobGroup",)

_NUMBERS = itertools.count()  # of this process


class JobGroup:
    """A job group of Spark with a name of its own.

    ``SparkSession.addTag`` and ``interruptTag`` are meant for this, but ``interruptTag`` finds no job of a classic
    session that PySpark runs in a thread (seen with Spark 4.3.0).
    """

    def __init__(self, spark: SparkSession, description: str) -> None:
        self._context = spark.sparkContext
        self._name = f"dsv2-batch-{next(_NUMBERS)}"
        self._description = description

    def add_thread(self) -> None:
        """From now on the jobs of this thread belong to the group. Cancelling interrupts them."""
        self._context.setJobGroup(self._name, self._description, interruptOnCancel=True)

    def cancel(self) -> None:
        """Cancel the jobs of the group that are running."""
        self._context.cancelJobGroup(self._name)
