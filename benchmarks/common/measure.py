"""The Spark session of the benchmarks, and the times of micro-batches in steady state."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ("SETTINGS", "Sample", "batch_seconds", "checkpoint", "run_batches", "spark_session")

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

_POLL_SECONDS = 0.02
_PAUSE_POLL_SECONDS = 0.002


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """A session of ``SETTINGS`` for the length of the block."""
    builder = SparkSession.builder.appName(name)
    for setting, value in SETTINGS.items():
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


def run_batches(query: StreamingQuery, stop: int) -> int:
    """Let ``query`` run up to, but not including, micro-batch number ``stop``, then stop it between two micro-batches.

    By then it may have run some more. Returns the number of the one that comes next.
    """
    while query.isActive and _next_batch(query) < stop:
        time.sleep(_POLL_SECONDS)
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(_PAUSE_POLL_SECONDS)
    query.stop()
    if (error := query.exception()) is not None:
        raise error
    return _next_batch(query)


def _next_batch(query: StreamingQuery) -> int:
    return 0 if (last := query.lastProgress) is None else last.batchId + 1


def batch_seconds(query: StreamingQuery, first: int, batches: int) -> list[float]:
    """The times of ``batches`` micro-batches from number ``first`` on, each with everything that Spark does for it."""
    seconds = {
        progress.batchId: progress.durationMs["triggerExecution"] / 1000
        for progress in query.recentProgress
        if "addBatch" in progress.durationMs  # else nothing was there to be run
    }
    return [seconds[number] for number in range(first, first + batches)]


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
