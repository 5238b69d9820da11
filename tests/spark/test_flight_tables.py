"""Real flights from Kafka, joined on Spark with PostgreSQL tables that are read and change at the same time."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from dsv2.jobs import JobProgress
from dsv2.jobs.handle import Trigger
from dsv2.sinks import ForeachBatchSink
from examples import flight_tables
from examples.console import format_table
from examples.flight_database import change_tables, departures, make_tables, send_departures
from examples.flight_tables import HEADER
from tests.oracles.flights import planes_and_weather
from tests.spark.programs import environment

FLIGHTS = 6_000


class Batches(defaultdict[int, list[Any]]):
    """The records of a stream, by micro-batch."""

    def __init__(self) -> None:
        super().__init__(list)

    def __call__(self, records: list[Any], batch_id: int) -> None:
        if records:
            self[batch_id] += records


class Found:
    """The results of one run of the job."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, conninfo: str, checkpoint: str) -> None:
        self.planes, self.weather, self.waiting, self.at_once = (Batches() for _ in range(4))
        env = environment(spark, 2)
        streams = flight_tables.join_flights(env, bootstrap_servers, conninfo, FLIGHTS)
        flight_tables.write_results(streams, conninfo)
        changes = change_tables(conninfo)

        def planes_came(rows: list[Any], batch_id: int) -> None:
            self.planes(rows, batch_id)
            next(changes, None)

        streams.planes.to_sink(ForeachBatchSink(planes_came)).with_uid("planes came")
        streams.weather.to_sink(ForeachBatchSink(self.weather)).with_uid("weather came")
        streams.waiting.to_sink(ForeachBatchSink(self.waiting)).with_uid("waiting joined")
        streams.at_once.to_sink(ForeachBatchSink(self.at_once)).with_uid("joined at once")
        result = env.execute("flights", checkpoint_location=checkpoint, trigger=Trigger.available_now())
        self.progress: JobProgress = result.progress
        assert next(changes, "no more") == "no more"
        self.report = flight_tables.report(conninfo)
        with psycopg.connect(conninfo) as connection:
            self.written = connection.execute("SELECT * FROM joined_waiting ORDER BY number").fetchall()

    def snapshot_batches(self, rows: Batches) -> list[int]:
        return [batch for batch, changes in rows.items() if any(change.kind == "snapshot" for change in changes)]


@pytest.fixture(scope="module")
def found(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Found]:
    make_tables(postgres_server.conninfo)
    flight_tables.make_results(postgres_server.conninfo)
    send_departures(kafka_broker.bootstrap_servers, FLIGHTS)
    checkpoint = tmp_path_factory.mktemp("flights") / "checkpoint"
    yield Found(spark, kafka_broker.bootstrap_servers, postgres_server.conninfo, str(checkpoint))
    flight_tables.let_go(postgres_server.conninfo)
    shutil.rmtree(checkpoint)


def numbers(batches: Batches) -> list[int]:
    return sorted(flight.number for flights in batches.values() for flight in flights)


def test_both_joins_have_each_flight_once(found: Found) -> None:
    assert numbers(found.waiting) == numbers(found.at_once) == list(range(FLIGHTS))
    assert found.written == sorted(flight for flights in found.waiting.values() for flight in flights)


def test_flights_wait_for_the_end_of_the_snapshots(found: Found) -> None:
    read = [*found.snapshot_batches(found.planes), *found.snapshot_batches(found.weather)]
    assert min(len(found.snapshot_batches(rows)) for rows in (found.planes, found.weather)) == 4
    assert min(found.waiting) > max(read)
    assert min(found.at_once) < min(found.waiting)
    assert len(found.waiting) > 1  # some arrive after the end of the snapshots


def test_flights_match_the_tables_at_the_start_or_later(found: Found) -> None:
    first = min(found.waiting)
    start, end = planes_and_weather()
    assert sum(start.seats[tail] != end.seats.get(tail) for tail in start.seats) > 100
    for batch, flights in found.waiting.items():
        for flight in flights:
            assert flight[:3] == departures()[flight.number]
            states = (start, end) if batch == first else (end,)
            assert flight.seats in [state.seats.get(flight.tail) for state in states]
            assert flight.observed in [state.observed[flight.origin] for state in states]


def test_without_waiting_flights_miss_existing_rows(found: Found) -> None:
    start, end = planes_and_weather()
    flights = [flight for flights in found.at_once.values() for flight in flights]
    planes = sum(flight.seats is None and flight.tail in start.seats.keys() & end.seats.keys() for flight in flights)
    weather = sum((flight.observed or 0) < start.observed[flight.origin] for flight in flights)
    assert planes > FLIGHTS // 10
    assert weather > FLIGHTS // 10
    waiting, at_once = found.report
    assert (waiting[1], waiting[3], waiting[5]) == (FLIGHTS, 0, 0)
    assert (at_once[1], at_once[3], at_once[5]) == (FLIGHTS, planes, weather)


def test_table_that_the_program_prints(found: Found) -> None:
    table = format_table(HEADER, found.report)
    assert table.splitlines()[0].split("  ")[0] == "joined"
    assert "waiting for the tables    6,000" in table


def test_no_flight_waits_at_the_end(found: Found) -> None:
    for join in ("planes, waiting", "weather, waiting"):
        assert found.progress.operators[join].counters["probe_records_waiting"] == 0
