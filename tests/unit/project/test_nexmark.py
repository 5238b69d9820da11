"""The queries of Nexmark on the local runtime, compared with DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from components.kafka import KafkaBroker
from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.local import LocalRuntime
from dsv2.model import ChangeKind
from examples.nexmark import ranking, stateless, windows
from examples.nexmark.queries import STREAMS, UPDATES
from examples.nexmark.source import Nexmark, NexmarkStreams
from examples.nexmark.stored import NexmarkFiles, NexmarkTopics, write_files, write_topics
from tests.kafka_topics import Topics
from tests.oracles.nexmark import expected_rows

EVENTS, RATE = 20_000, 100
FEWER = 5_000  # for the query with most results


def results_of(query: Callable[[Nexmark], Any], splits: int, events: int = EVENTS) -> list[Any]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
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
    for *row, change in results_of(ranking.top_bids, splits=1):
        table[tuple(row)] += 1 if ChangeKind(change).adds else -1
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


@pytest.mark.parametrize("query", ["q3", "q5", "q18"])
def test_files_hold_the_events(query: str, tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    write_files(Nexmark(env, FEWER, events_per_second=RATE, events_per_batch=FEWER // 3), tmp_path)
    env.execute()
    assert_reads(lambda env: NexmarkFiles(env, tmp_path), query)


@pytest.mark.kafka
def test_topics_hold_the_events(kafka_broker: KafkaBroker) -> None:
    topics, servers = Topics(kafka_broker.bootstrap_servers), kafka_broker.bootstrap_servers
    for name in ("person", "auction", "bid"):
        topics.create(name=name)
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    write_topics(Nexmark(env, FEWER, events_per_second=RATE, events_per_batch=FEWER // 3), servers)
    env.execute()
    for query in ("q3", "q5", "q18"):
        assert_reads(lambda env: NexmarkTopics(env, servers), query)


def assert_reads(streams: Callable[[ExecutionEnvironment], NexmarkStreams], query: str) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
    env.set_parallelism(2)
    sink = CollectSink[Any]()
    build = UPDATES[query][0] if query in UPDATES else STREAMS[query]
    build(streams(env)).to_sink(sink)
    env.execute()
    key = UPDATES[query][1] if query in UPDATES else tuple
    rows = {key(record): tuple(record) for record in sink.results}
    assert Counter(rows.values()) == Counter(expected_rows(query, FEWER, RATE))
