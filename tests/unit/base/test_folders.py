"""Local folders: names are literal, and writes are atomic."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.base.folders import LocalFolder
from dsv2.connectors.files import FilesSource, parquet_rows, text_lines
from dsv2.sinks import CollectSink
from tests.folder_contract import check_folder

PATTERNS = ["ck[1]", "run*", "a?", "{a,b}", "with space", "100%20", "[!x]", "#1", "späti"]


@pytest.mark.parametrize("name", PATTERNS)
def test_names_are_literal(tmp_path: Path, name: str) -> None:
    for other in ("ck1", "runs", "ab", "a", "b", "y", "100 "):
        LocalFolder(str(tmp_path / other)).write("offsets/7", b"not this one")
    folder = LocalFolder(str(tmp_path / name))
    assert folder.read("offsets/7") is None
    assert folder.sizes("offsets") == {}
    assert folder.numbers("offsets") == []
    folder.write("offsets/3", b"three")
    assert folder.read("offsets/3") == b"three"
    assert folder.sizes("offsets") == {"3": 5}
    assert folder.sizes() == {"offsets": 0}
    folder.delete("offsets/3")
    folder.delete("offsets/3")
    assert folder.read("offsets/3") is None


def test_local_folder_does_what_every_folder_does(tmp_path: Path) -> None:
    check_folder(LocalFolder(str(tmp_path / "new")))


def test_numbers_match_whole_names(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    for name in ("10", "9", ".9.crc", "9.tmp", "4.log", "11.log", "x.log", ".log", "²"):
        folder.write(name, b"")
    assert folder.numbers("") == [9, 10]
    assert folder.numbers("", suffix=".log") == [4, 11]


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    folder.write("a", b"old")
    reader = (tmp_path / "a").open("rb")
    folder.write("a", b"new")
    assert (reader.read(), folder.read("a"), folder.sizes()) == (b"old", b"new", {"a": 3})
    reader.close()


@pytest.mark.parametrize("name", PATTERNS)
def test_file_sources_take_their_directory_literally(tmp_path: Path, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / name).mkdir()
    (tmp_path / name / "a.txt").write_text("a line\n")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / name / "a.parquet")
    env = ExecutionEnvironment.get_instance("local")
    read = CollectSink[object]()
    env.from_source(FilesSource(tmp_path / name, text_lines(str), pattern="*.txt")).to_sink(read)
    env.from_source(FilesSource(tmp_path / name, parquet_rows(dict), pattern="*.parquet")).to_sink(read)
    env.execute()
    assert read.results == ["a line", {"n": 1}, {"n": 2}]


def test_names_of_new_folders_are_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: set[int] = set()  # inodes
    monkeypatch.setattr(os, "fsync", lambda file: forced.add(os.fstat(file).st_ino))
    LocalFolder(str(tmp_path / "new/out"), durable=True).write("a/file", b"x")
    places = [tmp_path / place for place in (".", "new", "new/out", "new/out/a", "new/out/a/file")]
    assert {place.stat().st_ino for place in places} <= forced
