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
    "spark.sql.streaming.numRecentProgressUpdates": "10000",  # the times are read from there, after the run
}
"""Everything that is not Spark's default; no setting is there to make anything faster."""


@contextmanager
def spark_session(name: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session of ``SETTINGS``, and of ``settings`` besides, for the length of the block."""
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
    """A folder for the checkpoint of one query; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="dsv2-benchmark-") as folder:
        yield f"{folder}/checkpoint"


def batch_progress(query: StreamingQuery, first: int, batches: int) -> list[StreamingQueryProgress]:
    """What Spark tells of ``batches`` micro-batches from number ``first`` on."""
    progress = {
        progress.batchId: progress
        for progress in query.recentProgress
        if "addBatch" in progress.durationMs  # else nothing was there to be run
    }
    return [progress[number] for number in range(first, first + batches)]


def batch_seconds(query: StreamingQuery, first: int, batches: int) -> list[float]:
    """The times of these micro-batches, each with everything that Spark does for it."""
    return [batch.durationMs["triggerExecution"] / 1000 for batch in batch_progress(query, first, batches)]


@dataclass(frozen=True)
class Sample:
    """Measured seconds of the same work, done again and again."""

    seconds: tuple[float, ...]

    @staticmethod
    def of(seconds: Iterable[float]) -> Sample:
        """From any collection of times."""
        return Sample(tuple(seconds))

    @property
    def median(self) -> float:
        """What is quoted."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> str:
        """The shortest and the longest, in milliseconds."""
        return f"{min(self.seconds) * 1000:,.0f} – {max(self.seconds) * 1000:,.0f}"
