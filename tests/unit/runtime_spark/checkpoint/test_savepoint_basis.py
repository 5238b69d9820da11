"""The basis of a savepoint: files of a checkpoint, and its records for later savepoints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dsv2.base.folders import Folder, LocalFolder
from dsv2.checkpoint.record import SourcePosition
from dsv2.checks.json_documents import to_json
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.runtime.sources.sent_watermarks import has_ended
from dsv2.sinks import CollectSink
from runtime_spark.checkpoint import record
from runtime_spark.checkpoint.manifest import read_manifest, write_manifest
from runtime_spark.checkpoint.notes import NoteBook, Notes
from runtime_spark.checkpoint.origin import CheckpointOrigin
from runtime_spark.checkpoint.record import Generation, read_generation
from runtime_spark.checkpoint.spark_logs import beginning_of
from runtime_spark.checkpoint.state_location import Placement
from runtime_spark.frames.layout import Layout
from tests.support import local_environment, pass_on

CHECKPOINT = UUID(int=7)


def plan_of(parallelism: int = 2) -> Plan:
    env = local_environment()
    numbers = env.from_collection([1], "numbers").with_uid("numbers")
    numbers.key_by(abs).process(pass_on).with_uid("f").with_parallelism(parallelism).to_sink(CollectSink()).with_uid(
        "out"
    )
    return env.build_plan("basis")


def offsets(*lines: Any) -> bytes:
    return "\n".join(["v1", "{}", *("-" if line is None else json.dumps(line) for line in lines)]).encode()


class Checkpoint:
    """A checkpoint in a folder, with two sources: a streaming DataFrame of two streams, and a collection."""

    def __init__(self, folder: Path) -> None:
        self.folder = LocalFolder(str(folder))
        self.plan = plan_of()
        layout = Layout.of(self.plan)
        write_manifest(self.folder, self.plan, layout, CHECKPOINT)
        Placement.of(self.plan, layout, [("lines", 3), ("numbers", 1)]).write(self.folder)
        self.folder.write("metadata", json.dumps({"id": str(UUID(int=1))}).encode())

    def begin(self, batch_id: int, *lines: Any) -> None:
        self.folder.write(f"offsets/{batch_id}", offsets(*lines))

    def commit(self, batch_id: int) -> None:
        self.folder.write(f"commits/{batch_id}", b"v1\n{}")

    def report(self, batch_id: int, reports: Any) -> None:
        self.folder.write(f"dsv2/reports/{batch_id}.json", to_json({"reports": reports}))

    def basis(self) -> Generation:
        return read_generation(self.folder)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    checkpoint = Checkpoint(tmp_path)
    for batch_id in (0, 1, 2):
        lines = ({"file": batch_id}, None if batch_id < 2 else 9, {"position": 0}, {"position": 10 * batch_id})
        checkpoint.begin(batch_id, *lines)
    checkpoint.commit(0)
    checkpoint.commit(1)
    return checkpoint


def test_micro_batch_that_has_begun_is_noted(checkpoint: Checkpoint) -> None:
    assert checkpoint.basis().has_begun_next
    NoteBook(checkpoint.folder).write(Notes(unwritten=2))
    assert not checkpoint.basis().has_begun_next, "no sink got it"
    NoteBook(checkpoint.folder).write(Notes(unwritten=1))
    assert checkpoint.basis().has_begun_next
    checkpoint.commit(2)
    assert not checkpoint.basis().has_begun_next


def test_positions_are_those_of_the_last_committed_micro_batch(checkpoint: Checkpoint) -> None:
    checkpoint.report(1, {"numbers": [{"batch": 1}]})
    checkpoint.report(2, {"numbers": [{"batch": 2}]})
    basis = checkpoint.basis()
    assert basis.batch_id == 1
    assert basis.job_name == "basis"
    assert basis.checkpoint_id == basis.history.checkpoint == CHECKPOINT
    assert basis.history.first_batch == 2
    assert basis.history.written == {("f", 0): 1, ("f", 1): 1}
    assert basis.sources == {
        "lines": SourcePosition({"position": 0, "streams": [{"file": 1}, None]}),
        "numbers": SourcePosition({"position": 10}, [{"batch": 1}]),
    }
    checkpoint.commit(2)
    assert checkpoint.basis().sources["lines"].offset["streams"] == [{"file": 2}, 9]
    assert checkpoint.basis().sources["numbers"].reports == [{"batch": 2}]


def test_micro_batches_that_wrote_state_are_those_of_the_ledger(checkpoint: Checkpoint) -> None:
    checkpoint.folder.write("dsv2/states/1.json", to_json({"written": {"f": [1, 0]}}))
    checkpoint.folder.write("dsv2/states/2.json", to_json({"written": {"f": [1, 2]}}))
    assert checkpoint.basis().history.written == {("f", 0): 1, ("f", 1): 0}


def test_basis_of_a_running_job_is_read_again_if_the_job_moves_on(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = beginning_of(checkpoint.folder)
    before = replace(found, batch_id=found.batch_id - 1)
    pass_on = iter([before, found, found, found])  # a micro-batch is completed while the basis is first read
    monkeypatch.setattr(record, "beginning_of", lambda folder: next(pass_on))
    assert read_generation(checkpoint.folder).batch_id == found.batch_id - 1
    assert next(pass_on, None) is None


def test_file_that_a_running_job_replaces_is_read_again(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, errors = read_manifest, [CorruptDataError("half a file"), IncompatibleCheckpointError("none")]

    def replaced(folder: Folder) -> Any:
        if errors:
            raise errors.pop()
        return read(folder)

    monkeypatch.setattr(record, "read_manifest", replaced)
    assert read_generation(checkpoint.folder).checkpoint_id == CHECKPOINT
    errors += [CorruptDataError("damaged") for _ in range(record._ATTEMPTS)]
    with pytest.raises(CorruptDataError, match="damaged"):
        read_generation(checkpoint.folder)


def test_state_of_spark_is_in_no_savepoint(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "has_spark_state", lambda manifest: True)
    with pytest.raises(ConfigurationError, match="A savepoint cannot contain their state"):
        read_generation(checkpoint.folder)


def test_checkpoint_without_a_complete_micro_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a checkpoint with a complete micro-batch"):
        read_generation(LocalFolder(str(tmp_path / "none")))
    checkpoint = Checkpoint(tmp_path)
    checkpoint.begin(0, None, None, None, None)
    with pytest.raises(ConfigurationError, match="not a checkpoint with a complete micro-batch"):
        checkpoint.basis()


def test_missing_and_damaged_placements_are_named(checkpoint: Checkpoint) -> None:
    name = "dsv2/placement.json"
    for data in (b"{", b"{}", checkpoint.folder.read(name)[:-9] + b"000000000"):  # type: ignore[index]
        checkpoint.folder.write(name, data)
        with pytest.raises(CorruptDataError, match=r"placement\.json is damaged"):
            checkpoint.basis()
    checkpoint.folder.delete(name)
    with pytest.raises(CorruptDataError, match=r"placement\.json is missing"):
        checkpoint.basis()


def test_placement_names_each_subtask(tmp_path: Path) -> None:
    folder, plan = LocalFolder(str(tmp_path)), plan_of(3)
    layout = Layout.of(plan)
    Placement.of(plan, layout, [("numbers", 1)]).write(folder)
    found = Placement.read(folder)
    assert found == Placement.of(plan, layout, [("numbers", 1)])
    assert sorted(found.addresses.values()) == [("f", 0), ("f", 1), ("f", 2)]
    by_operator = {slot: (plan.operators[head].uid, index) for (head, index), slot in layout.slots.items()}
    assert found.addresses.items() <= by_operator.items()


def test_origin_is_recorded(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    assert CheckpointOrigin.read(folder) is None
    sources = {"a": SourcePosition({"position": 1}, [{"batch": 2}])}
    origin = CheckpointOrigin("/s", "id", {"operators": {}}, [{"operators": {"a": {}}}], sources, "job", 3)
    origin.write(folder)
    assert CheckpointOrigin.read(folder) == origin
    data = folder.read("dsv2/origin.json")
    assert data is not None
    folder.write("dsv2/origin.json", data.replace(b'"/s"', b'"/t"'))
    with pytest.raises(CorruptDataError, match=r"origin\.json is damaged"):
        CheckpointOrigin.read(folder)


@pytest.mark.parametrize(
    ("offset", "ended"),
    [
        ({"position": 3}, False),
        ({"position": 3, "ended": True}, True),
        ({"batch": -1}, False),
        ({"batch": 1, "readers": [{"ended": 1}, {"ended": None}]}, False),
        ({"batch": 1, "readers": [{"ended": 1}, {"ended": 0}]}, True),
    ],
)
def test_ended_sources(offset: dict[str, Any], ended: bool) -> None:
    assert has_ended(SourcePosition(offset)) is ended
