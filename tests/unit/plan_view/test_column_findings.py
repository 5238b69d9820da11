"""Plans mark sources and sinks that move columns, and say why others move rows."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import narwhals as nw
import pytest

from dsv2 import CollectSink, FileSink
from dsv2.connectors.files import (
    FileFormat,
    FilesSource,
    csv_records,
    csv_rows,
    json_lines,
    parquet_records,
    parquet_rows,
)
from dsv2.connectors.formats import JsonDecoder, JsonEncoder, avro_files, json_records
from dsv2.connectors.kafka import KafkaDecoder, KafkaSink, KafkaSource, values
from dsv2.connectors.postgres import PostgresSink
from dsv2.plan_view.model import Processing
from dsv2.sinks import Sink
from dsv2.sources import BaseSource
from tests.support import local_environment

CODES = ("reads-rows", "writes-rows")


class Click(NamedTuple):
    user: str
    cents: int


class Price(NamedTuple):
    cents: Decimal


@dataclass
class Checked:
    cents: int

    def __post_init__(self) -> None:
        assert self.cents > 0


def explained(
    source: BaseSource[Any], kind: type, sink: Sink[Any], *, on_tables: bool = True
) -> tuple[bool, bool, str]:
    """The signs of the source and the sink that they move columns, and the findings about them."""
    env = local_environment()
    stream: Any = env.from_source(source)
    (stream.where(nw.col("cents") > 1, kind) if on_tables else stream.map(lambda record: record)).to_sink(sink)
    plan = env.explain()
    first, *_, last = plan.view.operators
    found = [one for one in plan.view.findings if one.code in CODES]
    moves = [one.processing is Processing.TABLES for one in (first, last)]
    assert str(plan).count("moves columns") == sum(moves)
    return moves[0], moves[1], " ".join(f"{one.code}: {one.message}" for one in found)


@pytest.mark.parametrize(
    ("file_format", "kind", "why"),
    [
        (json_records(Click), Click, ""),
        (csv_records(Click), Click, ""),
        (csv_records(Price), Price, ""),
        (parquet_records(Click), Click, ""),
        (json_records(Price), Price, "columns do not keep the values of Price"),
        (json_records(Checked), Checked, "columns do not keep the values of Checked"),
        (json_lines(lambda row: Click(**row)), Click, "For JSON use json_records"),
        (csv_rows(lambda row: Click(row["user"], int(row["cents"]))), Click, "Use csv_records"),
        (parquet_rows(lambda row: Click(**row)), Click, "Use parquet_records"),
        (avro_files(Click), Click, "Avro is decoded record by record"),
    ],
)
def test_files(file_format: FileFormat[Any], kind: type, why: str) -> None:
    source, sink = FilesSource("in", file_format), FileSink[Any]("out", schema=kind)
    reads, writes, found = explained(source, kind, sink)
    assert (reads, writes, why in found, bool(found)) == (not why, True, True, bool(why))
    assert explained(source, kind, FileSink[Any]("out", schema=kind), on_tables=False) == (False, False, "")


@pytest.mark.parametrize(
    ("decode", "why"),
    [(values(JsonDecoder(Click)), ""), (values(lambda data: Click("", len(data))), "values(JsonDecoder(...))")],
)
def test_kafka(decode: KafkaDecoder[Any], why: str) -> None:
    sink = KafkaSink[Click]("none", "clicks", JsonEncoder(Click), key=lambda click: click.user.encode())
    reads, writes, found = explained(KafkaSource("none", topics="clicks", decode=decode), Click, sink)
    assert (reads, writes, why in found) == (not why, False, True)
    assert "writes-rows: receives columns and makes rows of them: it encodes messages one by one." in found


@pytest.mark.parametrize(
    ("options", "why"), [({}, ""), ({"row": lambda click: click}, "function"), ({"key": ["user"]}, "it has a key")]
)
def test_postgres(options: dict[str, Any], why: str) -> None:
    sink = PostgresSink[Any]("host=none", "clicks", ["user", "cents"], **options)
    reads, writes, found = explained(FilesSource("in", csv_records(Click)), Click, sink)
    assert (reads, writes, why in found, bool(found)) == (True, not why, True, bool(why))


def test_other_sinks_are_not_mentioned() -> None:
    assert explained(FilesSource("in", csv_records(Click)), Click, CollectSink()) == (True, False, "")
