"""Hot topics on Spark against a plain Python loop over the same two functions.

The functions are those of ``examples.hot_topics``, in both variants: as the document writes the detector (every
watermark walks the heaps of all topics), and lazy (a watermark is noted, and a topic drops its old tweets when its next
one arrives). The plain loop has no framework at all: it calls ``process_record`` and ``on_watermark`` itself, with the
least that can stand for collectors and contexts, on one core. Spark runs the pipeline in ``local[2]`` with two subtasks
of everything; a micro-batch is so many tweets, its time is all that Spark does for it, source and sink included.

**The data** is the same for both: 1,000 topics by Zipf's law, 1,000 tweets a second, posting times in whole seconds,
five minutes of window. So a watermark comes every 1,000 tweets, 300,000 posting times are held, a million tweets are a
quarter of an hour, and heaps fill and empty within a micro-batch. The document's threshold of 100 tweets belongs to a
stream of two tweets a second; here it is 25,000, which the first topic passes (40,000 tweets in five minutes) and the
second does not, so that every eighth tweet is reported. Slower tweets would not be fair play: a frame of one channel
would cover more than the window, and which of two extractors is read first would decide what is hot.

**Several extractors** do not keep step exactly, so a window holds somewhat more tweets than in the plain loop (see
``examples.hot_topics``). With ``--parallelism 1`` the answers must be equal, and the program checks that.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.common import Arguments, Report, Sample, batch_seconds, checkpoint, conditions, spark_session
from benchmarks.common.outside import OutsideSpark
from benchmarks.common.stopwatch import Stopwatch
from dsv2 import ExecutionEnvironment
from dsv2.runtime.frames import MAX_FRAME_RECORDS
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.watermark import Watermark
from examples.hot_topics import HotTopic, HotTopicDetector, LazyHotTopicDetector, PostingTimeExtractor, build
from examples.tweets import Tweet, TweetGenerator
from runtime_spark.query import StreamingJob

__all__ = ("main", "pipeline")

NAME = "hot_topics"
TARGET = 0.3
"""Of the plain loop's throughput, tweets generated in both."""

VARIANTS = {"document": HotTopicDetector, "lazy": LazyHotTopicDetector}
WINDOW = 5 * 60 * 1000
TWEETS = TweetGenerator(topics=1000, interval=1)
_CORES = 2
_HOTTEST = 15  # functions shown
_WARM_UP = 2  # micro-batches, in which workers start, code is compiled and the heaps fill up

SHORT = {"tweets": 20_000, "batches": 2, "threshold": 500}


@dataclass(frozen=True)
class Measured:
    """Times per so many tweets, and the number of hot events in all of them, warm-up included."""

    sample: Sample
    hot: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments``; returns the exit code."""
    options = _parse(arguments)
    variants = [options.variant] if options.variant else list(VARIANTS)
    plain = {variant: plain_loop(variant, options, ready=False) for variant in variants}
    ready = {variant: plain_loop(variant, options, ready=True) for variant in variants}
    with spark_session("hot topics benchmark") as spark:
        report = Report(NAME, "Hot topics: Spark against a plain loop", conditions(spark, NAME, arguments))
        measured = {variant: on_spark(spark, variant, options) for variant in variants}
    rows: list[tuple[str | int | float, ...]] = []
    for variant in variants:
        if options.parallelism == 1 and measured[variant].hot != plain[variant].hot:
            raise AssertionError(f"{variant}: {measured[variant].hot} hot events, {plain[variant].hot} expected")
        contestants = {
            "plain loop, tweets made in the loop": plain[variant],
            "plain loop, tweets made before": ready[variant],
            f"Spark, parallelism {options.parallelism}": measured[variant],
        }
        for contestant, result in contestants.items():
            rows.append((variant, contestant, *_numbers(result, options.tweets, measured[variant])))
    header = (
        "detector",
        "contestant",
        "tweets/s",
        "µs per tweet",
        "ms per batch",
        "spread",
        "Spark / it",
        "hot events",
    )
    report.table(f"Batches of {options.tweets:,} tweets, medians of {options.batches}", header, rows)
    for variant in variants:
        fraction = plain[variant].sample.median / measured[variant].sample.median
        report.at_least(f"{variant}: throughput as a part of the plain loop's", fraction, TARGET)
    if options.profile:
        for variant in variants:
            profile(report, variant, options, measured[variant].sample.median)
    report.publish(options.results)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--tweets", type=int, default=1_000_000, help="in a micro-batch (1,000,000)")
    parser.add_argument("--batches", type=int, default=7, help="that are measured, after two to warm up (7)")
    parser.add_argument("--parallelism", type=int, default=2, help="of source, extractor and detector (2)")
    parser.add_argument("--threshold", type=int, default=25_000, help="hot is what has more tweets (25,000)")
    parser.add_argument("--variant", choices=tuple(VARIANTS), help="one of the detectors (both)")
    parser.add_argument("--profile", action="store_true", help="also where the time goes per tweet")
    return parser.parse(arguments, SHORT)


def _numbers(result: Measured, tweets: int, spark: Measured) -> tuple[float | int | str, ...]:
    median = result.sample.median
    return (
        round(tweets / median),
        median / tweets * 1e6,
        round(median * 1000),
        result.sample.spread,
        median / spark.sample.median,
        result.hot,
    )


def plain_loop(variant: str, options: argparse.Namespace, *, ready: bool) -> Measured:
    """Both functions in a loop. ``ready``: the tweets of a batch are made before the clock runs."""
    hot: list[HotTopic] = []
    process = _connected(variant, options.threshold, hot.append)
    seconds, count = [], 0
    for batch in range(_WARM_UP + options.batches):
        tweets: Iterable[Tweet] = map(TWEETS, range(batch * options.tweets, (batch + 1) * options.tweets))
        if ready:
            tweets = list(tweets)
        gc.collect()  # so that no batch pays for the one before
        begin = time.perf_counter()
        for tweet in tweets:
            process(tweet)
        seconds.append(time.perf_counter() - begin)
        count += len(hot)
        hot.clear()
    return Measured(Sample.of(islice(seconds, _WARM_UP, None)), count)


def _connected(variant: str, threshold: int, report: Callable[[HotTopic], None]) -> Callable[[Tweet], None]:
    """An extractor that feeds a detector by calling it, without anything between them."""
    extractor: Any = PostingTimeExtractor()
    detector: Any = VARIANTS[variant](threshold, WINDOW)
    hot = Bare(collect=report)

    def detect(tweet: Tweet) -> None:
        detector.process_record(tweet, hot, ctx)

    def emit_watermark(watermark: Watermark) -> None:
        detector.on_watermark(watermark, hot, ctx)

    ctx, forward = _context(emit_watermark), Bare(collect=detect)

    def process(tweet: Tweet) -> None:
        extractor.process_record(tweet, forward, ctx)

    return process


def _context(emit_watermark: Callable[[Watermark], None]) -> Bare:
    """What the functions use of a context."""
    counter = Bare(inc=lambda: None)
    manager, group = Bare(emit_watermark=emit_watermark), Bare(counter=lambda name: counter)
    return Bare(non_partitioned_context=Bare(watermark_manager=manager), metric_group=group)


class Bare:
    """An object with the given attributes, and nothing else."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def on_spark(spark: SparkSession, variant: str, options: argparse.Namespace) -> Measured:
    """The pipeline as one streaming query."""
    counts: dict[int, int] = {}
    env = ExecutionEnvironment.get_instance(spark=spark)
    batches = _WARM_UP + options.batches
    pipeline(env, variant, options, batches, lambda records, batch_id: counts.update({batch_id: len(records)}))
    with checkpoint() as folder:
        job = env.execute_async(f"hot topics, {variant}", checkpoint_location=folder)
        assert isinstance(job, StreamingJob)
        job.result()
        return Measured(Sample.of(batch_seconds(job.query, _WARM_UP, options.batches)), sum(counts.values()))


def pipeline(
    env: ExecutionEnvironment,
    variant: str,
    options: argparse.Namespace,
    batches: int,
    write: Callable[[list[HotTopic], int], None],
) -> None:
    """Hot topics over ``batches`` micro-batches."""
    env.set_parallelism(options.parallelism)
    source = DataGeneratorSource(TWEETS, count=options.tweets * batches, records_per_batch=options.tweets)
    tweets = env.from_source(source, "tweets")
    hot = build(
        tweets,
        threshold=options.threshold,
        window=WINDOW,
        lazy=variant == "lazy",
        extractors=options.parallelism,
    )
    hot.to_sink(ForeachBatchSink(write)).with_uid("hot")


def profile(report: Report, variant: str, options: argparse.Namespace, spark_seconds: float) -> None:
    """Where the time of a micro-batch goes, per tweet and in microseconds of one core."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    pipeline(env, variant, options, 1, lambda records, batch_id: None)
    run = OutsideSpark(env.build_plan())
    for _ in range(_WARM_UP):
        run.run_batch(options.tweets)
    run.watches.clear()
    run.run_batch(options.tweets)
    alone = _functions_alone(variant, options.tweets, options.threshold)
    micros = 1e6 / options.tweets
    rows = [
        (phase, part, (seconds - alone.get((phase, part), 0)) * micros)
        for phase, watch in run.watches.items()
        for part, seconds in watch.seconds.items()
    ]
    rows += [(phase, "user function", seconds * micros) for (phase, _), seconds in alone.items()]
    total = spark_seconds * _CORES * micros
    python = sum(cost for *_, cost in rows)
    rows = [*sorted(rows), ("Spark", "the rest of both cores, idle times included", total - python)]
    shares = [(*row, f"{row[-1] / total:.1%}") for row in [*rows, ("all", "", total)]]
    report.table(f"{variant}: where the time goes, per tweet", ("phase", "part", "core µs", "share"), shares)

    profiler = cProfile.Profile()
    profiler.runcall(run.run_batch, options.tweets)
    hottest = sorted(profiler.getstats(), key=lambda entry: -entry.inlinetime)[:_HOTTEST]
    calls = [(_name_of(entry.code), entry.callcount, entry.inlinetime * micros) for entry in hottest]
    title = f"{variant}: functions by own time (under cProfile, which makes calls of Python functions look dearer)"
    report.table(title, ("function", "calls", "µs per tweet"), calls)


def _name_of(code: CodeType | str) -> str:
    if isinstance(code, str):
        return re.sub(r" at 0x\w+", "", code)
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def _functions_alone(variant: str, tweets: int, threshold: int) -> dict[tuple[str, str], float]:
    """Seconds of one micro-batch in the user functions themselves, by the phase and part that they are in."""
    watch = Stopwatch()
    extractor: Any = PostingTimeExtractor()
    detector: Any = VARIANTS[variant](threshold, WINDOW)
    passed: list[Tweet] = []
    watermarks: list[tuple[int, Watermark]] = []
    ctx = _context(lambda watermark: watermarks.append((len(passed), watermark)))
    forward, hot = Bare(collect=passed.append), Bare(collect=lambda event: None)
    for batch in range(_WARM_UP + 1):
        watch.seconds.clear()
        indices = range(batch * tweets, (batch + 1) * tweets)
        for begin in range(0, tweets, MAX_FRAME_RECORDS):
            piece = list(map(TWEETS, indices[begin : begin + MAX_FRAME_RECORDS]))
            with watch.part("level 1"):
                for tweet in piece:
                    extractor.process_record(tweet, forward, ctx)
            with watch.part("level 2"):
                start = 0
                for stop, watermark in watermarks:
                    for tweet in passed[start:stop]:
                        detector.process_record(tweet, hot, ctx)
                    detector.on_watermark(watermark, hot, ctx)
                    start = stop
                for tweet in passed[start:]:
                    detector.process_record(tweet, hot, ctx)
            passed.clear()
            watermarks.clear()
    return {(level, "process and route"): seconds for level, seconds in watch.seconds.items()}


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import hot_topics

    sys.exit(hot_topics.main())
