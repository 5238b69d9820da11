"""Hot topics: the example of ``examples.hot_topics``, with more topics and more tweets.

There are 1,000 tweets per second, with posting times in whole seconds, a window of five minutes, and topics that follow
Zipf's law. So there is a watermark per 1,000 tweets, 300,000 posting times are held, a million tweets cover about a
quarter of an hour, and heaps fill and empty within a batch. The threshold is five eighths of the tweets of the first
topic in a window, which the first topic exceeds and the second does not. (The threshold of 100 tweets in FLIP-467 is
for two tweets per second.) A lower rate would not be fair: a frame of one channel would cover more than the window, so
the order in which two extractors are read would determine the hot topics.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate

from benchmarks.peers.protocol import Task
from examples.tweets import Tweet

__all__ = ("START", "WINDOW", "Tweets", "place_bits", "rank_table", "threshold")

START = 1_704_067_200_000
"""The posting time of the first tweet, in ms."""
WINDOW = 5 * 60 * 1000
"""The length of the window, in ms."""
_PLACES_PER_TOPIC = 4
_SCATTER = 0x9E3779B1  # odd, so that the permutation is complete


class Tweets:
    """Generates the tweet of an index. It is the same in every language, because only whole numbers are used."""

    def __init__(self, topics: int) -> None:
        self.__setstate__(topics)

    def __getstate__(self) -> int:
        return self.topics  # each process creates the tables once

    def __setstate__(self, topics: int) -> None:
        self.topics = topics
        self.table = _names(topics)
        self.shift = 32 - place_bits(topics)

    def __call__(self, index: int) -> Tweet:
        return Tweet(self.table[(index * 2_654_435_769 & 0xFFFF_FFFF) >> self.shift], START + index // 1000 * 1000)


def place_bits(topics: int) -> int:
    """The binary logarithm of the size of the table of topics."""
    return max(14, (topics * _PLACES_PER_TOPIC - 1).bit_length())


@cache
def rank_table(topics: int) -> list[int]:
    """A shuffled table of topic numbers, from 1 on, with frequencies that follow Zipf's law."""
    size = 1 << place_bits(topics)
    shares = _shares(topics)
    table, rank = [0] * size, 1
    for place in range(size):
        while shares[rank - 1] * size < (place + 0.5) * shares[-1]:
            rank += 1
        table[_mixed(place, size)] = rank
    return table


def _shares(topics: int) -> list[float]:
    """The cumulative frequencies of topics, relative to that of the first topic."""
    return list(accumulate(1 / rank for rank in range(1, topics + 1)))


def _mixed(place: int, size: int) -> int:
    """A permutation of the indices: multiply, fold the upper half onto the lower, multiply again."""
    mask, half = size - 1, size.bit_length() // 2
    product = place * _SCATTER & mask
    return (product ^ product >> half) * _SCATTER & mask


@cache
def _names(topics: int) -> list[str]:
    names = [f"topic-{rank}" for rank in range(topics + 1)]
    return [names[rank] for rank in rank_table(topics)]


def threshold(task: Task) -> int:
    """The threshold: a topic with more tweets in the window is hot."""
    return int(min(WINDOW, task.total) / _shares(task.keys)[-1] * 5 / 8)
