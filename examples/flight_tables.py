"""Flights joined with their planes and the weather, from tables that are being read and changed at the same time.

Flights come from Kafka. Planes and weather are tables in PostgreSQL: the job reads a snapshot of them, in many
micro-batches, and then their changes. All flights are available from the beginning. A join that does not wait misses
many rows, because they have not been read yet. A processing-time temporal join buffers the flights until the snapshots
have been read, and then joins each flight with the latest rows.

The results go to PostgreSQL, where they are compared with the initial content of the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import psycopg

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from components.server import MissingComponentError
from dsv2 import (
    Collector,
    Dsv2Error,
    ExecutionEnvironment,
    ForeachBatchSink,
    JobStatus,
    NonKeyedPartitionStream,
    PartitionedContext,
    RuntimeContext,
    StateDeclaration,
    StateDeclarations,
    Trigger,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.connectors.kafka import KafkaSource, values
from dsv2.connectors.postgres import PostgresSink, PostgresSource, RowChange, drop_replication
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.views.terminal import signals_noted, watch
from examples.airport import Weather
from examples.console import format_table
from examples.flight_database import TOPIC, Departure, change_tables, departures, make_tables, send_departures
from examples.program import INTERRUPTED, number_of_subtasks
from examples.session import new_session

__all__ = (
    "HEADER",
    "AtOnce",
    "Departed",
    "Plane",
    "Streams",
    "join_flights",
    "let_go",
    "main",
    "make_results",
    "report",
    "write_results",
)

IN = TypeVar("IN")
OUT = TypeVar("OUT")
ROW = TypeVar("ROW")

_PLANES_PER_BATCH, _OBSERVATIONS_PER_BATCH = 850, 3_300
_BATCHES_OF_FLIGHTS = 6  # more than the tables need, so some flights arrive after the snapshots have been read
_SLOTS = {"planes": "flight_tables_planes", "weather": "flight_tables_weather"}
_RESULTS = {"waiting for the tables": "joined_waiting", "at once": "joined_at_once"}


class Plane(NamedTuple):
    """A row of ``planes``."""

    tail: str
    model: str
    seats: int


class Departed(NamedTuple):
    """A flight, the seats of its plane, and the time of the latest observation at its origin (ms since the epoch)."""

    number: int
    tail: str | None
    origin: str
    seats: int | None
    observed: int | None


class Streams(NamedTuple):
    """The streams of the tables, and the results of the two joins."""

    planes: NonKeyedPartitionStream[RowChange[Plane]]
    weather: NonKeyedPartitionStream[RowChange[Weather]]
    waiting: NonKeyedPartitionStream[Departed]
    at_once: NonKeyedPartitionStream[Departed]


Join: TypeAlias = TwoInputNonBroadcastStreamProcessFunction[IN, RowChange[ROW], Departed]


def join_flights(env: ExecutionEnvironment, bootstrap_servers: str, conninfo: str, flights: int) -> Streams:
    """Build the job without its sinks. ``flights`` is the number of flights."""
    kafka = KafkaSource(
        bootstrap_servers,
        topics=[TOPIC],
        decode=values(departure_of),
        records_per_batch=max(1, flights // _BATCHES_OF_FLIGHTS),
    )
    planes_table = PostgresSource(
        conninfo, "planes", slot_name=_SLOTS["planes"], decode=plane_of, records_per_batch=_PLANES_PER_BATCH
    )
    weather_table = PostgresSource(
        conninfo, "weather", slot_name=_SLOTS["weather"], decode=weather_of, records_per_batch=_OBSERVATIONS_PER_BATCH
    )
    flights_read = env.from_source(kafka, "flights").with_uid("flights")
    planes = env.from_source(planes_table, "planes").with_uid("planes")
    # With one reader, rows come in the order of the primary key, so the latest observation of an airport comes last.
    weather = env.from_source(weather_table, "weather").with_parallelism(1).with_uid("weather")
    waiting_for_planes = join(with_plane, JoinMode.temporal(), JoinType.LEFT, is_deletion=is_gone)
    waiting_for_weather = join(with_weather, JoinMode.temporal(), JoinType.LEFT)

    def joined(
        plane_join: Join[Departure, Plane], weather_join: Join[Departed, Weather], how: str
    ) -> NonKeyedPartitionStream[Departed]:
        have_planes = flights_read.key_by(tail).connect_and_process(planes.key_by(tail_of_row), plane_join)
        by_origin = have_planes.with_uid(f"planes, {how}").key_by(origin)
        return by_origin.connect_and_process(weather.key_by(origin_of_row), weather_join).with_uid(f"weather, {how}")

    return Streams(
        planes,
        weather,
        waiting=joined(waiting_for_planes, waiting_for_weather, "waiting"),
        at_once=joined(AtOnce(with_plane), AtOnce(with_weather), "at once"),
    )


def write_results(streams: Streams, conninfo: str) -> None:
    """Add a sink for the results of each join."""
    for stream, table in zip((streams.waiting, streams.at_once), _RESULTS.values(), strict=True):
        stream.to_sink(PostgresSink(conninfo, table, list(Departed._fields), key=["number"])).with_uid(table)


class AtOnce(TwoInputNonBroadcastStreamProcessFunction[IN, RowChange[Any], OUT], Generic[IN, OUT]):
    """A naive join: each flight is joined with the latest row that has arrived so far."""

    LATEST = StateDeclarations.value_state("latest", RowChange[Any])

    def __init__(self, function: Callable[[IN, RowChange[Any] | None, Collector[OUT], RuntimeContext], None]) -> None:
        self._function = function

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.LATEST]

    def process_record_from_first_input(self, record: IN, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        self._function(record, ctx.state_manager.get_state(self.LATEST).value(), output, ctx)

    def process_record_from_second_input(
        self, record: RowChange[Any], output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        ctx.state_manager.get_state(self.LATEST).update(record)


def with_plane(
    flight: Departure, change: RowChange[Plane] | None, output: Collector[Departed], ctx: RuntimeContext
) -> None:
    """Join a flight with its plane. Called for every flight."""
    plane = None if change is None else change.row
    output.collect(Departed(*flight, None if plane is None else plane.seats, None))


def with_weather(
    flight: Departed, change: RowChange[Weather] | None, output: Collector[Departed], ctx: RuntimeContext
) -> None:
    """Join a flight with the weather. Called for every flight."""
    number, tail, origin, seats, _ = flight
    weather = None if change is None else change.row
    output.collect(Departed(number, tail, origin, seats, None if weather is None else weather.hour))


def tail(flight: Departure) -> str:
    """The key of a flight for the join with planes."""
    return flight.tail or "unknown"


def tail_of_row(change: RowChange[Plane]) -> str:
    """The key of a plane."""
    found: str = change.key[0]
    return found


def origin(flight: Departed) -> str:
    """The key of a flight for the join with the weather."""
    return flight.origin


def origin_of_row(change: RowChange[Weather]) -> str:
    """The key of an observation."""
    found: str = change.key[0]
    return found


def is_gone(change: RowChange[Plane]) -> bool:
    """Return whether the plane was deleted."""
    return change.row is None


def departure_of(message: bytes) -> Departure:
    """Decode a message of ``TOPIC``."""
    return Departure(*json.loads(message))


def plane_of(row: dict[str, Any]) -> Plane:
    """Decode a row of ``planes``."""
    return Plane(**row)


def weather_of(row: dict[str, Any]) -> Weather:
    """Decode a row of ``weather``."""
    return Weather(**row)


HEADER = ("joined", "flights", "with a plane", "plane missed", "with weather", "weather missed")
_REPORT = """
SELECT count(*), count(seats), count(*) FILTER (WHERE seats IS NULL AND kept.tail IS NOT NULL),
    count(observed), count(*) FILTER (WHERE coalesce(observed, 0) < newest.hour)
FROM {}
LEFT JOIN (SELECT tail FROM planes_at_start JOIN planes USING (tail)) AS kept USING (tail)
JOIN (SELECT origin, max(hour) AS hour FROM weather_at_start GROUP BY origin) AS newest USING (origin)
"""


def make_results(conninfo: str) -> None:
    """Create empty tables for the results."""
    with psycopg.connect(conninfo) as connection:
        for table in _RESULTS.values():
            connection.execute(f"DROP TABLE IF EXISTS {table}".encode())
            columns = "number int PRIMARY KEY, tail text, origin text, seats int, observed bigint"
            connection.execute(f"CREATE TABLE {table} ({columns})".encode())


def report(conninfo: str) -> list[tuple[str | int, ...]]:
    """Return the rows of the report. A row is missed if it was in its table both at the start and at the end."""
    with psycopg.connect(conninfo) as connection:
        found = {name: connection.execute(_REPORT.format(table).encode()) for name, table in _RESULTS.items()}
        return [(name, *row) for name, rows in found.items() for row in rows]


def let_go(conninfo: str) -> None:
    """Drop the replication of the tables, for which the server would otherwise retain its log."""
    for table, slot in _SLOTS.items():
        drop_replication(conninfo, table, slot)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.flight_tables", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--flights", type=int, default=len(departures()), metavar="N", help="the first N flights of the year (all)")
    add("--parallelism", type=number_of_subtasks, default=2, metavar="N", help="subtasks of each function (default 2)")
    options = parser.parse_args(arguments)
    try:
        with servers() as (bootstrap_servers, conninfo):
            print("Filling the topic and the tables ...", file=sys.stderr, flush=True)
            make_tables(conninfo)
            make_results(conninfo)
            send_departures(bootstrap_servers, options.flights)
            status = run(bootstrap_servers, conninfo, options)
            rows = report(conninfo)
            let_go(conninfo)
    except (Dsv2Error, MissingComponentError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if status is JobStatus.STOPPED:
        return INTERRUPTED
    print("Flights joined with tables that were being read", "", format_table(HEADER, rows), sep="\n")
    return 0


@contextmanager
def servers() -> Iterator[tuple[str, str]]:
    """Start a broker and a database, and yield their addresses. Raises ``MissingComponentError``."""
    with ExitStack() as stack:
        kafka_folder, postgres_folder = (Path(stack.enter_context(TemporaryDirectory())) for _ in range(2))
        print("Starting Kafka and PostgreSQL ...", file=sys.stderr, flush=True)
        broker = KafkaBroker(kafka_folder)
        broker.start()
        stack.callback(broker.stop)
        server = PostgresServer(postgres_folder)
        server.start()
        stack.callback(server.stop)
        yield broker.bootstrap_servers, server.conninfo


def run(bootstrap_servers: str, conninfo: str, options: argparse.Namespace) -> JobStatus:
    """Run the job. The tables change a little with each micro-batch."""
    changes = change_tables(conninfo)
    with signals_noted() as signals, TemporaryDirectory() as checkpoint, new_session("flight_tables") as spark:
        env = ExecutionEnvironment.get_instance(spark=spark)
        env.set_parallelism(options.parallelism)
        streams = join_flights(env, bootstrap_servers, conninfo, options.flights)
        write_results(streams, conninfo)
        streams.planes.to_sink(ForeachBatchSink(lambda rows, batch: next(changes, None))).with_uid("meanwhile")
        job = env.execute_async("flight tables", checkpoint_location=checkpoint, trigger=Trigger.available_now())
        watch(job, signals=signals)
    return job.status


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import flight_tables

    sys.exit(flight_tables.main())
