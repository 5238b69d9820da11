"""Sources and sinks of lakehouse tables pass the suites for connectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from dsv2.model import RecordBatch
from dsv2.testing.connectors import SinkTestSuite, SourceTestSuite
from tests.lakehouse_tables import TableOnDisk


class Line(NamedTuple):
    text: str


class TestLakehouseSource(SourceTestSuite[Line]):
    """Versions of a table are read one after the other, and each is divided among the readers."""

    splits = 1
    new_splits = False
    record_size = 100_000  # bytes, of many files

    @pytest.fixture(autouse=True)
    def prepare(self, on_disk: TableOnDisk) -> None:
        self.on_disk = on_disk
        self.added = 0
        self.add(0, [])

    def create_source(self) -> Any:
        return self.on_disk.source(Line, discovery_interval=timedelta(minutes=1))

    def text_of(self, record: Line) -> str:
        return record.text

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.added += 1
        self.on_disk.sink(Line).write_batch([RecordBatch(list(map(Line, texts)))], self.added)


class TestLakehouseSink(SinkTestSuite[Line]):
    @pytest.fixture(autouse=True)
    def prepare(self, on_disk: TableOnDisk) -> None:
        self.on_disk = on_disk

    def create_sink(self) -> Any:
        return self.on_disk.sink(Line)

    def record_of(self, text: str) -> Line:
        return Line(text)

    def read(self) -> Iterable[str]:
        return [row["text"] for row in self.on_disk.rows()]

    def create_unwritable_record(self) -> Line:
        return Line(7)  # type: ignore[arg-type]
