"""The same job with functions on Arrow tables: watermarks are between tables, and tweets are held in columns.

Mode ``state``: the detector keeps its counts in keyed state instead of a field.

An extractor emits its watermark after some thousand tweets rather than after each newer tweet, so a topic may hold
tweets that are correspondingly older than the window.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common.tables import GeneratedTables, Numbers
from benchmarks.jobs.hot_topics import START, WINDOW, place_bits, rank_table, threshold
from benchmarks.peers.dsv2_job import run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.arrow import (
    ArrowCollector,
    ArrowContext,
    ArrowForeachBatchSink,
    ArrowNonPartitionedContext,
    ArrowProcessFunction,
    schema_of,
)
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult
from examples.hot_topics import NEWEST_POSTING_TIME, HotTopic, PostingTimeExtractor
from examples.tweets import Tweet

__all__ = ("measure", "pipeline")

_PIECE = 1 << 14
"""The number of tweets between two watermarks, about 16 seconds of one extractor."""


class Held(NamedTuple):
    """The number of tweets of a topic in the window."""

    tweets: int


HELD = StateDeclarations.value_state("held", Held, default=Held(0))


class TweetTables:
    """``benchmarks.jobs.hot_topics.Tweets`` in columns."""

    def __init__(self, topics: int) -> None:
        self.__setstate__(topics)

    def __getstate__(self) -> int:
        return self.topics

    def __setstate__(self, topics: int) -> None:
        self.topics = topics
        self.shift = np.uint64(32 - place_bits(topics))
        self.names = pa.array([f"topic-{rank}" for rank in range(topics + 1)])
        self.ranks = np.array(rank_table(topics), dtype=np.int32)

    def __call__(self, index: Numbers) -> pa.Table:
        places = (index.astype(np.uint64) * np.uint64(2_654_435_769) & np.uint64(0xFFFF_FFFF)) >> self.shift
        topics = self.names.take(pa.array(self.ranks[places]))
        return pa.table([topics, START + index // 1000 * 1000], schema_of(Tweet))


class TableExtractor(ArrowProcessFunction[Tweet, Tweet]):
    """Forwards tweets, and emits their newest posting time as a watermark."""

    def __init__(self) -> None:
        self.newest = -1

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [PostingTimeExtractor.WATERMARK]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Tweet], ctx: PartitionedContext[Tweet]) -> None:
        for start in range(0, batch.num_rows, _PIECE):
            piece = batch.slice(start, _PIECE)
            output.collect_batch(piece)
            newest = pc.max(piece["posting_time"]).as_py()
            if newest > self.newest:
                self.newest = newest
                watermark = PostingTimeExtractor.WATERMARK.new_watermark(newest)
                ctx.non_partitioned_context.watermark_manager.emit_watermark(watermark)


class TableDetector(ArrowProcessFunction[Tweet, HotTopic]):
    """Keeps topics and posting times of all tweets in the window. A watermark evicts the old ones of all topics."""

    def __init__(self, threshold: int, window: int) -> None:
        self.threshold = threshold
        self.window = window
        self.topics = pa.table({"name": pa.array([], pa.string()), "held": np.zeros(0, np.int64)})
        self.tweets: list[tuple[int, pa.Table]] = []  # the oldest posting time of a table, and the table

    def process_batch(
        self, batch: pa.Table, output: ArrowCollector[HotTopic], ctx: PartitionedContext[HotTopic]
    ) -> None:
        topics, times = self._rows_of(batch["topic"]), batch["posting_time"].to_numpy()
        before = self.topics["held"].to_numpy()
        held = before + np.bincount(topics, minlength=len(before))
        for topic in np.flatnonzero(held > self.threshold):
            own = times[topics == topic]
            if len(own):
                self._report(int(topic), own, int(before[topic]), output)
        self._hold(held)
        self.tweets.append((int(times.min()), _tweets(topics, times)))

    def on_watermark(
        self, watermark: Watermark, output: ArrowCollector[HotTopic], ctx: NonPartitionedContext[HotTopic]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == NEWEST_POSTING_TIME:
            oldest_kept = watermark.value - self.window
            old = [tweets for oldest, tweets in self.tweets if oldest < oldest_kept]
            self.tweets = [(oldest, tweets) for oldest, tweets in self.tweets if oldest >= oldest_kept]
            for tweets in old:
                self._drop(tweets, oldest_kept)
        return WatermarkHandlingResult.PEEK

    def _drop(self, tweets: pa.Table, oldest_kept: int) -> None:
        """Evict the old tweets of a table, and keep the others."""
        topics, times = tweets["topic"].to_numpy(), tweets["posting_time"].to_numpy()
        kept = times >= oldest_kept
        self._hold(self.topics["held"].to_numpy() - np.bincount(topics[~kept], minlength=self.topics.num_rows))
        if kept.any():
            self.tweets.append((int(times[kept].min()), _tweets(topics[kept], times[kept])))

    def _hold(self, held: Numbers) -> None:
        self.topics = pa.table({"name": self.topics["name"], "held": held})

    def _report(self, topic: int, times: Numbers, before: int, output: ArrowCollector[HotTopic]) -> None:
        """Emit a row for each new tweet of the topic with which the count exceeds the threshold."""
        oldest = times[0]
        for oldest_of_all, tweets in sorted(self.tweets, key=itemgetter(0)):
            if oldest_of_all >= oldest:
                break  # neither this table nor a later one has an older tweet
            own = tweets["topic"].to_numpy() == topic
            oldest = tweets["posting_time"].to_numpy()[own].min(initial=oldest)
        first = max(self.threshold - before, 0)
        oldest_then = np.minimum.accumulate(np.minimum(times, oldest))[first:]
        counts = np.arange(before + 1, before + 1 + len(times))[first:]
        names = pa.repeat(self.topics["name"][topic], len(counts))
        output.collect_batch(pa.table([names, oldest_then, counts], schema_of(HotTopic)))

    def _rows_of(self, topics: pa.ChunkedArray) -> Numbers:
        """Return the row of each tweet's topic."""
        names = self.topics["name"]
        rows = pc.index_in(topics, names)
        if rows.null_count:
            new = topics.filter(pc.is_null(rows)).unique()
            names = pa.chunked_array([*names.chunks, new]).combine_chunks()
            held = self.topics["held"].to_numpy()
            self.topics = pa.table({"name": names, "held": np.pad(held, (0, len(new)))})
            rows = pc.index_in(topics, names)
        found: Numbers = rows.to_numpy().astype(np.int64)
        return found


class StateDetector(ArrowProcessFunction[Tweet, HotTopic]):
    """The same, but the counts are keyed state: a micro-batch reads and writes only those that it touches."""

    def __init__(self, threshold: int, window: int) -> None:
        self.threshold = threshold
        self.window = window
        self.tweets: list[tuple[int, pa.Table]] = []  # the oldest posting time of a table, and the table

    def uses_states(self) -> Collection[StateDeclaration]:
        return [HELD]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[HotTopic], ctx: ArrowContext[HotTopic]) -> None:
        held = ctx.keyed_state(HELD).accumulate(batch["topic"], {"tweets": 1}, {"tweets": "sum"})["tweets"]
        hot = batch.append_column("held", held).filter(pc.greater(held, self.threshold))
        for topic in hot["topic"].unique() if hot.num_rows else ():
            self._report(topic, batch, hot, output)
        self.tweets.append((pc.min(batch["posting_time"]).as_py(), batch))

    def on_watermark(
        self, watermark: Watermark, output: ArrowCollector[HotTopic], ctx: ArrowNonPartitionedContext[HotTopic]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == NEWEST_POSTING_TIME:
            oldest_kept = watermark.value - self.window
            old = [tweets for oldest, tweets in self.tweets if oldest < oldest_kept]
            self.tweets = [(oldest, tweets) for oldest, tweets in self.tweets if oldest >= oldest_kept]
            for tweets in old:
                is_kept = pc.greater_equal(tweets["posting_time"], oldest_kept)
                evicted = tweets.filter(pc.invert(is_kept))
                ctx.keyed_state(HELD).aggregate(evicted["topic"], {"tweets": -1}, {"tweets": "sum"})
                kept = tweets.filter(is_kept)
                if kept.num_rows:
                    self.tweets.append((pc.min(kept["posting_time"]).as_py(), kept))
        return WatermarkHandlingResult.PEEK

    def _report(self, topic: pa.Scalar, batch: pa.Table, hot: pa.Table, output: ArrowCollector[HotTopic]) -> None:
        """Emit a row for each new tweet of the topic with which the count exceeds the threshold."""
        times = batch.filter(pc.equal(batch["topic"], topic))["posting_time"].to_numpy()
        oldest = times[0]
        for oldest_of_all, tweets in sorted(self.tweets, key=itemgetter(0)):
            if oldest_of_all >= oldest:
                break  # neither this table nor a later one has an older tweet
            own = tweets.filter(pc.equal(tweets["topic"], topic))["posting_time"].to_numpy()
            oldest = own.min(initial=oldest)
        own = hot.filter(pc.equal(hot["topic"], topic))
        oldest_then = np.minimum.accumulate(np.minimum(times, oldest))[len(times) - own.num_rows :]
        output.collect_batch(pa.table([own["topic"], oldest_then, own["held"]], schema_of(HotTopic)))


def _tweets(topics: Numbers, times: Numbers) -> pa.Table:
    return pa.table({"topic": topics, "posting_time": times})


def measure(task: Task) -> Outcome:
    """Run the pipeline."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline. There are two detectors per task."""
    env.set_parallelism(2 * task.parallelism)
    source = GeneratedTables(TweetTables(task.keys), Tweet, task.total, task.records, task.parallelism)
    tweets = env.from_source(source, "tweets").with_uid("tweets").with_parallelism(task.parallelism)
    extracted = tweets.process(TableExtractor()).with_uid("extractor").with_parallelism(task.parallelism)
    kind = StateDetector if task.mode == "state" else TableDetector
    hot = extracted.key_by(attrgetter("topic")).process(kind(threshold(task), WINDOW)).with_uid("detector")
    totals: list[tuple[int, int]] = []

    def write(events: pa.Table, batch_id: int) -> None:
        totals.append((events.num_rows, pc.sum(events["count"], min_count=0).as_py()))

    hot.to_sink(ArrowForeachBatchSink(write, HotTopic)).with_uid("hot")
    return totals
