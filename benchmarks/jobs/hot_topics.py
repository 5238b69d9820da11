"""Hot topics: the example of ``examples.hot_topics``, with more topics and more tweets.

1,000 tweets a second, posting times in whole seconds, five minutes of window, topics by Zipf's law: so a watermark
comes every 1,000 tweets, 300,000 posting times are held, a million tweets are a quarter of an hour, and heaps fill and
empty within a batch. What is hot has more than five eighths of the tweets that the first topic has in a window, which
the first topic passes and the second does not. The threshold of the document, 100 tweets, is for two tweets a second.
Slower tweets would not be fair play: a frame of one channel would cover more than the window, and which of two
extractors is read first would decide what is hot.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate

from benchmarks.peers.protocol import Task
from examples.tweets import Tweet

__all__ = ("START", "WINDOW", "Tweets", "place_bits", "rank_table", "threshold")

START = 1_704_067_200_000
"""Posting time of the first tweet, in ms."""
WINDOW = 5 * 60 * 1000
"""In ms."""
_PLACES_PER_TOPIC = 4
_SCATTER = 0x9E3779B1  # odd, so that every place is visited


class Tweets:
    """Tweet number ``index``, the same whenever it is asked for, and in every language: all of it is whole numbers."""

    def __init__(self, topics: int) -> None:
        self.__setstate__(topics)

    def __getstate__(self) -> int:
        return self.topics  # the tables are made anew where it arrives, once in a process

    def __setstate__(self, topics: int) -> None:
        self.topics = topics
        self.table = _names(topics)
        self.shift = 32 - place_bits(topics)

    def __call__(self, index: int) -> Tweet:
        return Tweet(self.table[(index * 2_654_435_769 & 0xFFFF_FFFF) >> self.shift], START + index // 1000 * 1000)


def place_bits(topics: int) -> int:
    """The table of topics has 2 to so many places."""
    return max(14, (topics * _PLACES_PER_TOPIC - 1).bit_length())


@cache
def rank_table(topics: int) -> list[int]:
    """Numbers of topics from 1 on, by Zipf's law (the second is half as frequent as the first), well shuffled."""
    size = 1 << place_bits(topics)
    shares = _shares(topics)
    table, rank = [0] * size, 1
    for place in range(size):
        while shares[rank - 1] * size < (place + 0.5) * shares[-1]:
            rank += 1
        table[_mixed(place, size)] = rank
    return table


def _shares(topics: int) -> list[float]:
    """Of the first so many topics together, in shares of the first."""
    return list(accumulate(1 / rank for rank in range(1, topics + 1)))


def _mixed(place: int, size: int) -> int:
    """A permutation of the places: multiply, fold the upper half onto the lower, multiply again."""
    mask, half = size - 1, size.bit_length() // 2
    product = place * _SCATTER & mask
    return (product ^ product >> half) * _SCATTER & mask


@cache
def _names(topics: int) -> list[str]:
    names = [f"topic-{rank}" for rank in range(topics + 1)]
    return [names[rank] for rank in rank_table(topics)]


def threshold(task: Task) -> int:
    """A topic with more tweets in the window is hot."""
    return int(min(WINDOW, task.total) / _shares(task.keys)[-1] * 5 / 8)
