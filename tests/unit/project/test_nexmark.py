"""The queries of Nexmark on the local runtime, compared with DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.local import LocalRuntime
from examples.nexmark import joins, ranking, reports, stateless, windows, winning_bids
from examples.nexmark.source import Nexmark
from tests.oracles.nexmark import expected_rows

EVENTS, RATE = 20_000, 100
FEWER = 5_000  # for the query with most results

STREAMS: dict[str, Callable[[Nexmark], Any]] = {
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
UPDATES: dict[str, tuple[Callable[[Nexmark], Any], Callable[[Any], object]]] = {
    "q4": (winning_bids.mean_prices_of_categories, attrgetter("category")),
    "q15": (reports.daily_reports, attrgetter("day")),
    "q16": (reports.channel_reports, attrgetter("channel", "day")),
    "q17": (reports.auction_reports, attrgetter("auction", "day")),
    "q18": (ranking.last_bids, attrgetter("bidder", "auction")),
}
"""Queries whose records replace earlier ones with the same key."""


def results_of(query: Callable[[Nexmark], Any], splits: int, events: int = EVENTS) -> list[Any]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(fast=True))
    env.set_parallelism(2)
    sink = CollectSink[Any]()
    query(Nexmark(env, events, events_per_second=RATE, splits=splits, events_per_batch=events // 3)).to_sink(sink)
    env.execute()
    return sink.results


@pytest.mark.parametrize("query", STREAMS)
def test_rows_are_those_of_sql(query: str) -> None:
    events = FEWER if query == "q23" else EVENTS
    expected = Counter(expected_rows(query, events, RATE))
    assert expected
    assert Counter(map(tuple, results_of(STREAMS[query], splits=2, events=events))) == expected


@pytest.mark.parametrize("query", UPDATES)
def test_last_rows_are_those_of_sql(query: str) -> None:
    build, key = UPDATES[query]
    rows = {key(record): tuple(record) for record in results_of(build, splits=1)}  # one split keeps the order of bids
    assert Counter(rows.values()) == Counter(expected_rows(query, EVENTS, RATE))


def test_changes_make_the_table_of_sql() -> None:
    table = Counter[tuple[Any, ...]]()
    for change in results_of(ranking.top_bids, splits=1):
        table[tuple(change.record)] += 1 if change.kind.adds else -1
    assert +table == Counter(expected_rows("q19", EVENTS, RATE))
    assert min(table.values()) == 0


def test_windows_by_the_clock_have_all_bids() -> None:
    bids = Counter[int]()
    for session in results_of(windows.bids_by_the_clock, splits=2):
        assert session.end - session.start == 10_000
        assert session.start % 10_000 == 0
        bids[session.bidder] += session.bids
    assert Counter(bids.items()) == Counter(expected_rows("q12", EVENTS, RATE))


def test_files_have_the_rows_of_their_minutes(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    stateless.files_by_minute(Nexmark(env, EVENTS, events_per_second=RATE), tmp_path / "bids")
    env.execute()
    options = "header=false, all_varchar=true, hive_types_autocast=false"
    rows = duckdb.execute(f"FROM read_csv('{tmp_path}/bids/day=*/minute=*/*.csv', {options})").fetchall()
    expected = expected_rows("q10", EVENTS, RATE)
    assert Counter(rows) == Counter(tuple(map(str, row)) for row in expected)
