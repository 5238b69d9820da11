"""Files that local jobs write: their values, partitions, merges, and crashes at every step."""

from __future__ import annotations

import itertools
import json
import math
import os
from array import array
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import CollectSink, DeadLetter, ErrorPolicy, ExecutionEnvironment
from dsv2.arrow import records_of
from dsv2.arrow.schema import rows_to_table
from dsv2.arrow.sink_columns import table_of_columns
from dsv2.connectors.files import read_files
from dsv2.connectors.files.directory import FileLocation
from dsv2.connectors.files.sink_tables import read_part, table_schema
from dsv2.connectors.files.table_files import encoded, joined, table_of
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError, SchemaError
from dsv2.file_log import DataFile, FilePart
from dsv2.file_log.description import Description
from dsv2.file_log.schema import json_schema
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.sinks import FileSink
from dsv2.testing import ManualClock, Stop, TestSource
from tests.awkward_files import NESTED, RECORDS, TEXTS, Awkward, AwkwardNested, as_text
from tests.durations import ms
from tests.profiles import examples
from tests.steps import KilledError, Steps, steps_of_files

FORMATS = ["parquet", "json", "csv"]


class Sale(NamedTuple):
    product: str
    amount: int
    day: date | None = None


@dataclass
class Everything:
    flag: bool | None
    number: int | None
    ratio: float | None
    text: str | None
    data: bytes | None
    day: date | None
    at: datetime | None
    price: Decimal | None


class Instant(NamedTuple):
    at: datetime


class Listing(NamedTuple):
    names: list[str]


@dataclass
class Nested:
    numbers: list[int | None]
    days: dict[str, date | None]


def write(path: Path, records: list[Any], sink: FileSink[Any], **options: Any) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(1_000)))
    env.from_source(TestSource[Any](records, records_per_batch=2)).with_uid("in").to_sink(sink).with_uid("out")
    env.execute("files", **options)


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_files(path, **options).to_arrow().to_pylist()
    return found


SALES = [Sale("tea", 1, date(2024, 7, 1)), Sale("milk", 2, date(2024, 7, 2)), Sale("tea", 3), Sale("a b", 4)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("partition_by", [(), ("day",), ("product", "day")])
def test_records_are_written_once(tmp_path: Path, format: Any, partition_by: tuple[str, ...]) -> None:
    path = tmp_path / "out"
    write(path, SALES, FileSink(path, format=format, schema=Sale, partition_by=partition_by))
    assert Counter(Sale(**row) for row in rows(path)) == Counter(SALES)
    visible = [file for file in path.rglob(f"*.{format}") if "_dsv2" not in file.parts]
    assert len(visible) >= 2
    assert all(len(file.relative_to(path).parts) == 1 + len(partition_by) for file in visible)


def test_small_files_are_merged_when_the_run_ends(tmp_path: Path) -> None:
    for format in FORMATS:
        path = tmp_path / format
        records = [Sale("tea", number) for number in range(9)]
        write(path, records, FileSink(path, format=format, schema=Sale, roll_interval=timedelta(hours=1)))  # type: ignore[arg-type]
        assert [row["amount"] for row in rows(path)] == [*range(9)]
        assert len([*path.glob(f"*.{format}")]) == 1
        assert [row["amount"] for row in rows(path, after=2)] == [6, 7, 8]


def test_tuples_and_dicts_with_a_ddl_schema(tmp_path: Path) -> None:
    forms: list[list[Any]] = [[("tea", 1)], [{"amount": 1, "product": "tea"}]]
    for number, records in enumerate(forms):
        path = tmp_path / str(number)
        write(path, records, FileSink(path, schema="product string NOT NULL, amount int"))
        assert rows(path) == [{"product": "tea", "amount": 1}]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a int, b string", ["integer", "string"]),
        ("a: bigint, `b c` DECIMAL(10, 2) NOT NULL", ["long", "decimal(10,2)"]),
        ("a array<int>", [{"type": "array", "elementType": "integer", "containsNull": True}]),
        (
            "a map<string, double>",
            [{"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}],
        ),
    ],
)
def test_ddl(text: str, kinds: list[Any]) -> None:
    assert [field["type"] for field in json_schema(text)["fields"]] == kinds


@pytest.mark.parametrize(
    "text", ["", "a", "a int,", "a int b string", "a array<int", "a money", "a int; b int", "a map<int>"]
)
def test_what_is_not_ddl_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="is not a schema"):
        json_schema(text)


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\,\n\r\0\ufeff N'), max_size=9)
EVERYTHING = st.builds(
    Everything,
    st.none() | st.booleans(),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False),
    st.none() | ANY_TEXT,
    st.none() | st.binary(max_size=9),
    st.none() | st.dates(),
    st.none() | st.datetimes(timezones=st.just(UTC)),
    st.none() | st.decimals(-(10**9), 10**9, places=18),
)


@examples(20)
@given(
    st.lists(EVERYTHING, min_size=1, max_size=5), st.lists(EVERYTHING, min_size=1, max_size=5), st.sampled_from(FORMATS)
)
def test_values_are_read_as_they_were_written(first: list[Everything], second: list[Everything], format: str) -> None:
    schema = json_schema(Everything)
    parts = [encoded(table_of(records, schema, "sink"), format) for records in (first, second)]
    data, lengths = joined(parts, format)
    description = Description(format, (), (schema,))
    with TemporaryDirectory() as folder:
        file = Path(folder, f"x.{format}")
        file.write_bytes(data)
        directory = FileLocation(folder, None, "a test").open()
        part = FilePart(DataFile(file.name, len(data), 0, 1, 0), 0, None)
        found = [row for batch in read_part(directory, description, part) for row in batch.to_pylist()]
        assert found == [vars(record) for record in first + second]
        part = FilePart(DataFile(file.name, len(data), 0, 1, 0), lengths[0], None)
        found = [row for batch in read_part(directory, description, part) for row in batch.to_pylist()]
        assert found == [vars(record) for record in second]


def test_nested_values(tmp_path: Path) -> None:
    record = Nested([1, None], {"a": date(2024, 1, 1), "b": None})
    for format in ("parquet", "json"):
        path = tmp_path / format
        write(path, [record], FileSink(path, format=format, schema=Nested))
        assert rows(path) == [{"numbers": [1, None], "days": [("a", date(2024, 1, 1)), ("b", None)]}]
    with pytest.raises(SchemaError, match=r"Neither CSV files .* can have the type list"):
        write(tmp_path, [record], FileSink(tmp_path / "csv", format="csv", schema=Nested))


@pytest.mark.parametrize("format", FORMATS)
def test_awkward_values_are_read_as_they_were_written(tmp_path: Path, format: Any) -> None:
    for kind, records in ((Awkward, RECORDS), (AwkwardNested, NESTED)):
        if format == "csv" and kind is AwkwardNested:
            continue
        path = tmp_path / kind.__name__
        write(path, list(records), FileSink[Any](path, format=format, schema=kind))
        assert [as_text(row) for row in rows(path)] == [as_text(record) for record in records]


@pytest.mark.parametrize("text", [text for text in TEXTS if text and len(text) < 100])
def test_text_alone_in_a_line_of_csv(tmp_path: Path, text: str) -> None:
    for values in ([text], [None, text, None]):
        path = tmp_path / str(len(values))
        write(path, [(value,) for value in values], FileSink[Any](path, format="csv", schema="t string"))
        assert [row["t"] for row in rows(path)] == values


class Plain(NamedTuple):
    number: int | None
    ratio: float | None
    text: str | None
    data: bytes | None
    day: date | None
    price: Decimal | None


PLAIN = [
    Plain(1, math.nan, "tea", b"x", date.max, Decimal("1.5")),
    Plain(None, -0.0, "", b"", date.min, Decimal("-0.000000000000000001")),
    Plain(-(2**31), None, None, None, None, None),
]


@pytest.mark.parametrize(
    ("kind", "records", "schema", "in_columns"),
    [
        (Plain, PLAIN, Plain, True),
        (Plain, PLAIN, "price decimal(38, 18), number int, text string", True),
        (Plain, PLAIN[:1], "number smallint NOT NULL", True),
        (Plain, PLAIN, "price decimal(20, 18)", False),
        (Plain, PLAIN, "ratio double, day timestamp_ntz", None),
        (Plain, PLAIN, "text string NOT NULL", None),
        (Plain, PLAIN, "number tinyint", None),
        (Instant, [Instant(datetime(2024, 7, 1, 12))], Instant, False),
        (Instant, [Instant(datetime(2024, 7, 1, 12))], "at timestamp_ntz", True),
        (Listing, [Listing(["a"]), Listing([])], Listing, False),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_columns_are_written_as_their_records_are(
    tmp_path: Path, format: Any, kind: Any, records: list[Any], schema: Any, in_columns: bool | None
) -> None:
    """``in_columns`` is None if a record does not fit the schema, which is an error in either way."""
    if kind is Listing and format == "csv":
        return
    table = rows_to_table(records, kind)
    columns = RecordBatch(records_of(table, kind))
    arrow = table_schema(json_schema(schema))
    assert (table_of_columns([columns], json_schema(schema), arrow) is not None) is bool(in_columns)
    found = []
    for name in ("rows", "columns"):
        path = tmp_path / name
        env = ExecutionEnvironment.get_instance("local")
        source = env.from_dataframe(table, kind, records_per_batch=2)
        stream = source if name == "columns" else source.map(lambda record: record)
        stream.to_sink(FileSink(path, format=format, schema=schema))
        if in_columns is None:
            with pytest.raises(SchemaError, match="does not fit the schema") as refused:
                env.execute()
            found.append(str(refused.value).partition("record ")[2])
        else:
            env.execute()
            found.append(repr(rows(path)))
    assert found[0] == found[1]


def test_files_are_those_of_spark(tmp_path: Path) -> None:
    """Bytes that Spark writes for the same records."""
    record = Everything(
        True,
        1,
        0.5,
        'a "b"',
        b"\x00\xff",
        date(2024, 7, 1),
        datetime(2024, 7, 1, tzinfo=timezone(ms(0))),
        Decimal("1.5"),
    )
    path = tmp_path / "json"
    write(path, [record], FileSink(path, format="json", schema=Everything))
    (file,) = path.glob("*.json")
    assert json.loads(file.read_text())["price"] == 1.5
    assert json.loads(file.read_text())["data"] == "AP8="
    path = tmp_path / "folders"
    write(
        path, [("x=1/2:é", 1), (None, 2)], FileSink(path, format="json", schema="k string, n int", partition_by=["k"])
    )
    assert {file.parent.name for file in path.glob("k*/*.json")} == {"k=x%3D1%2F2%3Aé", "k=__HIVE_DEFAULT_PARTITION__"}


@pytest.mark.parametrize(
    ("record", "text"),
    [(("tea", 1.5), "the float 1.5 would be changed"), (("tea",), "has 1 values"), ((None, 1), "must not be None")],
)
def test_record_that_does_not_fit_is_named(tmp_path: Path, record: Any, text: str) -> None:
    with pytest.raises(SchemaError, match=rf"The sink .* record \(.* does not fit .*{text}"):
        write(tmp_path, [("tea", 1), record], FileSink(tmp_path / "out", schema="product string NOT NULL, amount int"))


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__", "a\0b"])
def test_text_that_cannot_be_a_folder_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SchemaError, match="in the column 'k' of partition_by"):
        write(tmp_path, [("a", 1), (text, 1)], FileSink(tmp_path / "out", schema="k string, n int", partition_by=["k"]))
    assert not [*(tmp_path / "out").glob("k=*")]


def test_error_policy_applies_to_records_that_do_not_fit(tmp_path: Path) -> None:
    env, bad = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[DeadLetter[Any]]()
    records: list[Any] = [("a", 1), ("a", "x"), ("", 2), ("b", 3)]
    sink = FileSink[Any](tmp_path / "out", schema="k string, n int", format="csv", partition_by=["k"])
    written = env.from_collection(records).to_sink(sink).with_error_policy(ErrorPolicy().dead_letter(SchemaError))
    written.dead_letters(object).to_sink(bad)
    env.execute()
    assert rows(tmp_path / "out") == [{"k": "a", "n": 1}, {"k": "b", "n": 3}]
    assert [letter.record for letter in bad.results] == records[1:3]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", b"a"), ("string", "\ud800"), ("binary", "a"), ("double", True), ("double", 2**53 + 1),
        ("long", 2**63), ("date", datetime(2024, 1, 1, 1)), ("date", 5), ("date", np.bool_(True)),
        ("date", UUID(int=1)), ("int", np.bool_(True)), ("int", UUID(int=1)), ("long", np.datetime64(1, "ns")),
        ("timestamp_ntz", UUID(int=1)), ("timestamp_ntz", IPv4Address("10.0.0.1")), ("timestamp", 5),
        ("timestamp", datetime(1, 1, 1, tzinfo=timezone(ms(3_600_000)))),
        ("timestamp", pd.NaT),
        ("timestamp", pd.Timestamp("2024-01-01T00:00:00.000000001Z")),
        ("timestamp_ntz", datetime(2024, 1, 1, tzinfo=UTC)),
        ("decimal(10,2)", Decimal("1.005")), ("decimal(10,2)", Decimal("NaN")), ("decimal(10,2)", Decimal("1E8")),
        ("array<long>", [1.5]), ("array<int>", np.array([True])), ("array<int>", b"ab"),
        ("array<int>", bytearray(b"ab")), ("array<int>", array("q", [1])), ("array<double>", b"ab"),
        ("array<string>", "ab"), ("array<string>", {"a"}), ("array<string>", {"a": 1}), ("array<array<int>>", [b"ab"]),
        ("map<string, array<string>>", {"a": "bc"}), ("map<string, int>", ""), ("struct<a: array<int>>", {"a": b"b"}),
        ("array<timestamp>", [datetime(2024, 1, 1)]),
        ("array<timestamp_ntz>", [datetime(2024, 1, 1, tzinfo=UTC)]),
        ("map<string, date>", {"a": datetime(2024, 1, 1)}),
        ("map<string, int>", {b"a": 1}), ("struct<a: int>", {"a": 1, "b": 2}), ("struct<a: string>", {"a": b"x"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("format", ["parquet", "json"])
def test_value_that_would_change_is_refused_with_its_field(tmp_path: Path, kind: str, value: Any, format: Any) -> None:
    sink = FileSink[Any](tmp_path / "out", schema=f"n int, it {kind}", format=format)
    with pytest.raises(SchemaError, match=r"record .* does not fit the schema n integer, it .*(field 'it'|struct)"):
        write(tmp_path, [(1, None), (2, value)], sink)
    assert [*(tmp_path / "out").glob(f"*.{format}")] == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schema": int}, "has no fields"),
        ({"schema": Sale, "partition_by": ["size"]}, "partition_by names 'size'"),
        ({"schema": "a int", "partition_by": ["a"]}, "partition_by names all columns"),
        ({"schema": "a map<string,int>, b int", "partition_by": ["a"]}, "which is map"),
        ({"schema": "a timestamp, b int", "partition_by": ["a"]}, "which is timestamp"),
        ({"schema": "_a int, b int", "partition_by": ["_a"]}, "readers skip folders whose names begin with '_'"),
        ({"schema": "x int, X int"}, "The columns 'x' and 'X' are the same for readers that ignore upper"),
        ({"schema": "x int, x int", "format": "json"}, "The columns 'x' and 'x' are the same"),
        ({"schema": "x decimal(39,2)"}, r"decimal\(39,2\) must have at most 38 digits"),
        ({"schema": "x decimal(2,3)"}, r"decimal\(2,3\) must have at most 38 digits"),
        ({"schema": "x array<int>", "format": "csv"}, "Neither CSV files .* can have the type list"),
        ({"schema": "x map<struct<a: int>, int>", "format": "json"}, "keys of maps in JSON can have the type struct"),
    ],
)
def test_schema_is_checked_before_the_start(tmp_path: Path, options: Any, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        write(tmp_path, SALES, FileSink(tmp_path / "out", **options))


@pytest.mark.parametrize("durable", [True, False])
def test_files_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    forced: dict[int, int] = {}  # sizes by inode

    def force(file: int) -> None:
        forced[os.fstat(file).st_ino] = os.fstat(file).st_size

    monkeypatch.setattr(os, "fsync", force)
    env = ExecutionEnvironment.get_instance(LocalRuntime(durable=durable))
    records: list[Any] = [*SALES, ("no", "sale")]
    sink = FileSink[Any](tmp_path / "out", schema=Sale, partition_by=["product"])
    sales = env.from_source(TestSource[Any](records, records_per_batch=2)).with_uid("in").to_sink(sink).with_uid("out")
    sales.with_error_policy(ErrorPolicy().dead_letter(SchemaError))
    env.execute("files", checkpoint_location=tmp_path / "checkpoint", dead_letters=tmp_path / "letters")
    written = [place for folder in ("out", "letters") for place in (tmp_path / folder).glob("**/*")]
    assert {place.suffix for place in written} > {".parquet", ".json"}
    is_forced = [forced.get(place.stat().st_ino) == place.stat().st_size for place in written]
    assert all(is_forced) if durable else not any(is_forced)


def test_folder_of_another_job_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write(path, SALES, FileSink(path, schema=Sale))
    for options in ({}, {"checkpoint_location": tmp_path / "checkpoint"}):
        with pytest.raises(ConfigurationError, match="holds the output of another run"):
            write(path, SALES, FileSink(path, schema=Sale), **options)


def test_older_checkpoint_is_refused(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    sink = FileSink(path, schema=Sale)
    write(path, [*SALES[:2], Stop(), *SALES[2:]], sink, checkpoint_location=checkpoint)
    older = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}
    write(path, [*SALES[:2], Stop(), *SALES[2:]], sink, checkpoint_location=checkpoint)
    assert Counter(Sale(**row) for row in rows(path)) == Counter(SALES)
    for file in (checkpoint / "local").iterdir():
        file.unlink()
    for file, data in older.items():
        file.write_bytes(data)
    with pytest.raises(IncompatibleCheckpointError, match="already has micro-batch 1, but the state is older"):
        write(path, SALES, sink, checkpoint_location=checkpoint)


def test_savepoint_takes_the_folder_over(tmp_path: Path) -> None:
    path, env = tmp_path / "out", ExecutionEnvironment.get_instance(runtime="local")

    def start(items: list[Any], **options: Any) -> Any:
        env.from_source(TestSource[Any](items)).with_uid("in").to_sink(FileSink(path, schema=Sale)).with_uid("out")
        job = env.execute_async("files", **options)
        job.await_termination()
        return job

    items = [*SALES[:2], Stop(), *SALES[2:]]
    savepoint = start(items, checkpoint_location=tmp_path / "a").savepoint(tmp_path / "s")
    start(items, checkpoint_location=tmp_path / "b", savepoint=savepoint)
    assert Counter(Sale(**row) for row in rows(path)) == Counter(SALES)
    with pytest.raises(ConfigurationError, match="is written by a job that started from a savepoint of this one"):
        start(items, checkpoint_location=tmp_path / "a")


@pytest.mark.parametrize("rolling", [None, timedelta(milliseconds=1)])
def test_crash_at_any_step_loses_and_repeats_nothing(tmp_path: Path, rolling: timedelta | None) -> None:
    records = [Sale("tea", number) for number in range(5)]
    for number in itertools.count():
        folder, steps = tmp_path / str(number), Steps(number)
        sink = FileSink[Sale](folder / "out", schema=Sale, format="json", roll_interval=rolling)
        with suppress(KilledError), steps_of_files(steps):
            write(folder, records, sink, checkpoint_location=folder / "checkpoint")
        if steps.left >= 0:
            break
        write(folder, records, sink, checkpoint_location=folder / "checkpoint")
        assert [row["amount"] for row in rows(folder / "out")] == [*range(5)], number
        visible = [line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
        assert sorted(json.loads(line)["amount"] for line in visible) == [*range(5)], number
    assert number > 30
