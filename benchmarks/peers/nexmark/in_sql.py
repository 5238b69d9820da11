"""The queries that Spark SQL can express as streams without retractions. Events are generated as for dsv2."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.common.measure import batch_seconds, checkpoint, spark_session
from benchmarks.jobs.nexmark import RATE
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import numbers
from dsv2.arrow import schema_of
from examples.nexmark.events import PER_ROUND, Auction, Bid, Numbers, Person, auctions, bids, people

__all__ = ("QUERIES", "measure")

_TIME = "timestamp_millis(time)"
QUERIES = {
    "q0": "SELECT * FROM bid",
    "q1": "SELECT auction, bidder, 0.908D * price AS price, time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q11": """
        SELECT bidder, count(*) AS bids, min(time) AS first, max(time) AS last
        FROM bid GROUP BY bidder, session_window(at, '10 seconds')""",
    "q14": f"""
        SELECT auction, bidder, 0.908D * price AS price, CASE WHEN hour({_TIME}) BETWEEN 8 AND 18 THEN 'day'
            WHEN hour({_TIME}) <= 6 OR hour({_TIME}) >= 20 THEN 'night' ELSE 'other' END AS daytime,
            time, extra, length(extra) - length(replace(extra, 'c', '')) AS letters
        FROM bid WHERE 0.908D * price > 1000000 AND 0.908D * price < 50000000""",
    "q20": """
        SELECT auction, bidder, price, channel, url, b.time AS bid_time, b.extra AS bid_extra, item, description,
            initial_bid, reserve, a.time AS auction_time, expires, seller, category, a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10""",
    "q21": r"""
        SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
            WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM bid WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
            OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS first, split_part(url, '/', 5) AS second,
            split_part(url, '/', 6) AS third
        FROM bid""",
}
_EVENTS: dict[str, tuple[type[Any], Callable[[Numbers, int], pa.Table]]] = {
    "person": (Person, people),
    "auction": (Auction, auctions),
    "bid": (Bid, bids),
}


def measure(task: Task) -> Outcome:
    """Run the query. All columns are computed, and none is written."""
    found: dict[int, Observation] = {}
    enough = threading.Event()
    last = task.warm_up + task.batches

    def write(batch: DataFrame, batch_id: int) -> None:
        found[batch_id] = Observation()
        field = next(name for name, kind in batch.dtypes if kind == "bigint")
        observed = batch.observe(found[batch_id], F.count(F.lit(1)).alias("number"), F.sum(field).alias("sum"))
        observed.write.format("noop").mode("append").save()
        if batch_id == last:
            enough.set()

    with spark_session("benchmark") as spark, checkpoint() as folder:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        for name in _EVENTS:
            events = _events(spark, task, name)
            if task.mode == "q11":
                events = events.withColumn("at", F.expr(_TIME)).withWatermark("at", "4 seconds")
            events.createOrReplaceTempView(name)
        writer = spark.sql(QUERIES[task.mode]).writeStream.option("checkpointLocation", folder).foreachBatch(write)
        query = writer.trigger(processingTime="0 seconds").start()
        while not enough.wait(0.05) and query.isActive:
            pass
        seconds = batch_seconds(query, task.warm_up, task.batches)
        query.stop()
        totals = [found[batch].get for batch in range(last)]
    number, total = sum(row["number"] for row in totals), sum(row["sum"] or 0 for row in totals)
    return Outcome(seconds, number, total, {"pyspark": version("pyspark")})


def _events(spark: SparkSession, task: Task, name: str) -> DataFrame:
    kind, generate = _EVENTS[name]

    def generated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from generate(batch.column("value").to_numpy(), RATE).to_batches()

    schema = from_arrow_schema(schema_of(kind))
    return numbers(spark, task.records // PER_ROUND).mapInArrow(generated, schema)
