"""Groups the Spark jobs of a batch job, so that they can be cancelled together."""

from __future__ import annotations

import itertools
from typing import Protocol

from pyspark.sql import SparkSession

from runtime_spark.platform.connect import is_connect

_NUMBERS = itertools.count()  # of this process


class JobGroup(Protocol):
    """Spark jobs that can be cancelled together."""

    def add_thread(self) -> None:
        """Add all further jobs of this thread to the group. Cancelling interrupts them."""

    def cancel(self) -> None:
        """Cancel the running jobs of the group."""


def job_group(spark: SparkSession, description: str) -> JobGroup:
    """Return a new group. ``description``: What the jobs do, for Spark's user interface."""
    name = f"dsv2-batch-{next(_NUMBERS)}"
    return _Tagged(spark, name) if is_connect(spark) else _Group(spark, name, description)


class _Tagged:
    """The operations with a tag, for a session of Spark Connect."""

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._spark = spark
        self._tag = tag

    def add_thread(self) -> None:
        self._spark.addTag(self._tag)

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)


class _Group:
    """A job group of a classic session.

    ``SparkSession.addTag`` and ``interruptTag`` are the newer interface, but ``interruptTag`` does not find the jobs
    that PySpark runs in a thread of a classic session (seen with Spark 4.3.0).
    """

    def __init__(self, spark: SparkSession, name: str, description: str) -> None:
        self._context = spark.sparkContext
        self._name = name
        self._description = description

    def add_thread(self) -> None:
        self._context.setJobGroup(self._name, self._description, interruptOnCancel=True)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._name)
