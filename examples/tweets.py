"""What a tweet is, and a generator of them."""

from __future__ import annotations

import random
from typing import NamedTuple

__all__ = ("Tweet", "TweetGenerator")


class Tweet(NamedTuple):
    """Somebody wrote about ``topic`` at ``posting_time`` (milliseconds since 1970, UTC)."""

    topic: str
    posting_time: int


class TweetGenerator:
    """Tweet number ``index`` of an endless stream, the same whenever it is asked for.

    A tweet every ``interval`` milliseconds, posting times in whole seconds. The topics are drawn by Zipf's law (the
    second one is half as frequent as the first, the third a third). With the defaults the first one appears about 90
    times in five minutes, and now and then more than 100 times.
    """

    START = 1_704_067_200_000  # 2024-01-01 00:00 UTC
    _BITS = 14

    def __init__(self, topics: int = 1000, interval: int = 450) -> None:
        self.interval = interval
        weights = [1 / rank for rank in range(1, topics + 1)]
        drawn = random.Random(467).choices(range(1, topics + 1), weights, k=1 << self._BITS)
        self.table = [f"topic-{rank}" for rank in drawn]

    def __call__(self, index: int) -> Tweet:
        # Fibonacci hashing: visits the table evenly, in an order that comes again only after 2**32 tweets.
        place = (index * 2_654_435_769 & 0xFFFF_FFFF) >> (32 - self._BITS)
        return Tweet(self.table[place], self.START + index * self.interval // 1000 * 1000)
