"""Spark's metadata about the types of state: damaged or missing files, and the paths in a checkpoint that was moved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.errors import CorruptDataError
from runtime_spark.checkpoint.state_metadata import check_state_metadata, relocate_state_metadata

OPERATOR = "state/1/_metadata/v2/0"
SCHEMAS = "state/1/_stateSchema/default"


def java_text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


ONE = (1).to_bytes(4, "big")
SCHEMA = java_text("v2") + ONE + java_text('{"type":"struct"}') + ONE + java_text('{"type":"struct","fields":[]}')
IN_PIECES = java_text("v2") + ONE + java_text("{}") + (2).to_bytes(4, "big") + java_text('{"type"') + java_text(":7}")
PIECE = ONE + java_text('{"type":"struct"}')
FAMILY = java_text("pages") + b"\0\0" + PIECE + b"\0\0" + PIECE + PIECE + PIECE
FAMILIES = java_text("v3") + (2).to_bytes(4, "big") + FAMILY + FAMILY


# --- StateLayout.BLOB -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [SCHEMA, IN_PIECES, java_text("v9") + b"of another Spark"])
def test_intact_schemas_are_accepted(tmp_path: Path, schema: bytes) -> None:
    folder = LocalFolder(str(tmp_path))
    folder.write("state/0/0/_metadata/schema", schema)
    folder.write("state/1/0/1.delta", b"of a level whose schema is missing")
    check_state_metadata(folder, folder.tree("state"))


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"\0",
        SCHEMA[: len(SCHEMA) // 2],
        SCHEMA[:-1],
        SCHEMA.replace(b"v2", b"w2"),
        SCHEMA.replace(b'"fields"', b'2fields"'),
        SCHEMA.replace(b'{"type"', b'["type"'),
        java_text("v2") + (1).to_bytes(4, "big") + java_text("7"),
    ],
)
def test_damaged_schema_is_named(tmp_path: Path, schema: bytes) -> None:
    folder = LocalFolder(str(tmp_path))
    folder.write("state/1/0/_metadata/schema", schema)
    with pytest.raises(CorruptDataError, match=rf"^{tmp_path}/state/1/0/_metadata/schema is damaged: .* or delete it"):
        check_state_metadata(folder, folder.tree("state"))


# --- StateLayout.MAP --------------------------------------------------------------------------------------------------


def metadata(*schemas: str) -> bytes:
    stores = [{"storeName": "default", "stateSchemaFilePaths": list(schemas)}]
    return f"v2\n{json.dumps({'operatorInfo': {'operatorId': 1}, 'stateStoreInfo': stores})}".encode()


@pytest.fixture
def checkpoint(tmp_path: Path) -> LocalFolder:
    """One level, its description and two schemas."""
    folder = LocalFolder(str(tmp_path / "checkpoint"))
    names = [f"{SCHEMAS}/0_a", f"{SCHEMAS}/7_b"]
    folder.write(OPERATOR, metadata(*(f"file:{folder.path}/{name}" for name in names)))
    for name in names:
        folder.write(name, FAMILIES)
    return folder


def test_intact_checkpoint_is_accepted(checkpoint: LocalFolder) -> None:
    checkpoint.write(f"{SCHEMAS}/0_b", b"of a micro-batch that was not committed, and named nowhere")
    check_state_metadata(checkpoint, checkpoint.tree("state"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (OPERATOR, b""),
        (OPERATOR, metadata("x")[:50]),
        (OPERATOR, metadata("x").replace(b"v2", b"v1")),
        (OPERATOR, metadata("file:/elsewhere/state/2/_stateSchema/default/0_a")),
        (OPERATOR, metadata("x").replace(b"stateStoreInfo", b"stateStoreInfp")),
        (OPERATOR, b"v2\n[]"),
        (OPERATOR, b"v2\n\xff"),
        (f"{SCHEMAS}/7_b", b""),
        (f"{SCHEMAS}/7_b", FAMILIES[: len(FAMILIES) // 2]),
        (f"{SCHEMAS}/7_b", FAMILIES[:-1]),
        (f"{SCHEMAS}/7_b", FAMILIES + b"\0"),
        (f"{SCHEMAS}/7_b", FAMILIES.replace(b'{"type"', b'2"type"')),
    ],
)
def test_damaged_file_is_named(checkpoint: LocalFolder, name: str, content: bytes) -> None:
    checkpoint.write(name, content)
    with pytest.raises(CorruptDataError, match=rf"^{checkpoint.place(name)} is damaged: .* replace state/1/_metadata"):
        check_state_metadata(checkpoint, checkpoint.tree("state"))


def test_missing_description_is_named(checkpoint: LocalFolder) -> None:
    checkpoint.delete(OPERATOR)
    with pytest.raises(CorruptDataError, match=rf"^{checkpoint.path}/state/1/_metadata/v2/0 is missing"):
        check_state_metadata(checkpoint, checkpoint.tree("state"))


def test_missing_schema_is_named_with_its_referrer(checkpoint: LocalFolder) -> None:
    checkpoint.delete(f"{SCHEMAS}/7_b")
    said = rf"^{checkpoint.place(SCHEMAS)}/7_b, which {checkpoint.place(OPERATOR)} names, is missing"
    with pytest.raises(CorruptDataError, match=said):
        check_state_metadata(checkpoint, checkpoint.tree("state"))


def test_moved_checkpoint_refers_to_its_own_files(checkpoint: LocalFolder, tmp_path: Path) -> None:
    whole = checkpoint.read(OPERATOR)
    assert whole is not None
    Path(checkpoint.path, OPERATOR).with_name(".0.crc").touch()
    moved = LocalFolder(shutil.move(checkpoint.path, str(tmp_path / "moved")))
    check_state_metadata(moved, moved.tree("state"))
    relocate_state_metadata(moved, moved.tree("state"))
    now = moved.read(OPERATOR)
    assert now is not None
    assert json.loads(now[3:]) == json.loads(whole[3:].replace(b"/checkpoint/", b"/moved/"))
    assert [*moved.sizes("state/1/_metadata/v2")] == ["0"], "a checksum of what the file held before"


def test_unmoved_checkpoint_is_not_changed(checkpoint: LocalFolder) -> None:
    before = Path(checkpoint.path, OPERATOR).stat()
    relocate_state_metadata(checkpoint, checkpoint.tree("state"))
    assert Path(checkpoint.path, OPERATOR).stat() == before
