"""Queries that choose bids by their order."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import NamedTuple

from dsv2 import (
    Collector,
    NonKeyedPartitionStream,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StateDeclaration,
    StateDeclarations,
)
from examples.nexmark.events import Bid
from examples.nexmark.source import Nexmark

__all__ = ("last_bids", "top_bids")

_TOP = StateDeclarations.list_state("top", Bid)
_PLACES = 10


def last_bids(nexmark: Nexmark) -> NonKeyedPartitionStream[Bid]:
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


class TopBids(OneInputStreamProcessFunction[Bid, RankedBid]):
    """Emits the places that a bid changes. A later record with the auction and the rank replaces an earlier one."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return (_TOP,)

    def process_record(self, record: Bid, output: Collector[RankedBid], ctx: PartitionedContext[RankedBid]) -> None:
        top = ctx.state_manager.get_state(_TOP)
        before = list(top.get())
        bids = sorted([*before, record], key=attrgetter("price"), reverse=True)[
            :_PLACES
        ]  # keeps the order of equal bids
        top.update(bids)
        for rank, bid in enumerate(bids, 1):
            if rank > len(before) or bid is not before[rank - 1]:
                output.collect(RankedBid(*bid, rank))


def top_bids(nexmark: Nexmark) -> NonKeyedPartitionStream[RankedBid]:
    """Query 19: the ten highest bids of each auction."""
    return nexmark.bids.key_by(attrgetter("auction")).process(TopBids())
