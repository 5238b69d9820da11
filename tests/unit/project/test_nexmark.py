"""The queries of Nexmark on the local runtime, compared with DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.local import LocalRuntime
from examples.nexmark import joins, stateless, windows
from examples.nexmark.source import Nexmark
from tests.oracles.nexmark import expected_rows

EVENTS, RATE = 20_000, 100

STREAMS: dict[str, Callable[[Nexmark], Any]] = {
    "q0": stateless.pass_through,
    "q1": stateless.euros,
    "q2": stateless.some_auctions,
    "q3": joins.local_sellers,
    "q5": windows.hot_auctions,
    "q7": windows.highest_bids,
    "q8": windows.active_new_sellers,
    "q11": windows.sessions,
    "q13": joins.with_side_input,
    "q14": stateless.daytime_bids,
    "q20": joins.bids_with_auctions,
    "q21": stateless.channel_ids,
    "q22": stateless.folders,
    "q23": joins.bids_of_sellers,
}


def rows_of(query: Callable[[Nexmark], Any], splits: int) -> list[tuple[Any, ...]]:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.set_parallelism(2)
    sink = CollectSink[Any]()
    query(Nexmark(env, EVENTS, events_per_second=RATE, splits=splits, events_per_batch=6_000)).to_sink(sink)
    env.execute()
    return [tuple(record) for record in sink.results]


@pytest.mark.parametrize("query", STREAMS)
def test_rows_are_those_of_sql(query: str) -> None:
    expected = Counter(expected_rows(query, EVENTS, RATE))
    assert expected
    assert Counter(rows_of(STREAMS[query], splits=2)) == expected
