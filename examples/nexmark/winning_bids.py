"""Queries about the highest bid of each auction: a process function with state and timers."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import NamedTuple

from dsv2 import Collector, NonKeyedPartitionStream, PartitionedContext, StateDeclaration, StateDeclarations
from dsv2.aggregates import Key, Mean
from dsv2.extension.event_time import EventTimeManager, TwoInputNonBroadcastEventTimeStreamProcessFunction
from examples.nexmark.events import Auction, Bid
from examples.nexmark.source import Nexmark

__all__ = ("mean_prices_of_categories", "mean_prices_of_sellers", "winning_bids")

_AUCTION = StateDeclarations.value_state("auction", Auction)
_BIDS = StateDeclarations.list_state("bids", Bid)


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


class FindWinner(TwoInputNonBroadcastEventTimeStreamProcessFunction[Auction, Bid, WinningBid]):
    """Waits until an auction has expired. Its bids may arrive before it, and in any order.

    The auction stays in the state, so that bids for it that come too late are not kept.
    """

    def uses_states(self) -> Collection[StateDeclaration]:
        return (_AUCTION, _BIDS)

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record_from_first_input(
        self, record: Auction, output: Collector[WinningBid], ctx: PartitionedContext[WinningBid]
    ) -> None:
        ctx.state_manager.get_state(_AUCTION).update(record)
        self.event_time.register_timer(record.expires)

    def process_record_from_second_input(
        self, record: Bid, output: Collector[WinningBid], ctx: PartitionedContext[WinningBid]
    ) -> None:
        auction = ctx.state_manager.get_state(_AUCTION).value()
        if auction is None or auction.time <= record.time <= auction.expires:
            ctx.state_manager.get_state(_BIDS).add(record)

    def on_event_timer(
        self, timestamp: int, output: Collector[WinningBid], ctx: PartitionedContext[WinningBid]
    ) -> None:
        auction = ctx.state_manager.get_state(_AUCTION).value()
        bids = ctx.state_manager.get_state(_BIDS)
        assert auction is not None
        valid = [bid for bid in bids.get() if auction.time <= bid.time <= auction.expires]
        if valid:
            bid = max(valid, key=lambda bid: (bid.price, -bid.time))
            output.collect(WinningBid(*auction, bid.bidder, bid.price, bid.time, bid.extra))
        bids.clear()


def winning_bids(nexmark: Nexmark) -> NonKeyedPartitionStream[WinningBid]:
    """Query 9: each auction with its highest bid, when it has expired."""
    bids = nexmark.bids.key_by(attrgetter("auction"))
    return nexmark.auctions.key_by(attrgetter("id")).connect_and_process(bids, FindWinner())


class CategoryPrice(NamedTuple):
    category: int
    price: float


def mean_prices_of_categories(nexmark: Nexmark) -> NonKeyedPartitionStream[CategoryPrice]:
    """Query 4: the mean winning price of each category so far."""
    by_category = winning_bids(nexmark).key_by(attrgetter("category"))
    return by_category.aggregate(CategoryPrice, category=Key(), price=Mean("price"))


class SellerPrice(NamedTuple):
    seller: int
    expires: int
    mean_price: float


def mean_prices_of_sellers(nexmark: Nexmark) -> NonKeyedPartitionStream[SellerPrice]:
    """Query 6: the mean winning price of the last ten auctions of each seller, by expiry."""
    by_seller = winning_bids(nexmark).key_by(attrgetter("seller"))
    return by_seller.over(rows=10).aggregate(SellerPrice, mean_price=Mean("price"))
