"""Both functions in a loop, without any framework, on one core.

Modes: ``document`` (every watermark walks the heaps of all topics, as the document writes it) or else lazy (a topic
drops its old tweets when its next one arrives); ``ready`` (the tweets are made before the clock runs) or else they are
made in the loop.
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
    """An extractor that feeds a detector by calling it, without anything between them."""
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
    """The one that the mode asks for."""
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
