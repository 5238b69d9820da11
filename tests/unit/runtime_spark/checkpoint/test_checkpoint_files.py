"""The manifest and the notes of a checkpoint: written, read back, and damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.checks.json_documents import to_json
from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.sinks import CollectSink
from runtime_spark.checkpoint.manifest import checkpoint_id_of, manifest_of, read_manifest, write_manifest
from runtime_spark.checkpoint.notes import NoteBook, Notes
from runtime_spark.frames.layout import Layout
from tests.support import local_environment

CHECKPOINT = UUID(int=7)


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(str(tmp_path))


def plan() -> Plan:
    env = local_environment()
    env.from_collection([1]).with_uid("in").to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


def test_manifest_is_read_once_a_micro_batch_has_begun(folder: LocalFolder) -> None:
    assert read_manifest(folder) is None
    write_manifest(folder, plan(), Layout.of(plan()), CHECKPOINT)
    assert read_manifest(folder) is None
    folder.write("offsets/0", b"")
    found = read_manifest(folder)
    assert found is not None
    assert checkpoint_id_of(folder, found) == CHECKPOINT
    assert found == {"checkpoint_id": str(CHECKPOINT), **manifest_of(plan(), Layout.of(plan()))}


@pytest.mark.parametrize("file", ["offsets/0", "metadata"])
def test_checkpoint_of_another_query_is_refused(folder: LocalFolder, file: str) -> None:
    folder.write(file, b"")
    with pytest.raises(IncompatibleCheckpointError, match=r"not one of dsv2 \(it has no dsv2/manifest\.json\)"):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", r"manifest\.json is damaged: "),
        (to_json({"program": {}}), r"manifest\.json is damaged: it is not a manifest of dsv2"),
        (
            to_json({"manifest_version": 99}),
            r"manifest\.json has version 99, but this version of dsv2 reads and writes",
        ),
    ],
)
def test_damaged_manifest_is_refused(folder: LocalFolder, content: bytes, said: str) -> None:
    folder.write("dsv2/manifest.json", content)
    with pytest.raises(IncompatibleCheckpointError, match=said):
        read_manifest(folder)


@pytest.mark.parametrize("checkpoint_id", [{}, {"checkpoint_id": 7}, {"checkpoint_id": "seven"}])
def test_manifest_without_a_checkpoint_id_is_damaged(folder: LocalFolder, checkpoint_id: dict[str, Any]) -> None:
    manifest = {**manifest_of(plan(), Layout.of(plan())), **checkpoint_id}
    with pytest.raises(IncompatibleCheckpointError, match="is damaged: it has no checkpoint id"):
        checkpoint_id_of(folder, manifest)


def notes_in(folder: LocalFolder) -> NoteBook:
    book = NoteBook(folder)
    book.read()
    return book


def test_notes_replace_earlier_ones(folder: LocalFolder) -> None:
    book = notes_in(folder)
    assert book.notes == Notes()
    book.write(Notes())
    assert folder.sizes("dsv2/notes") == {}, "nothing is new"
    first, second = Notes(fields={"f": ["a"]}), Notes(fields={"f": ["a"]}, ended={"in": [True, False]})
    book.write(first)
    assert notes_in(folder).notes == first
    notes_in(folder).write(second)
    assert notes_in(folder).notes == second
    assert list(folder.sizes("dsv2/notes")) == ["1.json"]


def test_damaged_notes_are_refused(folder: LocalFolder) -> None:
    folder.write("dsv2/notes/3.json", b"{")
    with pytest.raises(IncompatibleCheckpointError, match=r"notes/3\.json are damaged: .* can start without that file"):
        notes_in(folder)
