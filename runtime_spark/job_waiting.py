"""What runs in Spark while ``stop`` waits for it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from runtime_spark.tasks import Tasks

__all__ = ("running_in",)


def running_in(tasks: Tasks, spark: SparkSession, doing: str) -> str:
    """Describe what runs in Spark. ``doing``: What Spark itself says about it."""
    numbers = tasks.running(spark)
    found = [name for number in numbers for name in tasks.subtasks_in(number)]
    running = (
        f"; tasks {', '.join(map(str, numbers))} are running, which may contain {'; '.join(found)}" if found else ""
    )
    return f"Spark reports {doing!r}{running}"
