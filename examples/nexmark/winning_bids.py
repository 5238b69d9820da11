"""Queries about the highest bid of each auction."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import NamedTuple

from dsv2 import NonKeyedPartitionStream
from dsv2.aggregates import Key, Mean
from dsv2.extension.join import JoinMode, Left, Right, join
from examples.nexmark.source import NexmarkStreams

__all__ = ("mean_prices_of_categories", "mean_prices_of_sellers", "winning_bids")


class WinningBid(NamedTuple):
    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    time: int
    expires: int
    seller: int
    category: int
    extra: str
    bidder: int
    price: int
    bid_time: int
    bid_extra: str


def winning_bids(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[WinningBid]:
    """Query 9: each auction with its highest bid, of equal ones the earliest, when it has expired."""
    bids_in_time = join(
        WinningBid,
        JoinMode.interval(timedelta(0), "expires"),
        time=Left("time"),
        extra=Left("extra"),
        bid_time=Right("time"),
        bid_extra=Right("extra"),
    )
    bids = nexmark.bids.key_by(attrgetter("auction"))
    by_auction = (
        nexmark.auctions.key_by(attrgetter("id")).connect_and_process(bids, bids_in_time).key_by(attrgetter("id"))
    )
    return by_auction.first(["price", "bid_time"], descending=[True, False], until="expires")


class CategoryPrice(NamedTuple):
    category: int
    price: float


def mean_prices_of_categories(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[CategoryPrice]:
    """Query 4: the mean winning price of each category so far."""
    by_category = winning_bids(nexmark).key_by(attrgetter("category"))
    return by_category.mini_batch().aggregate(CategoryPrice, category=Key(), price=Mean("price"))


class SellerPrice(NamedTuple):
    seller: int
    expires: int
    mean_price: float


def mean_prices_of_sellers(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[SellerPrice]:
    """Query 6: the mean winning price of the last ten auctions of each seller, by expiry."""
    by_seller = winning_bids(nexmark).key_by(attrgetter("seller"))
    return by_seller.over(rows=10).aggregate(SellerPrice, mean_price=Mean("price"))
