"""The queries of Nexmark by their names, but q10, which writes files."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from examples.nexmark import joins, ranking, reports, stateless, windows, winning_bids
from examples.nexmark.source import NexmarkStreams

STREAMS: dict[str, Callable[[NexmarkStreams], Any]] = {
    "q0": stateless.pass_through,
    "q1": stateless.euros,
    "q2": stateless.some_auctions,
    "q3": joins.local_sellers,
    "q5": windows.hot_auctions,
    "q6": winning_bids.mean_prices_of_sellers,
    "q7": windows.highest_bids,
    "q8": windows.active_new_sellers,
    "q9": winning_bids.winning_bids,
    "q11": windows.sessions,
    "q13": joins.with_side_input,
    "q14": stateless.daytime_bids,
    "q20": joins.bids_with_auctions,
    "q21": stateless.channel_ids,
    "q22": stateless.folders,
    "q23": joins.bids_of_sellers,
}
UPDATES: dict[str, tuple[Callable[[NexmarkStreams], Any], Callable[[Any], object]]] = {
    "q4": (winning_bids.mean_prices_of_categories, attrgetter("category")),
    "q15": (reports.daily_reports, attrgetter("day")),
    "q16": (reports.channel_reports, attrgetter("channel", "day")),
    "q17": (reports.auction_reports, attrgetter("auction", "day")),
    "q18": (ranking.last_bids, attrgetter("bidder", "auction")),
}
"""Queries whose records replace earlier ones with the same key."""

CHANGES: dict[str, Callable[[NexmarkStreams], Any]] = {"q19": ranking.top_bids}
"""Queries whose records are changes of a table."""
