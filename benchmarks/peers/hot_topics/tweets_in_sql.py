"""The tweets as a streaming DataFrame, generated in the JVM, so that hand-written queries have no cost for them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.jobs.hot_topics import START, place_bits, rank_table
from benchmarks.peers.protocol import Task
from benchmarks.peers.spark import numbers

__all__ = ("tweets",)


def tweets(spark: SparkSession, task: Task) -> DataFrame:
    """A stream with ``topic``, ``posting_time`` and ``newest``, the newest posting time of the tweets before.

    Spark has no custom watermarks. Tweets are in the order of time, so the source can compute ``newest`` from the
    previous tweet. There is one partition, to preserve the order.
    """
    table = spark.createDataFrame(list(enumerate(rank_table(task.keys))), "place int, rank int")
    names = table.selectExpr("place", "concat('topic-', rank) AS topic").localCheckpoint()
    place = f"CAST(((value * 2654435769) & {0xFFFF_FFFF}) >> {32 - place_bits(task.keys)} AS int) AS place"
    time = f"{START} + value DIV 1000 * 1000 AS posting_time"
    newest = f"if(value = 0, -1, {START} + (value - 1) DIV 1000 * 1000) AS newest"
    numbered = numbers(spark, task.records, partitions=1).selectExpr(place, time, newest)
    return numbered.join(F.broadcast(names), "place").select("topic", "posting_time", "newest")
