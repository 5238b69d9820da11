"""Queries with many aggregates: filters and counts of distinct values."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import narwhals as nw

from dsv2 import NonKeyedPartitionStream
from dsv2.aggregates import Count, CountDistinct, Key, Max, Mean, Min, Part, Sum
from examples.nexmark.source import NexmarkStreams

__all__ = ("auction_reports", "channel_reports", "daily_reports")

_PRICE = nw.col("price")
_CHEAP, _USUAL, _DEAR = _PRICE < 10_000, (_PRICE >= 10_000) & (_PRICE < 1_000_000), _PRICE >= 1_000_000
_DAY = nw.col("time").cast(nw.Datetime("ms")).dt.to_string("%Y-%m-%d")
_MINUTE = nw.col("time").cast(nw.Datetime("ms")).dt.to_string("%H:%M")
_BIDS: dict[str, Part] = {
    "bids": Count(),
    "cheap_bids": Count(filter=_CHEAP),
    "usual_bids": Count(filter=_USUAL),
    "dear_bids": Count(filter=_DEAR),
}
_DISTINCT: dict[str, Part] = {
    "bidders": CountDistinct("bidder"),
    "cheap_bidders": CountDistinct("bidder", filter=_CHEAP),
    "usual_bidders": CountDistinct("bidder", filter=_USUAL),
    "dear_bidders": CountDistinct("bidder", filter=_DEAR),
    "auctions": CountDistinct("auction"),
    "cheap_auctions": CountDistinct("auction", filter=_CHEAP),
    "usual_auctions": CountDistinct("auction", filter=_USUAL),
    "dear_auctions": CountDistinct("auction", filter=_DEAR),
}


class DatedBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    day: str


class DailyReport(NamedTuple):
    day: str
    bids: int
    cheap_bids: int
    usual_bids: int
    dear_bids: int
    bidders: int
    cheap_bidders: int
    usual_bidders: int
    dear_bidders: int
    auctions: int
    cheap_auctions: int
    usual_auctions: int
    dear_auctions: int


def daily_reports(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[DailyReport]:
    """Query 15: the bids of each day so far."""
    by_day = _dated(nexmark).key_by(attrgetter("day")).mini_batch()
    return by_day.aggregate(DailyReport, day=Key(), **_BIDS, **_DISTINCT)


class DatedChannelBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    day: str
    minute: str


class ChannelReport(NamedTuple):
    channel: str
    day: str
    minute: str
    bids: int
    cheap_bids: int
    usual_bids: int
    dear_bids: int
    bidders: int
    cheap_bidders: int
    usual_bidders: int
    dear_bidders: int
    auctions: int
    cheap_auctions: int
    usual_auctions: int
    dear_auctions: int


def channel_reports(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[ChannelReport]:
    """Query 16: the bids of each channel and day so far, and their last minute."""
    dated = nexmark.bids.with_columns(DatedChannelBid, day=_DAY, minute=_MINUTE)
    by_channel = dated.key_by(attrgetter("channel", "day")).mini_batch()
    last = Max("minute")
    return by_channel.aggregate(ChannelReport, channel=Key(0), day=Key(1), minute=last, **_BIDS, **_DISTINCT)


class AuctionReport(NamedTuple):
    auction: int
    day: str
    bids: int
    cheap_bids: int
    usual_bids: int
    dear_bids: int
    least: int
    greatest: int
    mean: float
    total: int


def auction_reports(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[AuctionReport]:
    """Query 17: the prices of each auction and day so far."""
    return (
        _dated(nexmark)
        .key_by(attrgetter("auction", "day"))
        .mini_batch()
        .aggregate(
            AuctionReport,
            auction=Key(0),
            day=Key(1),
            least=Min("price"),
            greatest=Max("price"),
            mean=Mean("price"),
            total=Sum("price"),
            **_BIDS,
        )
    )


def _dated(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[DatedBid]:
    return nexmark.bids.with_columns(DatedBid, day=_DAY)
