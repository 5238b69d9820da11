"""Queries that choose bids by their order."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from dsv2 import NonKeyedPartitionStream
from examples.nexmark.events import Bid
from examples.nexmark.source import NexmarkStreams

__all__ = ("last_bids", "top_bids")


def last_bids(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[Bid]:
    """Query 18: the last bid of each bidder for each auction. A later one replaces it."""
    return nexmark.bids.key_by(attrgetter("bidder", "auction")).last()


class RankedBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    time: int
    extra: str
    rank: int
    change: str  # +I, -U, +U or -D


def top_bids(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[RankedBid]:
    """Query 19: the ten highest bids of each auction, as changes."""
    return nexmark.bids.key_by(attrgetter("auction")).top_n(10, RankedBid, by="price", rank="rank", change="change")
