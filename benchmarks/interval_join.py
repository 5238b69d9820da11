"""Interval join in event time: dsv2 against Spark's own stream-stream join in SQL, and against a plain Python loop.

**The job**: offers and orders of 100,000 products, 500,000 of each in a micro-batch of 1,000,000 records, one of each
every two milliseconds; an order meets the offers of its product from the 10 seconds before it.

* The *plain loop* keeps a list of both sides per product and prunes it as it goes, on one core, with no framework;
  records are made in the loop, as a source makes them.
* *Spark SQL* is a stream-stream join with watermarks over ``rate-micro-batch``: all in the JVM.
* *dsv2* is a generator of watermarks on each side and ``interval_join``, in ``local[2]`` with two subtasks of
  everything.

The results of the first two are counted and must agree; Spark SQL has met fewer when it is stopped.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.common import Arguments, Report, Sample, conditions, spark_session
from benchmarks.common.contest import WARM_UP, Measured, compare, run_dsv2, run_sql
from dsv2 import Collector, ExecutionEnvironment, RuntimeContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinFunction, interval_join
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.streams import KeyedPartitionStream

__all__ = ("main",)

NAME = "interval_join"
TARGET = 0.3
"""Of the plain loop's throughput."""

BEFORE = 10_000
"""How long before an order an offer may be, in ms."""
_APART = 2  # ms between two records of one side
_OFFERS, _ORDERS = 2_654_435_769, 2_246_822_519  # multipliers that scatter the products, differently on both sides

SHORT = {"records": 20_000, "products": 2_000, "batches": 2}

Event: TypeAlias = tuple[int, int]
"""Product, time in ms."""


class Events:
    """Event number ``index`` of one side."""

    def __init__(self, products: int, multiplier: int) -> None:
        self.products = products
        self.multiplier = multiplier

    def __call__(self, index: int) -> Event:
        return (index * self.multiplier & 0xFFFF_FFFF) * self.products >> 32, index * _APART


def product_of(event: Event) -> int:
    """The key."""
    return event[0]


def time_of(event: Event) -> int:
    """Event time."""
    return event[1]


def matched(offer: Event, order: Event) -> tuple[int, int, int]:
    """What a pair gives."""
    return order[0], offer[1], order[1]


class Match(JoinFunction[Event, Event, tuple[int, int, int]]):
    """``matched``, for the join."""

    def process_record(
        self, left: Event, right: Event, output: Collector[tuple[int, int, int]], ctx: RuntimeContext
    ) -> None:
        output.collect(matched(left, right))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments``; returns the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="of both sides in a micro-batch (1,000,000)")
    parser.add_argument("--products", type=int, default=100_000, help="keys (100,000)")
    parser.add_argument("--batches", type=int, default=7, help="that are measured, after two to warm up (7)")
    options = parser.parse(arguments, SHORT)
    plain = plain_loop(options)
    with spark_session("interval join benchmark") as spark:
        report = Report(NAME, "Interval join in event time", conditions(spark, NAME, arguments))
        ours = with_dsv2(spark, options)
        sql = run_sql(in_sql(spark, options), options.batches)
    if ours.total != plain.total:
        raise AssertionError(f"{ours.total} pairs of dsv2, {plain.total} expected")
    compare(report, options.records, {"plain loop": plain, "dsv2": ours, "Spark SQL": sql})
    report.at_least("throughput as a part of the plain loop's", plain.sample.median / ours.sample.median, TARGET)
    report.publish(options.results)
    return 0


def plain_loop(options: argparse.Namespace) -> Measured:
    """Dictionaries of what may still be met, and nothing else. Both sides come in order, so offers are enough."""
    make_offer, make_order = Events(options.products, _OFFERS), Events(options.products, _ORDERS)
    waiting: dict[int, deque[Event]] = {}
    seconds, counts = [], {}
    per_side = options.records // 2
    for batch in range(WARM_UP + options.batches):
        gc.collect()  # so that no batch pays for the one before
        begin = time.perf_counter()
        pairs = list[Any]()
        for index in range(batch * per_side, (batch + 1) * per_side):
            offer = make_offer(index)
            product, oldest = product_of(offer), time_of(offer) - BEFORE
            offers = waiting.get(product)
            if offers is None:
                offers = waiting[product] = deque()
            while offers and time_of(offers[0]) < oldest:
                offers.popleft()
            offers.append(offer)
            order = make_order(index)
            until = time_of(order)
            found = waiting.get(product_of(order))
            if found is not None:
                while found and time_of(found[0]) < until - BEFORE:
                    found.popleft()
                for other in found:
                    pairs.append(matched(other, order))
        seconds.append(time.perf_counter() - begin)
        counts[batch] = len(pairs)
    return Measured(Sample.of(seconds[WARM_UP:]), counts)


def with_dsv2(spark: SparkSession, options: argparse.Namespace) -> Measured:
    """A generator on each side, ``key_by``, a join."""
    counts: dict[int, int] = {}
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    offers = _side(env, "offers", Events(options.products, _OFFERS), options)
    orders = _side(env, "orders", Events(options.products, _ORDERS), options)
    join = interval_join(Match(), timedelta(0), timedelta(milliseconds=BEFORE))
    pairs = offers.connect_and_process(orders, join).with_uid("pairs")
    pairs.to_sink(ForeachBatchSink(lambda records, batch_id: counts.update({batch_id: len(records)})))
    return run_dsv2(env, "interval join", counts, options.batches)


def _side(
    env: ExecutionEnvironment, name: str, events: Events, options: argparse.Namespace
) -> KeyedPartitionStream[int, Event]:
    per_batch = options.records // 2
    source = DataGeneratorSource(events, count=per_batch * (WARM_UP + options.batches), records_per_batch=per_batch)
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    return env.from_source(source, name).process(generator).with_uid(f"times of {name}").key_by(product_of)


def in_sql(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The same in columns."""

    def side(name: str, multiplier: int) -> DataFrame:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", options.records // 2).load()
        scattered = (F.col("value") * multiplier).bitwiseAND(0xFFFF_FFFF) * options.products
        events = rows.select(
            F.shiftright(scattered, 32).alias(f"{name}_product"),
            F.timestamp_millis(F.col("value") * _APART).alias(f"{name}_time"),
        )
        return events.withWatermark(f"{name}_time", "0 seconds")

    return side("offer", _OFFERS).join(
        side("order", _ORDERS),
        F.expr(
            f"offer_product = order_product AND offer_time <= order_time "
            f"AND offer_time >= order_time - interval {BEFORE} milliseconds"
        ),
    )


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import interval_join as program

    sys.exit(program.main())
