"""Hot topics: the example program of FLIP-467, which introduced generalized watermarks.

Tweets have a topic and a posting time. A topic is hot while more than ``threshold`` tweets about it were posted within
``window`` milliseconds. ``PostingTimeExtractor`` forwards tweets and emits the newest posting time so far as a custom
watermark. ``HotTopicDetector`` keeps the posting times of each topic and evicts those that are too old compared with
the watermark. This does not require event time: the program defines the meaning of its watermark.

The results are those of the program in FLIP-467. *Every* tweet with which the detector holds more than ``threshold``
tweets of a topic, including itself, emits a ``HotTopic``. Only watermarks evict tweets (those posted more than
``window`` before the newest one), and the watermark of a tweet follows the tweet.

With one extractor, the result is the same on every runtime and for every parallelism of the detector. With several
extractors, it depends on the interleaving of their tweets. The newest posting time is the maximum over *all*
extractors, so tweets of a slower extractor are already old when they arrive, and they stay until the watermark advances
again.

``python -m examples.hot_topics --help`` shows how to run it.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING

from dsv2 import (
    Collector,
    CollectSink,
    Dsv2Error,
    ExecutionEnvironment,
    FileSink,
    JobHandle,
    JobResult,
    JobStatus,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    PrintSink,
    RuntimeExecutionMode,
    Trigger,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.errors import ConfigurationError
from dsv2.jobs import JobProgress
from dsv2.sources import DataGeneratorSource
from dsv2.streams import ConfiguredStream
from dsv2.views.terminal import signals_noted, watch
from examples.chart import require_matplotlib, save_chart, span_text, text_chart
from examples.console import format_table, format_time
from examples.program import INTERRUPTED, number_of_subtasks
from examples.session import new_session
from examples.tweets import Tweet, TweetGenerator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = (
    "HotTopic",
    "HotTopicDetector",
    "LazyHotTopicDetector",
    "PostingTimeExtractor",
    "Tweet",
    "build",
    "main",
    "pipeline",
)

THRESHOLD = 100  # tweets
WINDOW = 5 * 60 * 1000  # milliseconds

NEWEST_POSTING_TIME = "newest-posting-time"

OUT = Path(__file__).resolve().parent.parent / "out" / "hot_topics"

DESCRIPTION = """\
Finds hot topics like the example of FLIP-467. The tweets are the scheduled departures from New York in 2013, and the
topics are their destinations. With one split (the default), the result is always the same. With several splits (each
of the three airports of New York belongs to one), it depends on the interleaving of the splits.
"""


@dataclass(frozen=True, slots=True)
class HotTopic:
    """A hot topic.

    Attributes:
        topic: The topic.
        at: The posting time of the oldest tweet in the window, in ms since the epoch.
        count: The number of tweets in the window.
    """

    topic: str
    at: int
    count: int


class PostingTimeExtractor(OneInputStreamProcessFunction[Tweet, Tweet]):
    """Forwards tweets, and emits the posting time of a tweet as a watermark after it if it is the newest so far."""

    WATERMARK = new_builder(NEWEST_POSTING_TIME).type_long().combine_function_max().build()

    def __init__(self) -> None:
        self.newest_posting_time = -1

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [self.WATERMARK]

    def process_record(self, tweet: Tweet, output: Collector[Tweet], ctx: PartitionedContext[Tweet]) -> None:
        output.collect(tweet)
        if tweet.posting_time > self.newest_posting_time:
            self.newest_posting_time = tweet.posting_time
            watermark = self.WATERMARK.new_watermark(self.newest_posting_time)
            ctx.non_partitioned_context.watermark_manager.emit_watermark(watermark)
            ctx.metric_group.counter("watermarks").inc()


class HotTopicDetector(OneInputStreamProcessFunction[Tweet, HotTopic]):
    """Keeps a heap of posting times per topic. A watermark evicts the old ones of all topics."""

    keyed_fields = ("posting_times",)  # each topic follows its key when the parallelism changes

    def __init__(self, threshold: int = THRESHOLD, window: int = WINDOW) -> None:
        self.threshold = threshold
        self.window = window
        self.posting_times: dict[str, list[int]] = {}

    def process_record(self, tweet: Tweet, output: Collector[HotTopic], ctx: PartitionedContext[HotTopic]) -> None:
        heap = self.posting_times.setdefault(tweet.topic, [])
        heappush(heap, tweet.posting_time)
        if len(heap) > self.threshold:
            output.collect(HotTopic(tweet.topic, heap[0], len(heap)))

    def on_watermark(
        self, watermark: Watermark, output: Collector[HotTopic], ctx: NonPartitionedContext[HotTopic]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == NEWEST_POSTING_TIME:
            oldest_kept = watermark.value - self.window
            for heap in self.posting_times.values():
                while heap and heap[0] < oldest_kept:
                    heappop(heap)
        return WatermarkHandlingResult.PEEK  # forward it to downstream operators


class LazyHotTopicDetector(OneInputStreamProcessFunction[Tweet, HotTopic]):
    """Emits the same results without visiting all topics for every watermark.

    It only stores the watermark. The old tweets of a topic are evicted when its next tweet arrives, just before that is
    added. The two detectors can differ if the watermark decreases, as it does when the fastest extractor ends first.
    """

    keyed_fields = ("posting_times",)

    def __init__(self, threshold: int = THRESHOLD, window: int = WINDOW) -> None:
        self.threshold = threshold
        self.window = window
        self.newest_posting_time = -1
        self.posting_times: dict[str, tuple[int, list[int]]] = {}  # with the last watermark applied to the topic

    def process_record(self, tweet: Tweet, output: Collector[HotTopic], ctx: PartitionedContext[HotTopic]) -> None:
        newest = self.newest_posting_time
        applied, heap = self.posting_times.get(tweet.topic) or (newest, [])
        if applied != newest:
            oldest_kept = newest - self.window
            while heap and heap[0] < oldest_kept:
                heappop(heap)
        heappush(heap, tweet.posting_time)
        self.posting_times[tweet.topic] = newest, heap
        if len(heap) > self.threshold:
            output.collect(HotTopic(tweet.topic, heap[0], len(heap)))

    def on_watermark(
        self, watermark: Watermark, output: Collector[HotTopic], ctx: NonPartitionedContext[HotTopic]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == NEWEST_POSTING_TIME:
            self.newest_posting_time = max(self.newest_posting_time, watermark.value)
        return WatermarkHandlingResult.PEEK


def build(
    tweets: ConfiguredStream[Tweet],
    *,
    threshold: int = THRESHOLD,
    window: int = WINDOW,
    lazy: bool = False,
    extractors: int = 1,
) -> ConfiguredStream[HotTopic]:
    """Build the pipeline. Its uids are ``tweets``, ``extractor`` (with the counter ``watermarks``) and ``detector``.

    Args:
        tweets: The stream of tweets.
        threshold: A topic is hot with more tweets than this.
        window: The length of the window, in ms.
        lazy: Whether to use ``LazyHotTopicDetector``.
        extractors: The parallelism of the source and the extractor. The detector has the environment's parallelism.
    """
    detector = LazyHotTopicDetector if lazy else HotTopicDetector
    return (
        tweets.with_uid("tweets")
        .with_parallelism(extractors)
        .process(PostingTimeExtractor())
        .with_uid("extractor")
        .with_parallelism(extractors)
        .key_by(lambda tweet: tweet.topic)
        .process(detector(threshold, window))
        .with_uid("detector")
    )


def pipeline(env: ExecutionEnvironment, tweets: int = 100_000, threshold: int = THRESHOLD, lazy: bool = False) -> None:
    """Print the hot topics of generated tweets: ``dsv2 run examples.hot_topics:pipeline --set threshold=200``."""
    source = DataGeneratorSource(TweetGenerator(), count=tweets, records_per_batch=100_000)
    events = build(env.from_source(source, "tweets"), threshold=threshold, lazy=lazy)
    events.to_sink(PrintSink()).with_uid("events")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    options = _parse(arguments)
    try:
        if options.chart is not None:
            require_matplotlib()
        if options.mode == "local":
            job, events = _run_locally(options)
        else:
            job, events = _run_on_spark(options)
        print(_report(options, job.result(), events))
        if options.mode != "local":
            print(f"All events are in {_output(options)}, as Parquet.")
        if options.chart is not None:
            save_chart([event.at for event in events], "Hot events", options.chart)
            print(f"The chart is in {options.chart}.")
    except (Dsv2Error, OSError) as error:  # OSError: a directory cannot be created or read
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return INTERRUPTED if job.status is JobStatus.STOPPED else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hot-topics",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--mode", choices=("streaming", "batch", "local"), default="streaming", help="local: in this process, no Spark")
    add("--tweets", type=int, metavar="N", help="read N generated tweets instead of the flights of 2013")
    add("--threshold", type=int, help="a topic with more tweets than this is hot (flights: 6, tweets: 100)")
    add("--window", type=float, metavar="MINUTES", help="the length of the window (flights: 60, tweets: 5)")
    subtasks = number_of_subtasks
    add("--parallelism", type=subtasks, default=2, metavar="N", help="subtasks of the detector (default 2)")
    add("--splits", type=subtasks, default=1, metavar="N", help="subtasks of source and extractor (default 1)")
    add("--lazy", action="store_true", help="evict old tweets of a topic only when its next tweet arrives")
    add("--work-dir", type=Path, default=OUT, help="flights as Parquet, checkpoint, events (default: out/hot_topics)")
    add("--checkpoint", type=Path, metavar="DIR", help="the checkpoint of the job; it is resumed if it exists")
    add("--output", type=Path, metavar="DIR", help="events as Parquet (default: in WORK_DIR or next to CHECKPOINT)")
    add("--chart", type=Path, metavar="FILE", help="also write the chart of events over time, such as events.png")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    options.given = given
    if options.threshold is None:
        options.threshold = 6 if options.tweets is None else THRESHOLD
    if options.window is None:
        options.window = 60 if options.tweets is None else WINDOW / 60_000
    if options.threshold < 0 or not 0 < options.window < float("inf"):
        parser.error("--threshold must be at least 0, and --window must be greater than 0")
    if options.mode == "local" and options.output:
        parser.error("--output requires Spark: use --mode streaming or batch")
    if options.mode != "streaming" and options.checkpoint:
        parser.error("--checkpoint requires --mode streaming")
    return options


def _run_locally(options: argparse.Namespace) -> tuple[JobHandle, list[HotTopic]]:
    env = ExecutionEnvironment.get_instance(runtime="local")
    if options.tweets is None:
        from examples.flights import scheduled_departures

        departures = scheduled_departures()
        tweets = env.from_collection(list(map(Tweet, departures["topic"], departures["posting_time"].tolist())))
    else:
        tweets = _generated_tweets(env, options)
    sink = CollectSink[HotTopic]()
    _hot_topics(env, tweets, options).to_sink(sink)
    job = env.execute_async("hot topics")
    watch(job)
    return job, sink.results


def _run_on_spark(options: argparse.Namespace) -> tuple[JobHandle, list[HotTopic]]:
    streaming = options.mode == "streaming"
    checkpoint = options.checkpoint or options.work_dir / "checkpoint"
    output = _output(options)
    if not (options.checkpoint and checkpoint.exists()):
        _remove_earlier_run(checkpoint, output, output_is_ours=options.output is None)
    with signals_noted() as signals, new_session("hot topics") as spark:
        env = ExecutionEnvironment.get_instance(spark=spark)
        env.set_execution_mode(RuntimeExecutionMode.STREAMING if streaming else RuntimeExecutionMode.BATCH)
        tweets = _flights_on_spark(env, spark, options) if options.tweets is None else _generated_tweets(env, options)
        _hot_topics(env, tweets, options).to_sink(FileSink(str(output), schema=HotTopic)).with_uid("events")
        job = env.execute_async(
            "hot topics",
            checkpoint_location=str(checkpoint) if streaming else None,
            trigger=Trigger.available_now() if streaming else None,
        )
        watch(job, signals=signals, continue_with=_command_to_continue(options) if streaming else None)
        return job, _read_events(spark, output)


def _command_to_continue(options: argparse.Namespace) -> str:
    given = list(options.given)
    for option, value in (("checkpoint", options.work_dir / "checkpoint"), ("output", _output(options))):
        if getattr(options, option) is None:
            given += [f"--{option}", str(value)]
    return shlex.join(["./run", "hot-topics", *given])


def _output(options: argparse.Namespace) -> Path:
    """The directory of the events. Each checkpoint has its own."""
    checkpoint: Path | None = options.checkpoint
    default = options.work_dir / "events" if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}-events")
    return options.output or default


def _remove_earlier_run(checkpoint: Path, output: Path, output_is_ours: bool) -> None:
    if not output_is_ours and output.exists() and any(output.iterdir()):
        raise ConfigurationError(
            f"{output} contains the output of an earlier run. Remove it, choose another --output, or pass the "
            f"--checkpoint of that run to resume it."
        )
    for folder, ours in ((checkpoint, "dsv2"), (output, "_dsv2")):
        if folder.exists() and any(folder.iterdir()) and not any(folder.glob(ours)):
            raise ConfigurationError(f"{folder} contains other files than an earlier run. Choose another --work-dir.")
        shutil.rmtree(folder, ignore_errors=True)


def _flights_on_spark(
    env: ExecutionEnvironment, spark: SparkSession, options: argparse.Namespace
) -> ConfiguredStream[Tweet]:
    from examples.flights import SCHEMA, write_departures

    directory = options.work_dir / "flights"
    write_departures(directory)
    if options.mode == "streaming":
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        departures = reader.parquet(str(directory))
    else:
        departures = spark.read.schema(SCHEMA).parquet(str(directory)).coalesce(1).sortWithinPartitions("sequence")
    # Each origin is a split. A single subtask preserves the order of the files.
    split_by = "origin" if options.splits > 1 else None
    return env.from_dataframe(departures, Tweet, split_by=split_by)


def _generated_tweets(env: ExecutionEnvironment, options: argparse.Namespace) -> ConfiguredStream[Tweet]:
    return env.from_source(DataGeneratorSource(TweetGenerator(), count=options.tweets, records_per_batch=100_000))


def _hot_topics(
    env: ExecutionEnvironment, tweets: ConfiguredStream[Tweet], options: argparse.Namespace
) -> ConfiguredStream[HotTopic]:
    env.set_parallelism(options.parallelism)
    return build(
        tweets,
        threshold=options.threshold,
        window=round(options.window * 60_000),
        lazy=options.lazy,
        extractors=options.splits,
    )


def _numbers(progress: JobProgress) -> tuple[int, int, int]:
    extractor, detector = progress.operators["extractor"], progress.operators["detector"]
    return extractor.records_in, extractor.counters.get("watermarks", 0), detector.records_out


def _read_events(spark: SparkSession, output: Path) -> list[HotTopic]:
    if not any(output.glob("*.parquet")):
        return []
    rows = spark.read.parquet(str(output)).select("topic", "at", "count").collect()
    return [HotTopic(*row) for row in rows]


def _report(options: argparse.Namespace, result: JobResult, events: Sequence[HotTopic]) -> str:
    by_topic: dict[str, list[HotTopic]] = defaultdict(list)
    for event in events:
        by_topic[event.topic].append(event)
    hottest = sorted(by_topic.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = [
        (
            topic,
            len(found),
            format_time(min(event.at for event in found)),
            format_time(max(event.at for event in found)),
            max(event.count for event in found),
        )
        for topic, found in hottest[:20]
    ]
    things = "departures to one airport" if options.tweets is None else "tweets about one topic"
    read, watermarks, hot = _numbers(result.progress)
    seconds = result.duration.total_seconds()
    summary = (
        f"{read:,} records read, {watermarks:,} watermarks, {hot:,} hot events in {seconds:.1f} s "
        f"({read / max(seconds, 1e-3):,.0f} records/s)"
    )
    lines = [
        f"Hot: more than {options.threshold} {things} within {options.window:g} minutes",
        "",
        format_table(("topic", "events", "first (UTC)", "last (UTC)", "most"), rows),
        *([f"and {len(hottest) - len(rows):,} other topics"] if len(hottest) > len(rows) else []),
        "",
        *_chart([event.at for event in events]),
        summary if result.progress.batch_id >= 0 else "Nothing new to read.",
    ]
    return "\n".join(lines)


def _chart(times: Sequence[int]) -> list[str]:
    """The chart of the events, if there are any and the terminal can show it."""
    try:
        chart = "\n".join(text_chart(times))
        chart.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return []
    return [f"Hot events per {span_text(times)}", "", chart, ""] if chart else []


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import hot_topics

    sys.exit(hot_topics.main())
