"""The Spark session of the benchmarks, and the times of micro-batches in steady state."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ("SETTINGS", "Sample", "batch_progress", "batch_seconds", "checkpoint", "spark_session")

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",  # for the hand-written queries; a plan sets its own
    "spark.sql.streaming.numRecentProgressUpdates": "10000",  # the times are read from there after the run
}
"""The settings that differ from Spark's defaults. None of them is for speed."""


@contextmanager
def spark_session(name: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Run a session with ``SETTINGS`` and additional ``settings`` during the block."""
    builder = SparkSession.builder.appName(name)
    for setting, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def checkpoint() -> Iterator[str]:
    """Create a temporary folder for the checkpoint of one query."""
    # Threads of Spark may still write files of a query that has stopped.
    with tempfile.TemporaryDirectory(prefix="dsv2-benchmark-", ignore_cleanup_errors=True) as folder:
        yield f"{folder}/checkpoint"


def batch_progress(query: StreamingQuery, first: int, batches: int) -> list[StreamingQueryProgress]:
    """Return Spark's progress of ``batches`` micro-batches from number ``first`` on."""
    progress = {
        progress.batchId: progress
        for progress in query.recentProgress
        if "addBatch" in progress.durationMs  # otherwise there was no micro-batch
    }
    return [progress[number] for number in range(first, first + batches)]


def batch_seconds(query: StreamingQuery, first: int, batches: int) -> list[float]:
    """Return the times of these micro-batches, including all of Spark's overhead."""
    return [batch.durationMs["triggerExecution"] / 1000 for batch in batch_progress(query, first, batches)]


@dataclass(frozen=True)
class Sample:
    """The measured seconds of repeated work."""

    seconds: tuple[float, ...]

    @staticmethod
    def of(seconds: Iterable[float]) -> Sample:
        """Create a sample from times in seconds."""
        return Sample(tuple(seconds))

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> str:
        """The shortest and the longest time, in ms."""
        return f"{min(self.seconds) * 1000:,.0f} – {max(self.seconds) * 1000:,.0f}"
