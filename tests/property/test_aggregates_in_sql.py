"""Declared aggregates have the results of SQL: those of DuckDB for the same records."""

from __future__ import annotations

import math
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import duckdb
import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import (
    ApproxCountDistinct,
    ArgMax,
    ArgMin,
    Collect,
    Count,
    CountDistinct,
    Key,
    Max,
    Mean,
    Min,
    Part,
    StdDev,
    Sum,
    Variance,
    WindowStart,
)
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.testing import ManualClock
from tests.profiles import examples


class Bid(NamedTuple):
    """A record."""

    auction: int
    bidder: int
    price: int
    time: int  # ms
    channel: str | None
    rate: float | None


BIDS = st.lists(
    st.builds(
        Bid,
        st.integers(0, 2),
        st.integers(0, 6),
        st.integers(0, 30_000) | st.sampled_from([9_999, 10_000, 1_000_000]),
        st.integers(0, 40),
        st.sampled_from(["web", "app", "", "é", None]),
        st.none() | st.integers(-50, 50).map(lambda tenths: tenths / 10),
    ),
    min_size=1,
    max_size=40,
)
KEYS: dict[str, Any] = {"columns": attrgetter("auction"), "rows": lambda bid: bid.auction}


class Report(NamedTuple):
    """Aggregates of an auction in a window."""

    auction: int
    start: int
    bids: int
    cheap: int
    middle: int
    dear: int
    bidders: int
    cheap_bidders: int
    channels: int
    about: int
    best: int
    least: str | None
    rates: list[float] | None
    mean_of_dear: float | None
    variance: float | None
    deviation: float | None
    of_all: float | None


PARTS: dict[str, Part] = {
    "auction": Key(),
    "start": WindowStart(),
    "bids": Count(),
    "cheap": Count(filter=nw.col("price") < 10_000),
    "middle": Count(filter=(nw.col("price") >= 10_000) & (nw.col("price") < 1_000_000)),
    "dear": Count(filter=nw.col("price") >= 1_000_000),
    "bidders": CountDistinct("bidder"),
    "cheap_bidders": CountDistinct("bidder", filter=nw.col("price") < 10_000),
    "channels": CountDistinct("channel"),
    "about": ApproxCountDistinct("bidder"),
    "best": ArgMax("bidder", by="price"),
    "least": ArgMin("channel", by="rate"),
    "rates": Collect("rate"),
    "mean_of_dear": Mean("price", filter=nw.col("rate") > 1),
    "variance": Variance("rate"),
    "deviation": StdDev("rate"),
    "of_all": StdDev("price", population=True),
}
QUERY = """
    SELECT auction, time - time % 10 AS start, count(*), count(*) FILTER (price < 10000),
        count(*) FILTER (price >= 10000 AND price < 1000000), count(*) FILTER (price >= 1000000),
        count(DISTINCT bidder), count(DISTINCT bidder) FILTER (price < 10000), count(DISTINCT channel),
        count(DISTINCT bidder), arg_max(bidder, price ORDER BY place), arg_min(channel, rate ORDER BY place),
        list(rate ORDER BY place) FILTER (rate IS NOT NULL), avg(price) FILTER (rate > 1),
        var_samp(rate), stddev_samp(rate), stddev_pop(price)
    FROM bids GROUP BY ALL
"""


def in_sql(bids: list[Bid], query: str) -> list[tuple[Any, ...]]:
    schema = pa.schema(
        [(name, pa.int64()) for name in ("auction", "bidder", "price", "time")]
        + [("channel", pa.string()), ("rate", pa.float64()), ("place", pa.int64())]
    )
    rows = [{**bid._asdict(), "place": place} for place, bid in enumerate(bids)]
    with duckdb.connect() as connection:
        connection.register("bids", pa.Table.from_pylist(rows, schema))
        return connection.execute(query).fetchall()


def timed(bids: list[Bid], batch: int) -> tuple[ExecutionEnvironment, Any]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), checks=False))
    times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
    generator = times.with_max_out_of_order_time(timedelta(seconds=1)).build_as_process_function()
    return env, env.from_collection(bids).with_parallelism(1).process(generator).with_parallelism(1)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)
    return bool(first == second)


CHEAP, DEAR = nw.col("price") < 10_000, nw.col("price") >= 1_000_000
RANKS: dict[str, Part] = {
    "total_bids": Count(),
    "rank1_bids": Count(filter=CHEAP),
    "rank2_bids": Count(filter=(nw.col("price") >= 10_000) & (nw.col("price") < 1_000_000)),
    "rank3_bids": Count(filter=DEAR),
}
DISTINCT: dict[str, Part] = {
    "total_bidders": CountDistinct("bidder"),
    "rank1_bidders": CountDistinct("bidder", filter=CHEAP),
    "rank3_bidders": CountDistinct("bidder", filter=DEAR),
    "total_auctions": CountDistinct("auction"),
    "rank1_auctions": CountDistinct("auction", filter=CHEAP),
}
IN_SQL = """
    count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 10000 AND price < 1000000),
    count(*) FILTER (price >= 1000000)
"""
DISTINCT_IN_SQL = """
    count(DISTINCT bidder), count(DISTINCT bidder) FILTER (price < 10000),
    count(DISTINCT bidder) FILTER (price >= 1000000),
    count(DISTINCT auction), count(DISTINCT auction) FILTER (price < 10000)
"""


class BiddingStatistics(NamedTuple):
    """Nexmark, query 15. A day has 10 ms."""

    day: int
    total_bids: int
    rank1_bids: int
    rank2_bids: int
    rank3_bids: int
    total_bidders: int
    rank1_bidders: int
    rank3_bidders: int
    total_auctions: int
    rank1_auctions: int


class ChannelStatistics(NamedTuple):
    """Nexmark, query 16."""

    day: int
    total_bids: int
    rank1_bids: int
    rank2_bids: int
    rank3_bids: int
    total_bidders: int
    rank1_bidders: int
    rank3_bidders: int
    total_auctions: int
    rank1_auctions: int
    channel: str | None
    last: int


class AuctionStatistics(NamedTuple):
    """Nexmark, query 17."""

    day: int
    total_bids: int
    rank1_bids: int
    rank2_bids: int
    rank3_bids: int
    auction: int
    min_price: int
    max_price: int
    mean_price: float
    sum_price: int


OF_PRICES: dict[str, Part] = {
    "auction": Key(),
    "min_price": Min("price"),
    "max_price": Max("price"),
    "mean_price": Mean("price"),
    "sum_price": Sum("price"),
}
OF_CHANNEL: dict[str, Part] = {"channel": Key(), "last": Max("time")}
NEXMARK: dict[str, tuple[Any, Any, dict[str, Part], str]] = {
    "q15": (None, BiddingStatistics, {**RANKS, **DISTINCT}, f"{IN_SQL}, {DISTINCT_IN_SQL}"),
    "q16": (attrgetter("channel"), ChannelStatistics, {**RANKS, **DISTINCT, **OF_CHANNEL},
            f"{IN_SQL}, {DISTINCT_IN_SQL}, channel, max(time)"),
    "q17": (attrgetter("auction"), AuctionStatistics, {**RANKS, **OF_PRICES},
            f"{IN_SQL}, auction, min(price), max(price), avg(price), sum(price)"),
}  # fmt: skip


@pytest.mark.parametrize("query", NEXMARK)
@examples(10)
@given(BIDS)
def test_statistics_of_nexmark(query: str, bids: list[Bid]) -> None:
    bids = [bid for bid in bids if bid.channel is not None]
    key, kind, parts, columns = NEXMARK[query]
    env, stream = timed(bids, 100)
    sink = CollectSink[Any]()
    grouped = stream.global_() if key is None else stream.key_by(key)
    days = grouped.window(WindowStrategy.tumbling(timedelta(milliseconds=10)))
    days.aggregate(kind, Bid, day=WindowStart(), **parts).to_sink(sink)
    env.execute(query)
    by_day = "GROUP BY day" if key is None else f"GROUP BY day, {'channel' if query == 'q16' else 'auction'}"
    expected = sorted(in_sql(bids, f"SELECT time - time % 10 AS day, {columns} FROM bids {by_day}"))
    assert list(map(tuple, sorted(sink.results))) == expected


@pytest.mark.parametrize("form", KEYS)
@examples(15)
@given(BIDS, st.sampled_from([3, 100]))
def test_aggregates_of_windows(form: str, bids: list[Bid], batch: int) -> None:
    env, stream = timed(bids, batch)
    sink = CollectSink[Report]()
    windows = stream.key_by(KEYS[form]).window(WindowStrategy.tumbling(timedelta(milliseconds=10)))
    windows.aggregate(Report, Bid, **PARTS).with_parallelism(2).to_sink(sink)
    env.execute("report")
    expected = sorted(in_sql(bids, QUERY), key=lambda row: row[:2])
    found = sorted(sink.results, key=lambda row: row[:2])
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert all(map(same, one, other)), (one, other)
