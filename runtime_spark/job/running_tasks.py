"""The tasks that run in Spark while ``stop`` waits for them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from runtime_spark.sink.sinks import SinkWriter


def what_runs(writer: SinkWriter, spark: SparkSession, doing: str) -> str:
    """Describe what has not returned: a sink on the driver, or tasks. ``doing``: What Spark itself says about it."""
    if (sink := writer.writes_to) is not None:
        return f"the function of the sink {sink}, defined at {sink.location}, has not returned"
    numbers = writer.tasks.running(spark)
    found = [name for number in numbers for name in writer.tasks.subtasks_in(number)]
    running = (
        f"; tasks {', '.join(map(str, numbers))} are running, which may contain {'; '.join(found)}" if found else ""
    )
    return f"Spark reports {doing!r}{running}"
