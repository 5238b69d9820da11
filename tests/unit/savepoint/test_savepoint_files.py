"""The files of a savepoint: written, read, damaged."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec import structs

from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.column_types import ColumnType, ListColumn, StructColumn
from dsv2.checkpoint.program import OperatorDescription, ProgramDescription, StateDescription
from dsv2.checkpoint.record import Origin, SinkRecord, SourcePosition
from dsv2.checkpoint.type_shapes import TypeShape
from dsv2.checks.json_documents import from_json, to_json
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.graph import OperatorKind
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint import Savepoint
from dsv2.savepoint.metadata import SavepointInfo, SinkPosition
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.tables import TableId, rows_in
from dsv2.savepoint.writer import write_savepoint

CODEC = Codec(TypeRegistry())
dumped = CODEC.dumps
ROWS = [
    ("a", StateRow(0, RowKind.PART, "fields", None, dumped(1))),
    ("a", StateRow(1, RowKind.KEYED, "count", dumped("k"), dumped(2))),
    ("a", StateRow(1, RowKind.KEYED, "count", dumped("l"), dumped(1 << 70))),
    ("a", StateRow(1, RowKind.KEYED, "Count", dumped("k"), dumped(3))),
    ("a", StateRow(1, RowKind.EXPIRING, "recent", dumped("k"), dumped([("x", 17), ("y", 18)]))),
    ("a", StateRow(0, RowKind.KEY, None, dumped((1, "seen")), None)),
    ("../b c%/ü", StateRow(0, RowKind.TIMERS, "event", dumped(2.5), dumped([1, 2]))),
    ("../b c%/ü", StateRow(0, RowKind.TIMERS, "expiry", dumped(2.5), dumped([]))),
]
COLUMNS: dict[str, ColumnType | None] = {"count": "int64", "Count": None, "recent": ListColumn("string")}
EARLIER = ProgramDescription(1, "", "a job", {}, {}, {})
STATES = {
    name: StateDescription("ValueState", (TypeShape("builtins.int"),), 1, False, "NONE", False, {}, column)
    for name, column in COLUMNS.items()
}
OPERATOR = OperatorDescription(
    kind=OperatorKind.ONE_INPUT, function="Function", defined_at="a.py:1", automatic_uid=False, part_of="",
    parallelism=2, max_parallelism=128, stateless=False, keeps_state=True, inputs=(), output_keys=(None,),
    states=STATES, split_sources=(), needs_clock=False, state_layout="", contents="", aggregates=None,
)  # fmt: skip
PROGRAM = structs.replace(EARLIER, operators={"a": OPERATOR})
POSITIONS = {"in": SourcePosition({"position": 3}, [{"batch": 1}]), "other": SourcePosition({})}


def info_of(batch_id: int, *programs: ProgramDescription, **parts: Any) -> SavepointInfo:
    return SavepointInfo(job_id="its id", batch_id=batch_id, programs=list(programs), **parts)


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    folder = LocalFolder(str(tmp_path / "savepoint"))
    sinks = {"out": SinkRecord("Kind", "place", True)}
    info = info_of(7, EARLIER, PROGRAM, sources=POSITIONS, sinks=sinks, fields={"a": ["b"]})
    write_savepoint(folder, info, ROWS, CODEC)
    return folder


def files(folder: LocalFolder) -> list[Path]:
    return sorted(Path(folder.path).rglob("*.parquet"))


def test_rows_and_description_are_read_back(folder: LocalFolder) -> None:
    savepoint = SavepointReader(folder)
    savepoint.verify()
    for uid in ("a", "../b c%/ü"):
        assert sorted(savepoint.rows(uid)) == sorted(row for of, row in ROWS if of == uid)
    assert list(savepoint.rows("another")) == []
    assert savepoint.info.origin == Origin("a job", "its id", 7)
    assert savepoint.info.programs == [EARLIER, PROGRAM]
    assert savepoint.info.fields == {"a": ["b"]}
    assert savepoint.info.sources == POSITIONS
    assert savepoint.info.sink_positions == {"out": SinkPosition("Kind", "place", True, "its id", 7, "")}
    assert {
        (table.id, table.key and str(table.key), table.value and str(table.value)) for table in savepoint.info.tables
    } == {
        (TableId("a", RowKind.PART, None), None, None),
        (TableId("a", RowKind.KEYED, "count"), "string", "int64"),
        (TableId("a", RowKind.KEYED, "Count"), "string", None),
        (TableId("a", RowKind.EXPIRING, "recent"), "string", str(ListColumn("string"))),
        (TableId("a", RowKind.KEY, None), str(StructColumn((("_1", "int64"), ("_2", "string")))), None),
        (TableId("../b c%/ü", RowKind.TIMERS, None), "float64", str(ListColumn("int64"))),
    }
    assert all(Path(folder.path, "state") in file.parents for file in files(folder))


def test_file_of_another_kind_is_damaged() -> None:
    with pytest.raises(CorruptDataError, match=r"state/a\.parquet is damaged: .* Restore the savepoint from a backup"):
        list(rows_in(b"not Parquet", "state/a.parquet"))


def test_savepoint_without_state(tmp_path: Path) -> None:
    info = info_of(-1, EARLIER)
    written = write_savepoint(LocalFolder(str(tmp_path)), info, [], CODEC)
    assert SavepointReader(LocalFolder(str(tmp_path))).info == written


def test_tables_have_typed_columns(folder: LocalFolder) -> None:
    found = {}
    for table in SavepointReader(folder).info.tables:
        content = pq.read_table(Path(folder.path, table.folder)).to_pydict()
        found[table.id.uid, table.id.state or table.id.kind] = content.get("key"), content.get("value")
    assert found == {
        ("a", "part"): (None, None),
        ("a", "count"): (["k", "l"], [2, None]),  # the second one has more than 64 bits
        ("a", "Count"): (["k"], None),
        ("a", "recent"): (["k"], [["x", "y"]]),
        ("a", "key"): ([{"_1": 1, "_2": "seen"}], None),
        ("../b c%/ü", "timers"): ([2.5, 2.5], [[1, 2], []]),
    }


def test_folder_must_be_empty(folder: LocalFolder) -> None:
    info = SavepointReader(folder).info
    with pytest.raises(ConfigurationError, match="savepoint is not empty"):
        write_savepoint(folder, info, ROWS, CODEC)


def test_folder_without_description_is_no_savepoint(folder: LocalFolder) -> None:
    folder.delete("savepoint.json")
    with pytest.raises(ConfigurationError, match=r"is not a savepoint: it has no savepoint\.json"):
        SavepointReader(folder)


def test_later_version_is_refused(folder: LocalFolder) -> None:
    entry = from_json(folder.read("savepoint.json"))
    folder.write("savepoint.json", to_json(entry | {"version": 2, "dsv2": "9.9"}))
    with pytest.raises(IncompatibleCheckpointError, match=r"format version 2.*dsv2 that wrote it \(9\.9\)"):
        SavepointReader(folder)


def test_changed_bytes_of_the_description_are_noticed(folder: LocalFolder) -> None:
    data = folder.read("savepoint.json")
    assert data is not None
    for place in range(0, len(data), 7):
        folder.write("savepoint.json", data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises((CorruptDataError, IncompatibleCheckpointError), match=r"savepoint\.json"):
            SavepointReader(folder)


@pytest.mark.parametrize("part", ["version", "job_id", "sources", "files", "tables", "programs"])
def test_description_without_a_part_is_damaged(folder: LocalFolder, part: str) -> None:
    entry = from_json(folder.read("savepoint.json"))
    del entry[part]
    folder.write("savepoint.json", to_json(entry))
    with pytest.raises(CorruptDataError, match=r"savepoint\.json is damaged"):
        SavepointReader(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Path.unlink, "is missing"),
        (lambda file: file.write_bytes(file.read_bytes() + b"x"), r"has \d+ bytes, not \d+"),
        (lambda file: file.with_name("another.parquet").write_bytes(b""), "does not belong to the savepoint"),
    ],
    ids=["missing", "longer", "foreign"],
)
def test_files_are_compared_with_the_description(
    folder: LocalFolder, change: Callable[[Path], object], message: str
) -> None:
    for file in files(folder):
        before = file.read_bytes()
        change(file)
        with pytest.raises(CorruptDataError, match=f"{file.parent.name}/.*{message}"):
            SavepointReader(folder)
        file.with_name("another.parquet").unlink(missing_ok=True)
        file.write_bytes(before)


def test_changed_file_of_the_same_size_is_noticed_when_it_is_read(folder: LocalFolder) -> None:
    file = next(file for file in files(folder) if "keyed" in file.parent.name)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    savepoint = SavepointReader(folder)
    for read in (savepoint.verify, lambda: list(savepoint.rows("a"))):
        with pytest.raises(CorruptDataError, match=f"{file.name} was changed"):
            read()


def edited(folder: LocalFolder, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the description, as somebody could who knows its format."""
    entry = from_json(folder.read("savepoint.json"))
    change(entry)
    folder.write("savepoint.json", to_json(entry))


@pytest.mark.parametrize("name", ["savepoint.json", "state", "{0}", "{0}/part-00000.parquet"])
def test_symbolic_links_are_refused(folder: LocalFolder, tmp_path: Path, name: str) -> None:
    entry = from_json(folder.read("savepoint.json"))
    place = Path(folder.path, name.format(entry["tables"][0]["folder"]))
    place.symlink_to(place.rename(tmp_path / "elsewhere"))
    with pytest.raises(CorruptDataError, match=f"{place} is a symbolic link"):
        SavepointReader(folder)


def test_savepoint_may_be_opened_through_a_link(folder: LocalFolder, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(folder.path)
    SavepointReader(LocalFolder(str(tmp_path / "latest"))).verify()


def test_files_that_only_spark_would_read_are_refused(folder: LocalFolder) -> None:
    place = files(folder)[0].with_name("_a=b.parquet")
    place.write_bytes(b"")
    with pytest.raises(CorruptDataError, match=f"{place.name} does not belong to the savepoint"):
        SavepointReader(folder)


@pytest.mark.parametrize("below", ["", "/below"])
def test_tables_have_folders_of_their_own(folder: LocalFolder, below: str) -> None:
    def moved(entry: dict[str, Any]) -> None:
        first, second = entry["tables"][:2]
        place = f"{first['folder']}{below}"
        entry["files"] = {name.replace(second["folder"], place): of for name, of in entry["files"].items()}
        second["folder"] = place

    edited(folder, moved)
    with pytest.raises(CorruptDataError, match=r"savepoint\.json is damaged"):
        SavepointReader(folder)


OUTSIDE = ["../outside", "state/../../outside", "/tmp/outside", "state", "state/.hidden", ""]
INTERPRETED = ["a b", "a:b", "a*", "a%2e", "a\0", "a\n", "{{a,b}}", "~", "ü", "a\\b"]  # by some file system


@pytest.mark.parametrize("outside", [*OUTSIDE, *(f"state/{name}" for name in INTERPRETED)])
def test_description_cannot_name_files_elsewhere(folder: LocalFolder, outside: str) -> None:
    def moved(entry: dict[str, Any]) -> None:
        table = entry["tables"][0]
        entry["files"] = {
            name.replace(f"{table['folder']}/", f"{outside}/"): file for name, file in entry["files"].items()
        }
        table["folder"] = outside

    edited(folder, moved)
    with pytest.raises(CorruptDataError, match=r"savepoint\.json is damaged: a folder cannot be"):
        SavepointReader(folder)


@pytest.mark.parametrize(
    "name", ["../savepoint.json", "state/x", "{0}/../a", "{0}/", "{0}/.a", "{0}/a/b", "/etc/passwd"]
)
def test_files_are_in_the_folders_of_tables(folder: LocalFolder, name: str) -> None:
    file = {"size": 3, "sha256": ""}
    edited(folder, lambda entry: entry["files"].update({name.format(entry["tables"][0]["folder"]): file}))
    with pytest.raises(CorruptDataError, match=r"savepoint\.json is damaged: a file cannot be"):
        SavepointReader(folder)


@pytest.mark.parametrize("part", ["savepoint_id", "job_id", "programs", "keys", "fields", "holding", "sinks"])
@pytest.mark.parametrize("value", [None, 5, [1], {"a": 1}])
def test_parts_of_other_types_are_damaged(folder: LocalFolder, part: str, value: Any) -> None:
    if (part, value) == ("sinks", {"a": 1}):
        value = "text"
    edited(folder, lambda entry: entry.update({part: value}))
    with pytest.raises(CorruptDataError, match=r"savepoint\.json is damaged"):
        SavepointReader(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry.update(programs=[]),
        lambda entry: entry.update(programs=[{}]),
        lambda entry: entry["programs"][-1]["operators"].update(b=1),
        lambda entry: entry["programs"][-1]["operators"].update(b={"states": 1}),
        lambda entry: entry.update(batch_id="1"),
        lambda entry: entry["sources"].update(x={"offset": 1}),
        lambda entry: entry["sinks"]["out"].update(exactly_once=1),
        lambda entry: entry["sinks"]["out"].update(target=None),
        lambda entry: entry["sinks"]["out"].pop("kind"),
        lambda entry: entry["tables"][0]["id"].update(kind="other"),
        lambda entry: entry["tables"][0]["id"].update(uid=1),
        lambda entry: entry["tables"][0].update(key="text"),
        lambda entry: entry["tables"][0].update(value={"type": "list", "element": {"type": "struct", "fields": []}}),
        lambda entry: entry["tables"][0].update(value={"type": "map", "key": "string"}),
        lambda entry: next(iter(entry["files"].values())).update(size="1"),
    ],
)
def test_details_of_other_types_are_damaged(folder: LocalFolder, change: Callable[[dict[str, Any]], object]) -> None:
    edited(folder, change)
    with pytest.raises(CorruptDataError, match=r"savepoint\.json is damaged"):
        SavepointReader(folder)


def test_deeply_nested_description_is_damaged(folder: LocalFolder) -> None:
    folder.write("savepoint.json", b"[" * 200_000)
    with pytest.raises(CorruptDataError, match=r"savepoint\.json is damaged: it is nested too deeply"):
        SavepointReader(folder)


@pytest.mark.parametrize("name", ["notes.txt", "state/notes.txt", "state/0099-other/part-0.parquet"])
def test_foreign_files_beside_the_tables_are_refused(folder: LocalFolder, name: str) -> None:
    folder.write(name, b"x")
    with pytest.raises(CorruptDataError, match=rf"savepoint/{'/'.join(name.split('/')[:2])} does not belong"):
        SavepointReader(folder)


def test_state_is_not_read_from_a_damaged_file(folder: LocalFolder) -> None:
    file = next(file for file in files(folder) if file.parent.name.endswith("keyed-count"))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"?")
    with pytest.raises(CorruptDataError, match=f"{file.name} was changed"):
        Savepoint(folder).state("a", "count").to_arrow()
    file.write_bytes(damaged := content[:40] + b"????" + content[44:-4] + b"????")
    name = str(file.relative_to(folder.path))
    edited(folder, lambda entry: entry["files"][name].update(sha256=sha256(damaged).hexdigest()))
    with pytest.raises(CorruptDataError, match=f"{file.name} is damaged: .* Restore"):
        Savepoint(folder).state("a", "count").to_arrow()


def test_file_is_no_savepoint(folder: LocalFolder) -> None:
    with pytest.raises(ConfigurationError, match=r"parquet is not a savepoint"):
        SavepointReader(LocalFolder(str(files(folder)[0])))


def test_difference_of_keys_that_several_subtasks_have(tmp_path: Path) -> None:
    def savepoint(name: str, *values: int) -> Savepoint:
        folder = LocalFolder(str(tmp_path / name))
        info = info_of(7, EARLIER)
        rows = [StateRow(i, RowKind.IN_PANE, "0", dumped("k"), dumped(value)) for i, value in enumerate(values)]
        write_savepoint(folder, info, (("a", row) for row in rows), CODEC)
        return Savepoint(folder)

    first = savepoint("first", 1, 2)
    assert not first.diff(savepoint("same", 2, 1))
    (change,) = first.diff(savepoint("other", 3, 2)).tables.values()
    assert (change.added, change.removed, change.changed) == (0, 0, 1)


def test_hidden_files_are_ignored(folder: LocalFolder) -> None:
    for name in ("_SUCCESS", ".part-00000.parquet.crc"):
        files(folder)[0].with_name(name).write_bytes(b"x")
    SavepointReader(folder).verify()
