"""Shared fixtures of connector tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from dsv2.connectors.kafka import broker
from tests.durations import LONG
from tests.kafka_topics import Topics
from tests.replicated_tables import Table


@pytest.fixture(scope="session")
def topics(kafka_broker: KafkaBroker) -> Topics:
    return Topics(kafka_broker.bootstrap_servers)


@pytest.fixture
def patient_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow broker answers the first request, and a commit before the connection is closed."""
    monkeypatch.setattr(broker, "_FIRST_ANSWER_SECONDS", 30.0)  # less than the timeout of transactions
    monkeypatch.setattr(broker, "_CLOSE_TIMEOUT_SECONDS", LONG)


@pytest.fixture
def new_table(postgres_server: PostgresServer) -> Iterator[Callable[[str], Table]]:
    """Create tables with the given columns. Their replication is dropped after the test."""
    made = []

    def make(columns: str) -> Table:
        made.append(Table(postgres_server.conninfo, columns))
        return made[-1]

    yield make
    for table in made:
        table.drop_replication_objects()


@pytest.fixture
def table(new_table: Callable[[str], Table]) -> Table:
    """A table with the rows 1 to 10."""
    table = new_table("id int PRIMARY KEY, name text")
    table.execute("INSERT INTO {} SELECT n, 'row ' || n FROM generate_series(1, 10) n")
    return table


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The time zone of the process."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()
