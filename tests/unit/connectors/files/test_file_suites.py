"""Sources and sinks of files pass the suites for connectors."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsv2.connectors.files import (
    FileFormat,
    FilesSource,
    csv_rows,
    json_lines,
    parquet_rows,
    read_files,
    text_lines,
)
from dsv2.sinks import FileSink, Sink
from dsv2.testing.connectors import AWKWARD_TEXTS, SinkTestSuite, SourceTestSuite


class FilesSuite(SourceTestSuite[str]):
    """Each call of ``add`` writes a file."""

    format: FileFormat[str]
    record_size = 25
    discovery_interval: timedelta | None = timedelta(minutes=1)

    @pytest.fixture(autouse=True)
    def prepare(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "input"
        self.folder.mkdir()

    def create_source(self) -> FilesSource[str]:
        return FilesSource(self.folder, self.format, discovery_interval=self.discovery_interval)

    def create_unreachable_source(self) -> FilesSource[str]:
        return FilesSource(self.folder / "missing", self.format)

    def new_file(self) -> Path:
        return self.folder / f"{len(list(self.folder.iterdir())):04}"


class TestJsonLines(FilesSuite):
    format = json_lines(lambda row: str(row["text"]))

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.new_file().write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def add_undecodable(self, split: int) -> None:
        self.new_file().write_text("{\n")


class TestBoundedJsonLines(TestJsonLines):
    discovery_interval = None


class TestTextLines(FilesSuite):
    """Empty lines are no records."""

    format = text_lines(str)
    awkward_texts = tuple(text for text in AWKWARD_TEXTS if text and not {*text} & {*"\n\r\ufeff"})

    def add(self, split: int, texts: Sequence[str]) -> None:
        self.new_file().write_bytes("".join(f"{text}\n" for text in texts).encode())

    def add_undecodable(self, split: int) -> None:
        self.new_file().write_bytes(b"\xff\n")


class TestCsvRows(FilesSuite):
    format = csv_rows(lambda row: row["text"])

    def add(self, split: int, texts: Sequence[str]) -> None:
        with self.new_file().open("w", encoding="utf-8", newline="") as opened:
            csv.writer(opened, quoting=csv.QUOTE_ALL).writerows([["text"], *([text] for text in texts)])

    def add_undecodable(self, split: int) -> None:
        self.new_file().write_text("text\na,b\n")


class TestParquetRows(FilesSuite):
    format = parquet_rows(lambda row: str(row["text"]))

    def add(self, split: int, texts: Sequence[str]) -> None:
        pq.write_table(pa.table({"text": list(texts)}), self.new_file(), row_group_size=2)

    def add_undecodable(self, split: int) -> None:
        self.new_file().write_bytes(b"no parquet")


class Line(NamedTuple):
    text: str


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
class TestFileSink(SinkTestSuite[Line]):
    @pytest.fixture(autouse=True)
    def prepare(self, tmp_path: Path, format: Literal["parquet", "json", "csv"]) -> None:
        self.folder, self.format = tmp_path / "output", format

    def create_sink(self) -> Sink[Line]:
        return FileSink(self.folder, format=self.format, schema=Line)

    def record_of(self, text: str) -> Line:
        return Line(text)

    def read(self) -> Iterable[str]:
        return read_files(self.folder).to_arrow()["text"].to_pylist() if self.folder.exists() else []
