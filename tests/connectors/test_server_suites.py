"""Sources and sinks pass the suites for connectors, on real servers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest import SkipTest

import psycopg
import pytest

from components.kafka import PASSWORD, USER, KafkaBroker
from components.postgres import PostgresServer
from dsv2.connectors.kafka import KafkaSink, KafkaSource, values
from dsv2.connectors.postgres import PostgresSink, PostgresSource, RowChange
from dsv2.testing.connectors import AWKWARD_TEXTS, SinkTestSuite, SourceTestSuite
from tests.durations import ms
from tests.kafka_topics import Topics
from tests.replicated_tables import Table

HUSH = "hush/hush"
NUMBERS = itertools.count()
WITHOUT_NUL = tuple(text for text in AWKWARD_TEXTS if "\0" not in text)


def login(broker: KafkaBroker) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


class TestKafkaSource(SourceTestSuite[str]):
    secrets = (PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, kafka_broker: KafkaBroker, topics: Topics) -> None:
        self.broker, self.topics = kafka_broker, topics
        self.topic = topics.create(self.splits)

    def source(self, servers: str, retry_ms: int) -> KafkaSource[str]:
        decode = values(bytes.decode)
        options = login(self.broker)
        return KafkaSource(servers, topics=[self.topic], decode=decode, retry_timeout=ms(retry_ms), options=options)

    def create_source(self) -> KafkaSource[str]:
        return self.source(self.broker.secured_servers, 60_000)

    def create_unreachable_source(self) -> KafkaSource[str]:
        return self.source("127.0.0.1:1", 500)

    def add(self, split: int, texts: Sequence[str]) -> None:
        if split >= self.splits:
            self.topics.add_partitions(self.topic, split + 1)
        self.topics.send(self.topic, [text.encode() for text in texts], split)

    def add_undecodable(self, split: int) -> None:
        self.topics.send(self.topic, [b"\xff"], split)


class TestKafkaSink(SinkTestSuite[str]):
    secrets = (PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self, kafka_broker: KafkaBroker, topics: Topics) -> None:
        self.broker, self.topics = kafka_broker, topics
        self.topic = topics.create(2)

    def sink(self, servers: str, retry_ms: int) -> KafkaSink[str]:
        return KafkaSink(servers, self.topic, str.encode, retry_timeout=ms(retry_ms), options=login(self.broker))

    def create_sink(self) -> KafkaSink[str]:
        return self.sink(self.broker.secured_servers, 60_000)

    def create_unreachable_sink(self) -> KafkaSink[str]:
        return self.sink("127.0.0.1:1", 500)

    def create_unwritable_record(self) -> str:
        return "\udcff"

    def read(self) -> Iterable[str]:
        return [value.decode() for found in self.topics.committed(self.topic).values() for value in found]


class TestPostgresSource(SourceTestSuite[RowChange[str]]):
    awkward_texts = WITHOUT_NUL
    secrets = (HUSH,)
    splits = 1
    new_splits = False
    keeps_order = False  # the snapshot is read in ranges, by several readers

    @pytest.fixture(autouse=True)
    def prepare(self, new_table: Callable[[str], Table]) -> None:
        self.table = new_table("id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text")

    def source(self, conninfo: str, retry_ms: int) -> PostgresSource[str]:
        options = {"decode": text_of_row, "if_slot_exists": "replace", "retry_timeout": ms(retry_ms)}
        return self.table.source(conninfo=f"{conninfo} password={HUSH}", **options)

    def create_source(self) -> PostgresSource[str]:
        return self.source(self.table.conninfo, 60_000)

    def create_unreachable_source(self) -> PostgresSource[str]:
        return self.source("host=127.0.0.1 port=1", 300)

    def test_aligned_split_waits_for_the_slowest(self) -> None:
        raise SkipTest("The log has no event time until the snapshot was read, and so holds it back until it is idle.")

    def text_of(self, record: RowChange[str]) -> str:
        assert record.row is not None
        return record.row

    def add(self, split: int, texts: Sequence[str]) -> None:
        self._insert(texts)

    def add_undecodable(self, split: int) -> None:
        self._insert([None])

    def _insert(self, texts: Sequence[str | None]) -> None:
        with psycopg.connect(self.table.conninfo) as connection:
            insert = f"INSERT INTO {self.table.name} (text) VALUES (%s)".encode()
            connection.cursor().executemany(insert, [(text,) for text in texts])


def text_of_row(row: dict[str, Any]) -> str:
    if row["text"] is None:
        raise ValueError("there is no text")
    return str(row["text"])


class TestPostgresSink(SinkTestSuite[str]):
    awkward_texts = WITHOUT_NUL
    secrets = (HUSH,)

    @pytest.fixture(autouse=True)
    def prepare(self, postgres_server: PostgresServer) -> None:
        self.conninfo = postgres_server.conninfo
        self.table = f"texts_{next(NUMBERS)}"
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(f"CREATE TABLE {self.table} (text text)".encode())

    def sink(self, conninfo: str, retry_ms: int) -> PostgresSink[str]:
        conninfo = f"{conninfo} password={HUSH}"
        return PostgresSink(conninfo, self.table, ["text"], row=lambda text: [text], retry_timeout=ms(retry_ms))

    def create_sink(self) -> PostgresSink[str]:
        return self.sink(self.conninfo, 60_000)

    def create_unreachable_sink(self) -> PostgresSink[str]:
        return self.sink("host=127.0.0.1 port=1", 300)

    def create_unwritable_record(self) -> str:
        return "a\0b"

    def read(self) -> Iterable[str]:
        with psycopg.connect(self.conninfo) as connection:
            return [text for (text,) in connection.execute(f"SELECT text FROM {self.table}".encode())]
