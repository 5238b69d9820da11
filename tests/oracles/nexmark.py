"""The queries of Nexmark in SQL, which DuckDB runs over the same events."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from examples.nexmark.events import PER_ROUND, auctions, bids, people

_HOUR = "time // 3600000 % 24"
_DAY, _MINUTE = "strftime(make_timestamp(time * 1000), '%Y-%m-%d')", "strftime(make_timestamp(time * 1000), '%H:%M')"
_CHANNEL_ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
_WINNERS = """
    SELECT a.*, b.bidder, b.price, b.time AS bid_time, b.extra AS bid_extra
    FROM auction a JOIN bid b ON a.id = b.auction AND b.time BETWEEN a.time AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.time) = 1"""
_BIDS = """count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 10000 AND price < 1000000),
    count(*) FILTER (price >= 1000000)"""
_DISTINCT = ", ".join(
    f"""count(DISTINCT {field}), count(DISTINCT {field}) FILTER (price < 10000),
    count(DISTINCT {field}) FILTER (price >= 10000 AND price < 1000000),
    count(DISTINCT {field}) FILTER (price >= 1000000)"""
    for field in ("bidder", "auction")
)

QUERIES = {
    "q0": "SELECT * EXCLUDE number FROM bid",
    "q1": "SELECT auction, bidder, price * 0.908::DOUBLE, time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, avg(price) FROM ({_WINNERS}) GROUP BY category",
    "q5": """
        WITH counts AS (
            SELECT auction, start + 10000 AS until, count(*) AS bids
            FROM (SELECT auction, unnest(generate_series(time // 2000 * 2000 - 8000, time, 2000)) AS start FROM bid)
            GROUP BY ALL)
        SELECT *, max(bids) OVER (PARTITION BY until) AS greatest FROM counts QUALIFY bids = greatest""",
    "q6": f"""
        SELECT seller, expires, avg(price) OVER (PARTITION BY seller ORDER BY expires ROWS 9 PRECEDING)
        FROM ({_WINNERS})""",
    "q7": """
        SELECT auction, bidder, price, time, extra, max(price) OVER (PARTITION BY time // 10000) AS greatest
        FROM bid QUALIFY price = greatest""",
    "q8": """
        SELECT DISTINCT p.id, p.name, p.time // 10000 * 10000 FROM person p
        JOIN auction a ON p.id = a.seller AND p.time // 10000 = a.time // 10000""",
    "q9": _WINNERS,
    "q10": f"SELECT auction, bidder, price, time, extra, {_DAY}, {_MINUTE} FROM bid",
    "q11": """
        WITH marked AS (
            SELECT *, coalesce(time - lag(time) OVER (PARTITION BY bidder ORDER BY time) > 10000, true) AS first
            FROM bid),
        numbered AS (
            SELECT *, count(*) FILTER (first) OVER (PARTITION BY bidder ORDER BY time ROWS UNBOUNDED PRECEDING)
            AS session FROM marked)
        SELECT bidder, count(*), min(time), max(time) + 10000 FROM numbered GROUP BY bidder, session""",
    "q12": "SELECT bidder, count(*) FROM bid GROUP BY bidder",
    "q13": "SELECT auction, bidder, price, time, 'value ' || auction % 10000 FROM bid",
    "q14": f"""
        SELECT auction, bidder, 0.908::DOUBLE * price, CASE WHEN {_HOUR} BETWEEN 8 AND 18 THEN 'day'
            WHEN {_HOUR} <= 6 OR {_HOUR} >= 20 THEN 'night' ELSE 'other' END,
            time, extra, length(extra) - length(replace(extra, 'c', ''))
        FROM bid WHERE 0.908::DOUBLE * price > 1000000 AND 0.908::DOUBLE * price < 50000000""",
    "q15": f"SELECT {_DAY} AS day, {_BIDS}, {_DISTINCT} FROM bid GROUP BY day",
    "q16": f"SELECT channel, {_DAY} AS day, max({_MINUTE}), {_BIDS}, {_DISTINCT} FROM bid GROUP BY channel, day",
    "q17": f"""
        SELECT auction, {_DAY} AS day, {_BIDS}, min(price), max(price), avg(price), sum(price)
        FROM bid GROUP BY auction, day""",
    "q18": """
        SELECT * EXCLUDE number FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY time DESC, number DESC) = 1""",
    "q19": """
        SELECT * EXCLUDE number, row_number() OVER (PARTITION BY auction ORDER BY price DESC, number) AS rank
        FROM bid QUALIFY rank <= 10""",
    "q20": """
        SELECT auction, bidder, price, channel, url, b.time, b.extra, item, description, initial_bid, reserve, a.time,
            expires, seller, category, a.extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10""",
    "q21": f"""
        SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
            WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {_CHANNEL_ID} END
        FROM bid WHERE {_CHANNEL_ID} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
            split_part(url, '/', 6)
        FROM bid""",
    "q23": """
        SELECT bidder, price, channel, url, b.extra, name, email, credit_card, city, state, p.extra, item, description,
            initial_bid, reserve, a.time, expires, category, a.extra
        FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder""",
}


def expected_rows(query: str, events: int, events_per_second: int) -> list[tuple[Any, ...]]:
    """Return the rows of a query over the first ``events``."""
    rounds = np.arange(events // PER_ROUND)
    person, auction, bid = (generate(rounds, events_per_second) for generate in (people, auctions, bids))
    with duckdb.connect() as connection:
        for name, table in (("person", person), ("auction", auction), ("bid", _numbered(bid))):
            connection.register(name, table)
        return connection.sql(QUERIES[query]).fetchall()


def _numbered(table: pa.Table) -> pa.Table:
    return table.append_column("number", pa.array(np.arange(len(table))))
