"""Queries with windows: declared aggregates and joins."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import NamedTuple

import narwhals as nw

from dsv2 import NonKeyedPartitionStream
from dsv2.aggregates import Count, Key, Max, WindowEnd, WindowStart
from dsv2.extension.join import JoinMode, JoinType, Left, join
from dsv2.extension.window import TimeType, WindowStrategy
from examples.nexmark.source import NexmarkStreams

__all__ = ("active_new_sellers", "bids_by_the_clock", "highest_bids", "hot_auctions", "sessions")

_TEN_SECONDS = timedelta(seconds=10)
_TUMBLING = WindowStrategy.tumbling(_TEN_SECONDS)


class BidCount(NamedTuple):
    auction: int
    end: int
    bids: int


class GreatestCount(NamedTuple):
    end: int
    greatest: int


class HotAuction(NamedTuple):
    auction: int
    end: int
    bids: int
    greatest: int


def hot_auctions(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[HotAuction]:
    """Query 5: every two seconds the auctions with the most bids in the last ten."""
    slide = timedelta(seconds=2)
    windows = nexmark.bids.key_by(attrgetter("auction")).window(WindowStrategy.sliding(_TEN_SECONDS, slide))
    counts = windows.aggregate(BidCount, auction=Key(), end=WindowEnd(), bids=Count()).key_by(attrgetter("end"))
    # Counts have the timestamp of the end of their window, so a window of one slide has those of one end.
    one_end = WindowStrategy.tumbling(slide)
    greatest = counts.window(one_end).aggregate(GreatestCount, end=Key(), greatest=Max("bids"))
    joined = counts.connect_and_process(greatest.key_by(attrgetter("end")), join(HotAuction, JoinMode.window(one_end)))
    return joined.where(nw.col("bids") == nw.col("greatest"))


class PlacedBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    time: int
    extra: str
    window: int


class GreatestPrice(NamedTuple):
    window: int
    greatest: int


class HighestBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    time: int
    extra: str
    greatest: int


def highest_bids(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[HighestBid]:
    """Query 7: the bids with the highest price of each ten seconds."""
    placed = nexmark.bids.with_columns(PlacedBid, window=nw.col("time") // 10_000).key_by(attrgetter("window"))
    greatest = placed.window(_TUMBLING).aggregate(GreatestPrice, window=Key(), greatest=Max("price"))
    prices = greatest.key_by(attrgetter("window"))
    joined = placed.connect_and_process(prices, join(HighestBid, JoinMode.window(_TUMBLING)))
    return joined.where(nw.col("price") == nw.col("greatest"))


class NewSeller(NamedTuple):
    id: int
    name: str
    start: int


def active_new_sellers(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[NewSeller]:
    """Query 8: persons who opened an auction within the ten seconds in which they came."""
    return nexmark.people.key_by(attrgetter("id")).connect_and_process(
        nexmark.auctions.key_by(attrgetter("seller")),
        join(NewSeller, JoinMode.window(_TUMBLING), JoinType.SEMI, id=Left("id"), start=WindowStart()),
    )


class Session(NamedTuple):
    bidder: int
    bids: int
    start: int
    end: int


def sessions(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[Session]:
    """Query 11: the bids of each bidder until ten seconds without one."""
    return _of_bidders(nexmark, WindowStrategy.session(_TEN_SECONDS))


def bids_by_the_clock(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[Session]:
    """Query 12: the bids of each bidder in ten seconds of the wall clock."""
    return _of_bidders(nexmark, WindowStrategy.tumbling(_TEN_SECONDS, TimeType.PROCESSING))


def _of_bidders(nexmark: NexmarkStreams, strategy: WindowStrategy) -> NonKeyedPartitionStream[Session]:
    windows = nexmark.bids.key_by(attrgetter("bidder")).window(strategy)
    return windows.aggregate(Session, bidder=Key(), bids=Count(), start=WindowStart(), end=WindowEnd())
