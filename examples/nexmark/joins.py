"""Queries with joins whose results are declared."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

import narwhals as nw

from dsv2 import NonKeyedPartitionStream
from dsv2.extension.join import JoinMode, Left, Right, join
from examples.nexmark.source import NexmarkStreams

__all__ = ("SideInput", "bids_of_sellers", "bids_with_auctions", "local_sellers", "with_side_input")

_CATEGORY = 10


class LocalSeller(NamedTuple):
    name: str
    city: str
    state: str
    auction: int


def local_sellers(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[LocalSeller]:
    """Query 3: the sellers of a category who live in three states."""
    auctions = nexmark.auctions.where(nw.col("category") == _CATEGORY).key_by(attrgetter("seller"))
    people = nexmark.people.where(nw.col("state").is_in(["OR", "ID", "CA"])).key_by(attrgetter("id"))
    return auctions.connect_and_process(people, join(LocalSeller, auction=Left("id")))


class SideInput(NamedTuple):
    key: int
    value: str


class KeyedBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    time: int
    key: int


class ValuedBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    time: int
    value: str


def with_side_input(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[ValuedBid]:
    """Query 13: bids with the current row of a table. They wait until the table has been read."""
    rows = nexmark.env.from_collection([SideInput(key, f"value {key}") for key in range(10_000)])
    bids = nexmark.bids.with_columns(KeyedBid, key=nw.col("auction") % 10_000).key_by(attrgetter("key"))
    return bids.connect_and_process(rows.key_by(attrgetter("key")), join(ValuedBid, JoinMode.temporal()))


class AuctionBid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    bid_time: int
    bid_extra: str
    item: str
    description: str
    initial_bid: int
    reserve: int
    auction_time: int
    expires: int
    seller: int
    category: int
    auction_extra: str


def bids_with_auctions(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[AuctionBid]:
    """Query 20: the bids for auctions of a category, with their auctions."""
    auctions = nexmark.auctions.where(nw.col("category") == _CATEGORY)
    return nexmark.bids.key_by(attrgetter("auction")).connect_and_process(
        auctions.key_by(attrgetter("id")),
        join(
            AuctionBid,
            bid_time=Left("time"),
            bid_extra=Left("extra"),
            auction_time=Right("time"),
            auction_extra=Right("extra"),
        ),
    )


class PersonBid(NamedTuple):
    bidder: int
    price: int
    channel: str
    url: str
    bid_extra: str
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    person_extra: str


class SellerBid(NamedTuple):
    bidder: int
    price: int
    channel: str
    url: str
    bid_extra: str
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    person_extra: str
    item: str
    description: str
    initial_bid: int
    reserve: int
    auction_time: int
    expires: int
    category: int
    auction_extra: str


def bids_of_sellers(nexmark: NexmarkStreams) -> NonKeyedPartitionStream[SellerBid]:
    """Query 23: the bids of persons who also sell, with each of their auctions."""
    people = nexmark.people.key_by(attrgetter("id"))
    bids = nexmark.bids.key_by(attrgetter("bidder"))
    of_people = bids.connect_and_process(people, join(PersonBid, bid_extra=Left("extra"), person_extra=Right("extra")))
    return of_people.key_by(attrgetter("bidder")).connect_and_process(
        nexmark.auctions.key_by(attrgetter("seller")),
        join(SellerBid, auction_time=Right("time"), auction_extra=Right("extra")),
    )
