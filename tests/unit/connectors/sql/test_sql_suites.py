"""The connectors of SQL pass the test suites for connectors, on SQLite and DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from dsv2.connectors.sql import SqlSink, SqlSource
from dsv2.sinks import Sink
from dsv2.sources import Source
from dsv2.testing.connectors import SinkTestSuite, SourceTestSuite
from tests.unit.connectors.sql.databases import TestDatabase

pytest.importorskip("duckdb_engine")

PASSWORD = "s3cret/pass"
QUOTED = quote(PASSWORD, safe="")
SECOND = timedelta(seconds=1)


class Text(NamedTuple):
    text: str


class TestSinkToSQLite(SinkTestSuite[Text]):
    dialect = "sqlite"
    driver = "postgresql+psycopg"
    secrets = (PASSWORD,)

    @pytest.fixture(autouse=True)
    def prepare(self) -> None:
        self.create_table(TestDatabase.of_file(self.dialect))

    def create_table(self, database: TestDatabase, kind: str = "VARCHAR") -> None:
        self.database = database
        self.database.run(f"CREATE TABLE texts (text {kind} NOT NULL CHECK (text <> 'unwritable'))")

    def create_sink(self) -> Sink[Text]:
        return SqlSink(self.database.url, "texts", ["text"])

    def read(self) -> Iterable[str]:
        return [text for (text,) in self.database.rows("SELECT text FROM texts")]

    def record_of(self, text: str) -> Text:
        return Text(text)

    def create_unwritable_record(self) -> Text:
        return Text("unwritable")

    def create_unreachable_sink(self) -> Sink[Text]:
        return SqlSink(f"{self.driver}://user:{QUOTED}@127.0.0.1:1/none", "texts", ["text"])


class TestSinkToDuckDB(TestSinkToSQLite):
    dialect = "duckdb"


class TestSourceFromSQLite(SourceTestSuite[Text]):
    dialect = "sqlite"
    driver = "postgresql+psycopg"
    secrets = (PASSWORD,)
    splits = 1

    @pytest.fixture(autouse=True)
    def prepare(self) -> None:
        self.create_table(TestDatabase.of_file(self.dialect))

    def create_table(self, database: TestDatabase, kind: str = "VARCHAR") -> None:
        self.database = database
        self.database.run(f"CREATE TABLE texts (id BIGINT PRIMARY KEY, text {kind})")
        self.added = 0

    def create_source(self) -> Source[Text, Any, Any]:
        return SqlSource(self.database.url, "texts", ["text"], as_text, by="id", discovery_interval=SECOND)

    def add(self, split: int, texts: Sequence[str]) -> None:
        self._insert(texts)

    def add_undecodable(self, split: int) -> None:
        self._insert([None])

    def text_of(self, record: Text) -> str:
        return record.text

    def create_unreachable_source(self) -> Source[Text, Any, Any]:
        return SqlSource(f"{self.driver}://user:{QUOTED}@127.0.0.1:1/none", "texts", ["text"], as_text, by="id")

    def _insert(self, texts: Sequence[str | None]) -> None:
        rows = [{"id": self.added + number, "text": text} for number, text in enumerate(texts)]
        self.added += 2 * len(rows)
        self.database.run("INSERT INTO texts VALUES (:id, :text)", *rows)


class TestSourceFromDuckDB(TestSourceFromSQLite):
    dialect = "duckdb"


def as_text(row: dict[str, Any]) -> Text:
    if row["text"] is None:
        raise ValueError("there is no text")
    return Text(**row)
