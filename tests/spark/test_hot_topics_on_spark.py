"""The hot-topics job on Spark, with real flights and with tweets, compared with the independent oracle.

There is one split, so the answer is exact: with several detectors for each topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from examples.flights import scheduled_departures
from examples.hot_topics import HotTopic, build
from examples.tweets import Tweet, TweetGenerator
from tests.oracles.hot_topics import expected_events
from tests.profiles import nightly

WINDOW = 5 * 60 * 1000
THRESHOLD = 100

FLIGHT_WINDOW = 60 * 60 * 1000
FLIGHT_THRESHOLD = 6


class Way(NamedTuple):
    """One way to run the job. ``records_per_batch`` None means BATCH mode."""

    detectors: int
    records_per_batch: int | None


TWEETS = 40_000
WAYS = [Way(2, 20_000), *nightly(Way(4, 20_000), Way(4, None), Way(1, 20_000), Way(1, None))]


def by_topic(events: Iterable[HotTopic]) -> dict[str, list[HotTopic]]:
    groups: dict[str, list[HotTopic]] = defaultdict(list)
    for event in events:
        groups[event.topic].append(event)
    return groups


def check(way: Way, tweets: Iterable[Tweet], events: list[HotTopic], threshold: int, window: int) -> None:
    """Raise unless ``events`` are the answer of a run of the job this ``way``."""
    assert events
    expected = expected_events(tweets, threshold, window)
    assert by_topic(events) == by_topic(expected) if way.detectors > 1 else events == expected


def environment(spark: SparkSession, way: Way) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(way.detectors)
    if way.records_per_batch is None:
        env.set_execution_mode(RuntimeExecutionMode.BATCH)
    return env


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_tweets(spark: SparkSession, checkpoint: str, way: Way) -> None:
    env = environment(spark, way)
    sink = CollectSink[HotTopic]()
    source = DataGeneratorSource(TweetGenerator(), count=TWEETS, records_per_batch=way.records_per_batch)
    stream = env.from_source(source).with_parallelism(1)
    build(stream, threshold=THRESHOLD, window=WINDOW, lazy=False, extractors=1).to_sink(sink)
    result = env.execute(checkpoint_location=checkpoint if way.records_per_batch else None)
    assert result.progress.operators["extractor"].records_in == TWEETS
    assert result.progress.operators["detector"].records_in == TWEETS
    check(way, map(TweetGenerator(), range(TWEETS)), sink.results, THRESHOLD, WINDOW)


@pytest.mark.parametrize("way", nightly(Way(1, 150_000), Way(2, None)), ids=str)
def test_flights(spark: SparkSession, checkpoint: str, tmp_path: Path, way: Way) -> None:
    flights = scheduled_departures()[["topic", "posting_time"]]
    tweets = [Tweet(topic, time) for topic, time in flights.itertuples(index=False)]
    assert len(tweets) > 300_000
    env = environment(spark, way)
    sink = CollectSink[HotTopic]()
    dataframe = spark.createDataFrame(flights)
    stream = env.from_dataframe(dataframe, Tweet, records_per_batch=way.records_per_batch).with_parallelism(1)
    build(stream, threshold=FLIGHT_THRESHOLD, window=FLIGHT_WINDOW, lazy=False, extractors=1).to_sink(sink)
    env.execute(checkpoint_location=checkpoint if way.records_per_batch else None)
    check(way, tweets, sink.results, FLIGHT_THRESHOLD, FLIGHT_WINDOW)
