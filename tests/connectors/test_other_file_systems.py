"""Files on another file system than the local disk: a server with the interface of S3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from components.s3 import S3Server
from dsv2 import ExecutionEnvironment
from dsv2.connectors.files import (
    FileFormat,
    FileSinkSource,
    FilesSource,
    csv_rows,
    json_lines,
    parquet_rows,
    read_files,
    text_lines,
)
from dsv2.connectors.formats import avro_files
from dsv2.errors import ConfigurationError, JobError
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink, FileSink

N = 3_000


class Number(NamedTuple):
    n: int


def number(row: dict[str, Any]) -> Number:
    return Number(int(row["n"]))


def as_avro(numbers: range) -> bytes:
    import io

    from fastavro import writer

    schema = {"type": "record", "name": "Number", "fields": [{"name": "n", "type": "long"}]}
    out = io.BytesIO()
    writer(out, schema, [{"n": n} for n in numbers])
    return out.getvalue()


def as_parquet(numbers: range) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": list(numbers)}), out, row_group_size=500)
    return bytes(out.getvalue())


FORMATS: dict[str, tuple[FileFormat[Number], Callable[[range], bytes]]] = {
    "json": (json_lines(number), lambda numbers: "".join(f"{json.dumps({'n': n})}\n" for n in numbers).encode()),
    "csv": (csv_rows(number), lambda numbers: "".join(["n\n", *(f"{n}\n" for n in numbers)]).encode()),
    "parquet": (parquet_rows(number), as_parquet),
    "avro": (avro_files(Number), as_avro),
}


class Folder:
    """An own folder on the server."""

    def __init__(self, server: S3Server) -> None:
        self.files = server.in_arrow()
        self.path = f"{S3Server.BUCKET}/{uuid4()}"

    def put(self, name: str, data: bytes) -> None:
        with self.files.open_output_stream(f"{self.path}/{name}") as out:
            out.write(data)


@pytest.fixture
def folder(s3_server: S3Server) -> Folder:
    return Folder(s3_server)


def read(source: Any) -> list[Any]:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.set_parallelism(2)
    sink = CollectSink[Any]()
    env.from_source(source).to_sink(sink)
    env.execute()
    return sink.results


@pytest.mark.parametrize("name", FORMATS)
def test_every_record_is_read_once(name: str, folder: Folder) -> None:
    file_format, encode = FORMATS[name]
    for place, start in (("a b", 0), ("deep/ä%20[1]", N), ("_hidden", 0), ("other", 0)):
        folder.put(f"{place}.{'txt' if place == 'other' else name}", encode(range(start, start + N)))
    source = FilesSource(
        folder.path, file_format, pattern=f"**/*.{name}", bytes_per_batch=5_000, filesystem=folder.files
    )
    assert sorted(read(source)) == [Number(n) for n in range(2 * N)]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*", 1),
        ("*/*", 1),
        ("**/*", 6),
        ("a/**/*.txt", 3),
        ("**", 6),
        ("a/**", 4),
        ("?/b*/[c-d].txt", 3),
        ("**/b/*", 3),
        ("a/*/**/*", 3),
    ],
)
def test_patterns_match_as_on_the_local_disk(pattern: str, matches: int, tmp_path: Path) -> None:
    for name in ("c.txt", "a/c.txt", "a/b/c.txt", "a/b/d.txt", "x/bb/d.txt", "a/b/b/e.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    files = pafs.SubTreeFileSystem(str(tmp_path.parent), pafs.LocalFileSystem())
    here = read(FilesSource(tmp_path, text_lines(str), pattern=pattern))
    assert len(here) == matches
    assert read(FilesSource(tmp_path.name, text_lines(str), pattern=pattern, filesystem=files)) == here


def test_uri_needs_no_file_system(s3_server: S3Server, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.in_environment().items():
        monkeypatch.setenv(name, value)
    folder.put("a", b"a line\n")
    assert read(FilesSource(f"s3a://{folder.path}/", text_lines(str))) == ["a line"]


def test_uri_of_the_local_disk(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a line\n")
    assert read(FilesSource(f"file://{tmp_path}", text_lines(str))) == ["a line"]


def test_file_that_is_missing_is_named(folder: Folder) -> None:
    source = FilesSource(folder.path, text_lines(str), filesystem=folder.files)
    with pytest.raises(JobError, match=f"The directory {folder.path} of a FilesSource does not exist"):
        read(source)


def test_other_schemes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="FilesSource cannot read ftp://host/x: Arrow has no file system"):
        FilesSource("ftp://host/x", text_lines(str))


def test_native_client_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", "/does/not/exist")
    with pytest.raises(JobError, match=r"Arrow cannot open the file system hdfs://127.0.0.1:1/"):
        read(FilesSource("hdfs://127.0.0.1:1/x", text_lines(str)))


def test_output_of_a_sink_is_read(folder: Folder, tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    sink = FileSink(tmp_path / "out", schema=Number)
    env.from_collection([Number(n) for n in range(N)]).to_sink(sink)
    env.execute()
    pafs.copy_files(str(tmp_path / "out"), folder.path, pafs.LocalFileSystem(), folder.files)
    written = read_files(folder.path, filesystem=folder.files)
    assert sorted(written.to_arrow()["n"].to_pylist()) == list(range(N))
    assert all(file.startswith(f"{folder.path}/") for file in written.files)
    assert sorted(read(FileSinkSource(folder.path, number, filesystem=folder.files))) == [Number(n) for n in range(N)]
