"""Queries of Nexmark on single records: plain functions, which dsv2 and Bytewax call."""

from __future__ import annotations

from typing import NamedTuple

from examples.nexmark.events import Auction, Bid, Person
from examples.nexmark.stateless import EuroBid, Price
from examples.nexmark.windows import HighestBid, NewSeller

__all__ = (
    "QUERIES",
    "WINDOW",
    "Bids",
    "bidder_of",
    "euros",
    "first_bid",
    "highest_of",
    "id_of",
    "is_chosen",
    "merged",
    "new_seller",
    "pair_of",
    "price_of",
    "seller_of",
    "time_of",
    "with_bid",
    "with_price",
)

QUERIES = ("q1", "q2", "q7", "q8", "q11", "q18")
WINDOW = 10_000
"""The size of windows, and the gap of sessions, in ms."""


def euros(bid: Bid) -> EuroBid:
    """Query 1: the bid in euros."""
    return EuroBid(bid.auction, bid.bidder, bid.price * 0.908, bid.time, bid.extra)


def is_chosen(bid: Bid) -> bool:
    """Query 2: whether the bid is for one of some auctions."""
    return bid.auction % 123 == 0


def price_of(bid: Bid) -> Price:
    """Query 2: the result."""
    return Price(bid.auction, bid.price)


def with_price(highest: list[Bid], bid: Bid) -> list[Bid]:
    """Query 7: the highest bids of a window, after another one."""
    if not highest or bid.price > highest[0].price:
        return [bid]
    if bid.price == highest[0].price:
        highest.append(bid)
    return highest


def highest_of(highest: list[Bid]) -> list[HighestBid]:
    """Query 7: the results of a window."""
    return [HighestBid(bid.auction, bid.bidder, bid.price, bid.time, bid.extra, bid.price) for bid in highest]


def id_of(person: Person) -> int:
    """Query 8: the key of a person."""
    return person.id


def seller_of(auction: Auction) -> int:
    """Query 8: the key of an auction."""
    return auction.seller


def new_seller(person: Person) -> NewSeller:
    """Query 8: the result for a person who sells."""
    return NewSeller(person.id, person.name, person.time // WINDOW * WINDOW)


class Bids(NamedTuple):
    """Query 11: a session of a bidder."""

    bids: int
    first: int
    last: int


def first_bid() -> Bids:
    """Query 11: a session without bids."""
    return Bids(0, 1 << 62, 0)


def with_bid(session: Bids, bid: Bid) -> Bids:
    """Query 11: a session after another bid."""
    return Bids(session.bids + 1, min(session.first, bid.time), max(session.last, bid.time))


def merged(one: Bids, other: Bids) -> Bids:
    """Query 11: two sessions that are one."""
    return Bids(one.bids + other.bids, min(one.first, other.first), max(one.last, other.last))


def bidder_of(bid: Bid) -> int:
    """Query 11: the key of a bid."""
    return bid.bidder


def pair_of(bid: Bid) -> tuple[int, int]:
    """Query 18: the key of a bid."""
    return bid.bidder, bid.auction


def time_of(event: Person | Auction | Bid) -> int:
    """The time of an event, in ms."""
    return event.time
