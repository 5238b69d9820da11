"""The files by which a client and the server's process communicate."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.errors import CorruptDataError
from runtime_spark.checkpoint.run_files import ClientBatch, RunFiles


@pytest.fixture
def root(tmp_path: Path) -> LocalFolder:
    return LocalFolder(str(tmp_path))


def test_both_processes_see_the_same_files(root: LocalFolder) -> None:
    client = RunFiles(root)
    readers = client.make_readers()
    assert Path(readers).is_dir()
    server = RunFiles(root, Path(readers).parent.name)
    batch = ClientBatch(ended=True, outputs={"out": [b"a", b""]})
    server.write(7, batch)
    assert client.read(7) == batch
    assert client.read(8) is None
    assert client.batches() == [7]
    client.delete(7)
    assert server.batches() == []


def test_request_to_stop_and_the_end(root: LocalFolder) -> None:
    files = RunFiles(root)
    files.make_readers()
    assert not files.is_stopping()
    assert not files.are_removed()
    files.request_stop()
    assert files.is_stopping()
    assert Path(files.stop_file).exists()
    files.remove()
    assert files.are_removed()


def test_stop_is_asked_for_without_the_client(root: LocalFolder) -> None:
    files = RunFiles(root)
    files.make_readers()
    Path(files.stop_file).touch()
    assert files.is_stopping()


def test_earlier_runs_are_found(root: LocalFolder) -> None:
    earlier, own = RunFiles(root), RunFiles(root)
    earlier.write(3, ClientBatch(ended=False, outputs={}))
    own.write(4, ClientBatch(ended=False, outputs={}))
    assert [files.batches() for files in RunFiles.of_earlier_runs(root, own)] == [[3]]


def test_damaged_file_is_named(root: LocalFolder) -> None:
    files = RunFiles(root)
    files.write(3, ClientBatch(ended=False, outputs={}))
    (path,) = Path(root.path).glob("connect/*/batches/3")
    path.write_bytes(b"\xc1")
    with pytest.raises(CorruptDataError, match=r"batches/3 is damaged: .*It holds records for sinks of the client"):
        files.read(3)
