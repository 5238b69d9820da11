"""Queries that look at one bid at a time: expressions on columns."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import narwhals as nw

from dsv2 import FileSink, NonKeyedPartitionStream
from examples.nexmark.events import Bid
from examples.nexmark.source import NexmarkStreams

__all__ = ("channel_ids", "daytime_bids", "euros", "files_by_minute", "folders", "pass_through", "some_auctions")

_DOLLARS_TO_EUROS = 0.908
_CHANNEL_ID = "(&|^)channel_id=([^&]*)"


def pass_through(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[Bid]:
    """Query 0: all bids."""
    return nexmark.bids


class EuroBid(NamedTuple):
    auction: int
    bidder: int
    price: float
    time: int
    extra: str


def euros(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[EuroBid]:
    """Query 1: prices in euros."""
    return nexmark.bids.with_columns(EuroBid, price=nw.col("price") * _DOLLARS_TO_EUROS)


class Price(NamedTuple):
    auction: int
    price: int


def some_auctions(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[Price]:
    """Query 2: the bids for some auctions."""
    return nexmark.bids.where(nw.col("auction") % 123 == 0).with_columns(Price)


class BidOfMinute(NamedTuple):
    auction: int
    bidder: int
    price: int
    time: int
    extra: str
    day: str
    minute: str


def files_by_minute(nexmark: NexmarkStreams, folder: Path) -> None:
    """Query 10: the bids in files, a folder for each minute."""
    time = nw.col("time").cast(nw.Datetime("ms"))
    day, minute = time.dt.to_string("%Y-%m-%d"), time.dt.to_string("%H:%M")
    sink = FileSink[BidOfMinute](folder, schema=BidOfMinute, format="csv", partition_by=["day", "minute"])
    nexmark.bids.with_columns(BidOfMinute, day=day, minute=minute).to_sink(sink)


class TimedBid(NamedTuple):
    auction: int
    bidder: int
    price: float
    time_of_day: str
    time: int
    extra: str
    letters: int


def daytime_bids(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[TimedBid]:
    """Query 14: bids of some prices, with the time of day and the number of letters c in ``extra``."""
    price = nw.col("price") * _DOLLARS_TO_EUROS
    hour = nw.col("time").cast(nw.Datetime("ms")).dt.hour()
    by_day, by_night = (hour >= 8) & (hour <= 18), (hour <= 6) | (hour >= 20)
    return nexmark.bids.where((price > 1_000_000) & (price < 50_000_000)).with_columns(
        TimedBid,
        price=price,
        time_of_day=nw.when(by_day)
        .then(nw.lit("day"))
        .otherwise(nw.when(by_night).then(nw.lit("night")).otherwise(nw.lit("other"))),
        letters=nw.col("extra").str.replace_all("[^c]", "").str.len_chars(),
    )


class BidOfChannel(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    channel_id: str


def channel_ids(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[BidOfChannel]:
    """Query 21: the number of the channel, by its name or from the address."""
    name, url = nw.col("channel").str.to_lowercase(), nw.col("url")
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    in_url = url.str.replace_all(f"^.*{_CHANNEL_ID}.*$", r"\2")
    by_name = name.replace_strict(known, default=in_url, return_dtype=nw.String)
    with_id = nexmark.bids.where(name.is_in(list(known)) | url.str.contains(_CHANNEL_ID))
    return with_id.with_columns(BidOfChannel, channel_id=by_name)


class Folders(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    folder1: str
    folder2: str
    folder3: str


def folders(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[Folders]:
    """Query 22: the first folders of the address."""
    parts = nw.col("url").str.split("/").list
    return nexmark.bids.with_columns(Folders, folder1=parts.get(3), folder2=parts.get(4), folder3=parts.get(5))
