"""Readers of the output of file sinks: values of all types, partitions, positions, and a source that follows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsv2 import ExecutionEnvironment, JobError, Trigger
from dsv2.base.folders import LocalFolder
from dsv2.connectors.files import FileSinkSource, read_files
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.file_log import Merged, MergeGroup, SinkFolder
from dsv2.file_log.description import Description
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.testing import ManualClock


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


ARRAY = {"type": "array", "elementType": "integer", "containsNull": True}
MAP = {"type": "map", "keyType": "long", "valueType": "date", "valueContainsNull": True}
STRUCT = {"type": "struct", "fields": [field("x", "double"), field("y", "string")]}
FLAT = [
    field("n", "long"),
    field("text", "string"),
    field("price", "decimal(10,2)"),
    field("at", "timestamp"),
    field("day", "date"),
    field("ratio", "float"),
]
NESTED = [*FLAT, field("bytes", "binary"), field("list", ARRAY), field("map", MAP), field("struct", STRUCT)]


class Sink:
    """A file sink that writes with Arrow, as Spark would."""

    def __init__(self, path: Path, format: str, fields: list[dict[str, Any]], partition_by: Sequence[str] = ()) -> None:
        self.folder = LocalFolder(str(path))
        self.schema = Description.update(self.folder, format, partition_by, {"type": "struct", "fields": fields})
        self.clock = ManualClock(1_000)
        self.log = SinkFolder(self.folder, self.clock, "run")
        self.log.begin(0)
        self.next = 0

    def write(self, files: dict[str, bytes]) -> None:
        staging = self.log.stage(self.next)
        for name, data in files.items():
            self.folder.write(f"{staging}/{name}", data)
        self.log.prepare(self.next, staging, self.schema)
        self.log.publish()
        self.next += 1

    def merge(self, groups: Sequence[MergeGroup], staging: str) -> list[Merged]:
        merged = []
        for number, group in enumerate(groups):
            tables = [pq.read_table(self.folder.place(file.path), partitioning=None) for file in group.files]
            path = f"{staging}/{number}.parquet"
            data = parquet(pa.concat_tables(tables))
            self.folder.write(path, data)
            merged.append(Merged(path, len(data), tuple(map(len, tables))))
        return merged


def parquet(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, row_group_size=2)
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def numbers(*values: int) -> dict[str, bytes]:
    return {"part-0.parquet": parquet(pa.table({"n": list(values)}))}


def read(path: Path, after: int = -1) -> list[int]:
    found: list[int] = read_files(path, after=after).to_arrow()["n"].to_pylist()
    return found


ROW: dict[str, Any] = {
    "n": 2**60, "text": 'a "quoted" é\nline', "price": Decimal("12.50"),
    "at": datetime(2024, 7, 1, 12, 0, 0, 250_000, UTC),
    "day": date(2024, 7, 1), "ratio": 0.5, "bytes": b"\x00\xff", "list": [1, None],
    "map": [(5, date(2024, 1, 1)), (6, None)], "struct": {"x": 1.0, "y": None},
}  # fmt: skip
EMPTY: dict[str, Any] = dict.fromkeys(ROW)


def test_values_of_all_types_from_json(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "json", NESTED)
    line = {
        "n": 2**60,
        "text": ROW["text"],
        "at": "2024-07-01T12:00:00.250Z",
        "day": "2024-07-01",
        "ratio": 0.5,
        "bytes": "AP8=",
        "list": [1, None],
        "map": {"5": "2024-01-01", "6": None},
        "struct": {"x": 1},
    }
    text = json.dumps(line).replace('"at"', '"price": 12.50, "at"', 1)
    sink.write({"part-0.json": f"{text}\n{{}}\n".encode()})
    assert read_files(tmp_path).to_arrow().to_pylist() == [ROW, EMPTY]


def test_values_from_csv(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "csv", FLAT)
    line = f'{2**60},"a \\"quoted\\" é\nline",12.50,2024-07-01T12:00:00.250Z,2024-07-01,0.5\n'
    sink.write({"part-0.csv": f'{line}1,"",,,,\n2,,,,,\n'.encode()})
    first, second, third = read_files(tmp_path).to_arrow().to_pylist()
    assert first == {name: ROW[name] for name in first}
    assert (second["n"], second["text"], third["n"], third["text"]) == (1, "", 2, None)
    assert second["price"] is second["at"] is second["day"] is second["ratio"] is None


def test_timestamps_of_spark_in_parquet(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("at", "timestamp")])
    buffer = pa.BufferOutputStream()
    table = pa.table({"at": pa.array([ROW["at"], None], pa.timestamp("us", "UTC"))})
    pq.write_table(table, buffer, use_deprecated_int96_timestamps=True)
    sink.write({"part-0.parquet": buffer.getvalue().to_pybytes()})
    assert read_files(tmp_path).to_arrow()["at"].to_pylist() == [ROW["at"], None]


def test_partition_columns_have_their_types(tmp_path: Path) -> None:
    fields = [field("text", "string"), field("n", "long"), field("day", "date"), field("flag", "boolean")]
    sink = Sink(tmp_path, "json", [*fields, field("hour", "integer")], ["day", "flag", "text", "hour"])
    folder = "day=2024-07-01/flag=true/text=a%2Fb %3D%25é/hour=7"
    unknown = "day=__HIVE_DEFAULT_PARTITION__/flag=false/text=01/hour=-1"
    sink.write({f"{folder}/part-0.json": b'{"n":1}\n', f"{unknown}/part-0.json": b'{"n":2}\n'})
    assert read_files(tmp_path).to_arrow().to_pylist() == [
        {"text": "a/b =%é", "n": 1, "day": date(2024, 7, 1), "flag": True, "hour": 7},
        {"text": "01", "n": 2, "day": None, "flag": False, "hour": -1},
    ]


def test_position_continues_after_files_were_merged(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    for first in range(0, 25, 5):
        sink.write(numbers(*range(first, first + 5)))
    assert len(read_files(tmp_path).files) == 5
    position = read_files(tmp_path).position
    assert position == 4
    sink.log.compact(10**6, sink.merge)
    assert len(read_files(tmp_path).files) == 1
    sink.write(numbers(25))
    assert read(tmp_path, after=position) == [25]
    for after in range(-1, 5):
        assert read(tmp_path, after=after) == [*range(5 * (after + 1), 26)]
    with pytest.raises(ConfigurationError, match="also have records of micro-batches up to 2"):
        _ = read_files(tmp_path, after=2).files


def test_reader_continues_when_its_files_are_merged_and_deleted(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    for first in range(0, 25, 5):
        sink.write(numbers(*range(first, first + 5)))
    batches = read_files(tmp_path).batches()
    seen = next(batches)["n"].to_pylist()
    sink.log.compact(10**6, sink.merge)
    sink.log.close()
    assert len([*tmp_path.glob("0*.parquet")]) == 1
    for batch in batches:
        seen += batch["n"].to_pylist()
    assert seen == [*range(25)]


def test_file_that_is_missing_is_named(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    sink.write(numbers(1))
    (file,) = tmp_path.glob("0*.parquet")
    file.unlink()
    with pytest.raises(JobError, match=f"{file} was removed, but it is part of the output"):
        read(tmp_path)


def test_files_of_an_earlier_schema(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("n", "integer"), field("old", "string")])
    sink.write({"part-0.parquet": parquet(pa.table({"n": pa.array([1], pa.int32()), "old": ["x"]}))})
    fields = [field("n", "long"), field("added", "string")]
    sink.schema = Description.update(sink.folder, "parquet", (), {"type": "struct", "fields": fields})
    sink.write({"part-0.parquet": parquet(pa.table({"n": [2], "added": ["y"]}))})
    assert read_files(tmp_path).to_arrow().to_pylist() == [{"n": 1, "added": None}, {"n": 2, "added": "y"}]


def test_other_folders_and_positions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not the folder of a FileSink that has begun to write"):
        read_files(tmp_path)
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    assert read(tmp_path) == []
    sink.write(numbers(1))
    with pytest.raises(ConfigurationError, match="ends with micro-batch 0, before position 7: it was replaced"):
        read_files(tmp_path, after=7)


def test_type_that_arrow_does_not_have_is_named(tmp_path: Path) -> None:
    Sink(tmp_path, "parquet", [field("n", "interval day to second")])
    with pytest.raises(SchemaError, match="has the type interval day to second, which only Spark writes"):
        read(tmp_path)


def follow(path: Path, **options: Any) -> list[int]:
    env, seen = ExecutionEnvironment.get_instance(LocalRuntime()), CollectSink[int]()
    source = FileSinkSource(path, lambda row: int(row["n"]), **options)
    env.from_source(source).to_sink(seen)
    env.execute(trigger=None if source.bounded else Trigger.available_now())
    return seen.results


def test_source_follows_a_sink(tmp_path: Path) -> None:
    interval = timedelta(seconds=1)
    assert follow(tmp_path / "not yet", discovery_interval=interval) == []
    assert follow(tmp_path / "not yet") == []
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    for first in range(0, 25, 5):
        sink.write(numbers(*range(first, first + 5)))
    for limit in (1, 2, 100):
        assert follow(tmp_path, micro_batches_per_batch=limit) == [*range(25)]
        assert follow(tmp_path, micro_batches_per_batch=limit, discovery_interval=interval) == [*range(25)]


def test_source_continues_from_its_position_after_a_merge(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    for start in range(0, 25, 5):
        sink.write(numbers(*range(start, start + 5)))
    source = FileSinkSource(tmp_path, lambda row: int(row["n"]), discovery_interval=timedelta(seconds=1))
    source.refresh()
    (split,) = source.discover()
    first = source.advance(split, 2)
    assert first is not None
    sink.log.compact(10**6, sink.merge)
    source.refresh()
    rest = source.advance(first.stop, None)
    assert rest is not None
    for begin, end, expected in ((split, first.stop, range(10)), (first.stop, rest.stop, range(10, 25))):
        assert [n for batch in source.read(begin, end) for n in batch.records] == [*expected]
    assert source.advance(rest.stop, None) is None


def test_source_refuses_other_output(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    sink.write(numbers(1))
    source = FileSinkSource(tmp_path, dict, discovery_interval=timedelta(seconds=1))
    source.refresh()
    (split,) = source.discover()
    with pytest.raises(JobError, match="ends with micro-batch 0, before position 5: it was replaced by other output"):
        source.advance(type(split)(5), None)


def test_undecodable_record_is_named(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    sink.write(numbers(1, 2))
    env = ExecutionEnvironment.get_instance("local")
    env.from_source(FileSinkSource(tmp_path, lambda row: {1: "one"}[row["n"]])).to_sink(CollectSink())
    with pytest.raises(JobError, match=r"split 'micro-batches', offset '0-0:1'"):
        env.execute()
