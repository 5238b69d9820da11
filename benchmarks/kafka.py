"""From Kafka to Kafka: dsv2 compared with hand-written code on Spark's Kafka source and sink, with a local broker.

* **Pass-through**: messages of 100 bytes from a topic with four partitions to another topic, through a function that is
  called for each message. The hand-written query is ``mapInArrow`` with a loop over the values. Another query runs no
  Python code.
* **Hot topics**: the lazy detector of ``examples.hot_topics`` over tweets in JSON, in two partitions, with hot events
  in JSON. The hand-written query is ``applyInPandasWithState`` with the posting times of a topic as state. It evicts by
  the newest tweet of the topic, dsv2 by the newest of all tweets as in FLIP-467, and partitions progress independently.
  So the numbers of hot events are similar but not equal.
* **Latency**: a separate process sends messages at a constant rate and records when they appear in the other topic, for
  readers of committed messages and of all messages. Micro-batches run without pauses.

dsv2's sink delivers **exactly once** by default, with a transaction per subtask and micro-batch. Spark's sink does not:
a repeated micro-batch is written again. "At least once" is the fair comparison.

The broker, Spark's JVM, its Python workers and the latency measurement share two cores. Times are those of complete
micro-batches after two for warm-up.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.common import Arguments, Report, Sample, batch_seconds, checkpoint, conditions, spark_session
from benchmarks.common.contest import WARM_UP
from benchmarks.common.kafka_load import READERS
from benchmarks.common.kafka_topics import Topics
from components.kafka import KafkaBroker, kafka_classpath
from components.maven import maven_classpath
from components.server import MissingComponentError
from dsv2 import ExecutionEnvironment, Trigger
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from examples.hot_topics import HotTopic, build
from examples.tweets import Tweet, TweetGenerator
from runtime_spark.job.query import StreamingJob

__all__ = ("SPARK_KAFKA", "main")

NAME = "kafka"
TARGET = 0.5
"""The minimum ratio to the throughput of hand-written code with a Python function, both at least once."""

SHORT = {"messages": 5_000, "batches": 1, "threshold": 100, "rate": 200, "seconds": 1, "warm_up": 1}

Delivery: TypeAlias = Literal["exactly-once", "at-least-once"]
Started: TypeAlias = StreamingJob | StreamingQuery

SPARK_KAFKA = Path(__file__).parent / "common" / "spark-kafka-pom.xml"
"""Lists the jars of Spark's Kafka source and sink."""
_ROOT = Path(__file__).parent.parent
_PARALLELISM, _PARTITIONS = 2, 4
_BYTES = 100
_WINDOW_MS = 5 * 60 * 1000
_TWEETS = TweetGenerator(topics=1000, interval=1)
_HOT = "topic string, at long, count long"


@dataclass(frozen=True)
class Copy:
    """The task of a contestant: copy ``per_batch`` messages per micro-batch from topic ``read`` to topic ``write``."""

    spark: SparkSession
    servers: str
    read: str
    write: str
    per_batch: int
    trigger: Trigger


Contestants: TypeAlias = Mapping[str, Callable[[Copy, str], Started]]
"""Functions that start a contestant with a folder for its checkpoint, by name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    options = _parse(arguments)
    try:
        jars = maven_classpath(SPARK_KAFKA, "Spark's own Kafka source").replace(":", ",")
        kafka_classpath()
    except MissingComponentError as error:
        print(error, file=sys.stderr)
        return 1
    with _broker() as servers, spark_session("kafka benchmark", {"spark.jars": jars}) as spark:
        connectors = {"confluent-kafka": version("confluent-kafka"), "Spark's connector": _name_of(jars)}
        report = Report(NAME, "From Kafka to Kafka", conditions(spark, NAME, arguments) | connectors)
        topics = Topics(servers)
        pass_through(report, spark, topics, options)
        hot_topics(report, spark, topics, options)
        latency(report, spark, topics, options)
    report.publish(options.results)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="measured messages (1,000,000)")
    parser.add_argument("--batches", type=int, default=10, help="measured micro-batches (10)")
    parser.add_argument("--threshold", type=int, default=25_000, help="a topic with more tweets is hot (25,000)")
    parser.add_argument("--rate", type=int, default=1_000, help="messages per second, for the latency (1,000)")
    parser.add_argument("--seconds", type=int, default=60, help="measured seconds, for the latency (60)")
    parser.add_argument("--warm-up", type=int, default=20, help="seconds before those (20)")
    return parser.parse(arguments, SHORT)


def _name_of(jars: str) -> str:
    return next(Path(jar).stem for jar in jars.split(",") if "spark-sql-kafka" in jar)


@contextmanager
def _broker() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="dsv2-kafka-") as folder:
        broker = KafkaBroker(Path(folder))
        broker.start()
        try:
            yield broker.bootstrap_servers
        finally:
            broker.stop()


# --- Pass-through ----------------------------------------------------------------------------------------------------

BY_HAND = "Spark, a Python function, at least once"
AT_LEAST_ONCE = "dsv2, at least once"


def pass_through(report: Report, spark: SparkSession, topics: Topics, options: argparse.Namespace) -> None:
    """Measure the throughput of pass-through, and add its table."""
    per_batch = options.messages // options.batches
    count = per_batch * (options.batches + WARM_UP)
    read = topics.filled(_PARTITIONS, (b"%0*d" % (_BYTES, number) for number in range(count)))
    samples, rows = {}, []
    for name, start in COPIERS.items():
        write = topics.create(_PARTITIONS)
        copy = Copy(spark, topics.servers, read, write, per_batch, Trigger.available_now())
        samples[name] = _measured(copy, start, options.batches)
        if (copied := topics.count(write)) != count:
            raise AssertionError(f"{name}: {copied} messages, {count} expected")
        rows.append((name, *_numbers(samples[name], per_batch, samples)))
    title = f"Pass-through of {options.messages:,} messages, {per_batch:,} in a micro-batch"
    report.table(title, ("contestant", "messages/s", "ms per batch", "spread", "of the first"), rows)
    of_by_hand = samples[BY_HAND].median / samples[AT_LEAST_ONCE].median
    report.at_least("pass-through, as a part of what is written by hand", of_by_hand, TARGET)


def _measured(copy: Copy, start: Callable[[Copy, str], Started], batches: int) -> Sample:
    """Run a query until it has processed all available messages."""
    with checkpoint() as folder:
        started = start(copy, folder)
        query = _query_of(started)
        query.awaitTermination()
        return Sample.of(batch_seconds(query, WARM_UP, batches))


def _query_of(started: Started) -> StreamingQuery:
    return started.query if isinstance(started, StreamingJob) else started


def _numbers(sample: Sample, per_batch: int, samples: Mapping[str, Sample]) -> tuple[int | str | float, ...]:
    base = next(iter(samples.values())).median
    return round(per_batch / sample.median), round(sample.median * 1000), sample.spread, base / sample.median


def with_dsv2(copy: Copy, folder: str, delivery: Delivery = "exactly-once") -> StreamingJob:
    """Start dsv2 with a source and a sink."""
    env = ExecutionEnvironment.get_instance(spark=copy.spark)
    env.set_parallelism(_PARALLELISM)
    source = KafkaSource(copy.servers, topics=copy.read, decode=values(unchanged), records_per_batch=copy.per_batch)
    sink = KafkaSink[bytes](copy.servers, copy.write, unchanged, delivery=delivery)
    env.from_source(source, "in").to_sink(sink).with_uid("out")
    return _execute(env, copy, folder)


def with_dsv2_at_least_once(copy: Copy, folder: str) -> StreamingJob:
    """Start dsv2 without transactions."""
    return with_dsv2(copy, folder, "at-least-once")


def with_function(copy: Copy, folder: str) -> StreamingQuery:
    """Start Spark's source and sink with a function that is called for each value."""

    def call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [unchanged(value) for value in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], ["value"])

    return _write(_messages(copy).mapInArrow(call, "value binary"), copy, folder)


def without_python(copy: Copy, folder: str) -> StreamingQuery:
    """Start Spark's source and sink without a function."""
    return _write(_messages(copy), copy, folder)


COPIERS: Contestants = {
    BY_HAND: with_function,
    "Spark, no Python at all, at least once": without_python,
    AT_LEAST_ONCE: with_dsv2_at_least_once,
    "dsv2, exactly once": with_dsv2,
}


def unchanged(value: bytes) -> bytes:
    """The user's function."""
    return value


def _execute(env: ExecutionEnvironment, copy: Copy, folder: str) -> StreamingJob:
    job = env.execute_async("kafka benchmark", checkpoint_location=folder, trigger=copy.trigger)
    assert isinstance(job, StreamingJob)
    return job


def _messages(copy: Copy) -> DataFrame:
    reader = copy.spark.readStream.format("kafka").option("kafka.bootstrap.servers", copy.servers)
    reader = reader.option("subscribe", copy.read).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", copy.per_batch).load().select("value")


def _write(rows: DataFrame, copy: Copy, folder: str) -> StreamingQuery:
    writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", copy.servers)
    writer = writer.option("topic", copy.write).option("checkpointLocation", folder)
    interval = copy.trigger.interval_ms
    if interval is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval} milliseconds").start()


# --- Hot topics ------------------------------------------------------------------------------------------------------


def hot_topics(report: Report, spark: SparkSession, topics: Topics, options: argparse.Namespace) -> None:
    """Measure the throughput of hot topics, and add its table."""
    per_batch = options.messages // options.batches
    count = per_batch * (options.batches + WARM_UP)
    read = topics.filled(_PARALLELISM, map(json_of_tweet, map(_TWEETS, range(count))))
    contestants: Contestants = {
        "Spark, written by hand, at least once": lambda copy, folder: hot_by_hand(copy, folder, options.threshold),
        "dsv2, exactly once": lambda copy, folder: hot_with_dsv2(copy, folder, options.threshold),
    }
    samples, rows = {}, []
    for name, start in contestants.items():
        write = topics.create(_PARTITIONS)
        copy = Copy(spark, topics.servers, read, write, per_batch, Trigger.available_now())
        samples[name] = _measured(copy, start, options.batches)
        rows.append((name, *_numbers(samples[name], per_batch, samples), topics.count(write)))
    title = f"Hot topics of {options.messages:,} tweets, {per_batch:,} in a micro-batch"
    report.table(title, ("contestant", "tweets/s", "ms per batch", "spread", "of the first", "hot events"), rows)


def json_of_tweet(tweet: Tweet) -> bytes:
    """Encode a tweet as a message."""
    return json.dumps(tweet._asdict()).encode()


def tweet_of(value: bytes) -> Tweet:
    """Decode a message."""
    return Tweet(**json.loads(value))


def json_of_hot(hot: HotTopic) -> bytes:
    """Encode a hot topic as a message."""
    return json.dumps({"topic": hot.topic, "at": hot.at, "count": hot.count}).encode()


def hot_with_dsv2(copy: Copy, folder: str, threshold: int) -> StreamingJob:
    """Start the pipeline of the example."""
    env = ExecutionEnvironment.get_instance(spark=copy.spark)
    env.set_parallelism(_PARALLELISM)
    source = KafkaSource(copy.servers, topics=copy.read, decode=values(tweet_of), records_per_batch=copy.per_batch)
    tweets = env.from_source(source, "tweets")
    hot = build(tweets, threshold=threshold, window=_WINDOW_MS, lazy=True, extractors=_PARALLELISM)
    hot.to_sink(KafkaSink[HotTopic](copy.servers, copy.write, json_of_hot)).with_uid("hot")
    return _execute(env, copy, folder)


def hot_by_hand(copy: Copy, folder: str, threshold: int) -> StreamingQuery:
    """Start a query with a heap of posting times as the state of each topic."""

    def detect(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        newest, heap = pickle.loads(state.get[0]) if state.exists else (0, list[int]())  # noqa: S301 - our own
        found: list[tuple[str, int, int]] = []
        for frame in frames:
            for posted in frame["posting_time"].tolist():
                newest = max(newest, posted)
                while heap and heap[0] < newest - _WINDOW_MS:
                    heappop(heap)
                heappush(heap, posted)
                if len(heap) > threshold:
                    found.append((key[0], heap[0], len(heap)))
        state.update((pickle.dumps((newest, heap)),))
        yield pd.DataFrame(found, columns=["topic", "at", "count"])

    tweet = F.from_json(F.col("value").cast("string"), "topic string, posting_time long")
    tweets = _messages(copy).select(tweet.alias("tweet")).select("tweet.*")
    none = GroupStateTimeout.NoTimeout
    hot = tweets.groupBy("topic").applyInPandasWithState(detect, _HOT, "kept binary", "append", none)
    return _write(hot.select(F.to_json(F.struct("*")).alias("value")), copy, folder)


# --- Latency ---------------------------------------------------------------------------------------------------------


def latency(report: Report, spark: SparkSession, topics: Topics, options: argparse.Namespace) -> None:
    """Measure the latency of messages from one topic to the other, and add its table."""
    rows = []
    for name, start in COPIERS.items():
        read, write = topics.create(_PARTITIONS), topics.create(_PARTITIONS)
        copy = Copy(spark, topics.servers, read, write, options.messages, Trigger.processing_time())
        with checkpoint() as folder:
            started = start(copy, folder)
            found = _load(copy, options)
            started.stop()
        rows += [(name, reader, *found[reader].values()) for reader in READERS]
    title = f"Latency in ms, at {options.rate:,} messages a second"
    report.table(title, ("contestant", "reader", "messages", "median", "90 %", "99 %", "longest"), rows)


def _load(copy: Copy, options: argparse.Namespace) -> dict[str, dict[str, int | float]]:
    numbers = map(str, (options.rate, options.warm_up, options.seconds))
    command = [sys.executable, "-m", "benchmarks.common.kafka_load", copy.servers, copy.read, copy.write, *numbers]
    run = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    found: dict[str, dict[str, int | float]] = json.loads(run.stdout)
    return found


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find functions by the name of their module.
    from benchmarks import kafka

    sys.exit(kafka.main())
