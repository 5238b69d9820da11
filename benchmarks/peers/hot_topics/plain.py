"""A plain loop with both functions, without any framework, on one core.

Modes: ``document`` (every watermark visits the heaps of all topics, as in FLIP-467), otherwise lazy (the old tweets of
a topic are evicted when its next tweet arrives); ``ready`` (tweets are created before the measurement), otherwise in
the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.jobs.hot_topics import WINDOW, Tweets, threshold
from benchmarks.peers.loop import Bare, timed
from benchmarks.peers.protocol import Outcome, Task
from dsv2.watermark import Watermark
from examples.hot_topics import HotTopic, HotTopicDetector, LazyHotTopicDetector, PostingTimeExtractor
from examples.tweets import Tweet

__all__ = ("detector", "measure")


def measure(task: Task) -> Outcome:
    """Run an extractor that calls a detector directly."""
    hot: list[HotTopic] = []
    number = total = 0
    process = _connected(task, hot.append)

    def run(tweets: Iterable[Tweet]) -> None:
        nonlocal number, total
        for tweet in tweets:
            process(tweet)
        number += len(hot)
        total += sum(event.count for event in hot)
        hot.clear()

    seconds = timed(task, Tweets(task.keys), run, ready="ready" in task.mode)
    return Outcome(seconds, number, total)


def detector(task: Task) -> HotTopicDetector | LazyHotTopicDetector:
    """Return the detector of the mode."""
    return (HotTopicDetector if "document" in task.mode else LazyHotTopicDetector)(threshold(task), WINDOW)


def _connected(task: Task, report: Callable[[HotTopic], None]) -> Callable[[Tweet], None]:
    extractor: Any = PostingTimeExtractor()
    detecting: Any = detector(task)
    hot = Bare(collect=report)

    def detect(tweet: Tweet) -> None:
        detecting.process_record(tweet, hot, ctx)

    def emit_watermark(watermark: Watermark) -> None:
        detecting.on_watermark(watermark, hot, ctx)

    counter = Bare(inc=lambda: None)
    manager, group = Bare(emit_watermark=emit_watermark), Bare(counter=lambda name: counter)
    ctx = Bare(non_partitioned_context=Bare(watermark_manager=manager), metric_group=group)
    forward = Bare(collect=detect)

    def process(tweet: Tweet) -> None:
        extractor.process_record(tweet, forward, ctx)

    return process
