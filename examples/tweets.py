"""Tweets, and a generator of tweets."""

from __future__ import annotations

import random
from typing import NamedTuple

__all__ = ("Tweet", "TweetGenerator")


class Tweet(NamedTuple):
    """A tweet about ``topic``, posted at ``posting_time`` (ms since the epoch)."""

    topic: str
    posting_time: int


class TweetGenerator:
    """Generates tweets by their index. The tweet of an index is always the same.

    The topics follow Zipf's law: the second topic is half as frequent as the first one. With the defaults, the first
    topic appears about 90 times in five minutes, and occasionally more than 100 times.

    Args:
        topics: The number of topics.
        interval: The time between tweets, in ms. Posting times are rounded down to seconds.
    """

    START = 1_704_067_200_000  # 2024-01-01 00:00 UTC
    _BITS = 14

    def __init__(self, topics: int = 1000, interval: int = 450) -> None:
        self.interval = interval
        ranks = range(1, topics + 1)
        names, weights = [f"topic-{rank}" for rank in ranks], [1 / rank for rank in ranks]
        self.table = random.Random(467).choices(names, weights, k=1 << self._BITS)

    def __call__(self, index: int) -> Tweet:
        # Fibonacci hashing visits the table evenly, in an order that repeats only after 2**32 tweets.
        slot = (index * 2_654_435_769 & 0xFFFF_FFFF) >> (32 - self._BITS)
        return Tweet(self.table[slot], self.START + index * self.interval // 1000 * 1000)
