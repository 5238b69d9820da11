"""A generation of a checkpoint on Spark: its record, positions and state, also while a job writes it."""

from __future__ import annotations

import json
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from dsv2.base.folders import Folder, LocalFolder
from dsv2.checkpoint.record import SourcePosition, extended, new_record
from dsv2.checks.json_documents import to_json
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.runtime.sources.offsets import has_ended
from dsv2.sinks import CollectSink
from runtime_spark.checkpoint import generation
from runtime_spark.checkpoint.generation import Generation, read_generation
from runtime_spark.checkpoint.record import SparkRecord, SparkRecords, StoredLayout
from runtime_spark.checkpoint.spark_logs import beginning_of
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


def stored_record(plan: Plan, **parts: Any) -> SparkRecord:
    """The record of a job that is new in a generation."""
    layout = StoredLayout.of(plan, Layout.of(plan))
    of_generation = {"checkpoint_id": CHECKPOINT, "owner": str(CHECKPOINT), "savepoint_id": None, "layout": layout}
    return replace(extended(SparkRecord, new_record(plan, str(CHECKPOINT)), **of_generation), **parts)


class Checkpoint:
    """A checkpoint in a folder, with two sources: a streaming DataFrame of two streams, and a collection."""

    def __init__(self, folder: Path, parallelism: int = 2) -> None:
        self.folder = LocalFolder(str(folder))
        self.plan = plan_of(parallelism)
        self.write(streams=[("lines", 3), ("numbers", 1)])
        self.folder.write("metadata", json.dumps({"id": str(UUID(int=1))}).encode())

    def write(self, **parts: Any) -> None:
        records = SparkRecords(self.folder)
        records.write(replace(records.last or stored_record(self.plan), **parts))

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
    assert checkpoint.basis().record.has_begun_next
    checkpoint.write(unwritten=2)
    assert not checkpoint.basis().record.has_begun_next, "no sink got it"
    checkpoint.write(unwritten=1)
    assert checkpoint.basis().record.has_begun_next
    checkpoint.commit(2)
    assert not checkpoint.basis().record.has_begun_next


def test_positions_are_those_of_the_last_committed_micro_batch(checkpoint: Checkpoint) -> None:
    checkpoint.report(1, {"numbers": [{"batch": 1}]})
    checkpoint.report(2, {"numbers": [{"batch": 2}]})
    basis = checkpoint.basis()
    assert basis.batch_id == 1
    assert basis.record.job_name == "basis"
    assert basis.record.batch_id == 1
    assert basis.history.checkpoint == CHECKPOINT
    assert basis.history.first_batch == 2
    assert basis.history.written == {("f", 0): 1, ("f", 1): 1}
    assert basis.record.sources == {
        "lines": SourcePosition({"position": 0, "streams": [{"file": 1}, None]}),
        "numbers": SourcePosition({"position": 10}, [{"batch": 1}]),
    }
    checkpoint.commit(2)
    assert checkpoint.basis().record.sources["lines"].offset["streams"] == [{"file": 2}, 9]
    assert checkpoint.basis().record.sources["numbers"].reports == [{"batch": 2}]


def test_micro_batches_that_wrote_state_are_those_of_the_ledger(checkpoint: Checkpoint) -> None:
    checkpoint.folder.write("dsv2/states/1.json", to_json({"written": {"f": [1, 0]}}))
    checkpoint.folder.write("dsv2/states/2.json", to_json({"written": {"f": [1, 2]}}))
    assert checkpoint.basis().history.written == {("f", 0): 1, ("f", 1): 0}


def test_basis_of_a_running_job_is_read_again_if_the_job_moves_on(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = beginning_of(checkpoint.folder)
    seen = iter([replaced(found, batch_id=3), found])  # a micro-batch is completed while the basis is first read
    monkeypatch.setattr(generation, "listed_beginning", lambda folder: next(seen))
    assert read_generation(checkpoint.folder).batch_id == found.batch_id - 1
    assert next(seen, None) is None


def test_file_that_a_running_job_replaces_is_read_again(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [CorruptDataError("half a file"), IncompatibleCheckpointError("none")]

    def read(folder: Folder) -> SparkRecords:
        if errors:
            raise errors.pop()
        return SparkRecords(folder)

    monkeypatch.setattr(generation, "SparkRecords", read)
    assert read_generation(checkpoint.folder).stored.checkpoint_id == CHECKPOINT
    errors += [CorruptDataError("damaged") for _ in range(generation._ATTEMPTS)]
    with pytest.raises(CorruptDataError, match="damaged"):
        read_generation(checkpoint.folder)


def test_state_of_spark_is_in_no_savepoint(checkpoint: Checkpoint) -> None:
    layout = StoredLayout.of(checkpoint.plan, Layout.of(checkpoint.plan))
    checkpoint.write(layout=replace(layout, dataframes=[["Aggregate"]]))
    with pytest.raises(ConfigurationError, match="A savepoint cannot contain their state"):
        read_generation(checkpoint.folder)


def test_checkpoint_without_a_complete_micro_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a checkpoint with a complete micro-batch"):
        read_generation(LocalFolder(str(tmp_path / "none")))
    checkpoint = Checkpoint(tmp_path)
    checkpoint.begin(0, None, None, None, None)
    with pytest.raises(ConfigurationError, match="not a checkpoint with a complete micro-batch"):
        checkpoint.basis()


def test_layout_has_each_subtask() -> None:
    plan = plan_of(3)
    layout = Layout.of(plan)
    stored = StoredLayout.of(plan, layout)
    assert sorted(stored.addresses.values()) == [("f", 0), ("f", 1), ("f", 2)]
    by_operator = {slot: (plan.operators[head].uid, index) for (head, index), slot in layout.slots.items()}
    assert stored.addresses.items() <= by_operator.items()


def test_layouts_are_compared() -> None:
    plan = plan_of()
    now = StoredLayout.of(plan, Layout.of(plan))
    other = replace(now, partitions=5, state="map", dataframes=[[]])
    assert [(difference.text, difference.carried) for difference in other.differences(now)] == [
        ("the state layout was map and is now blob", True),
        ("the number of state partitions was 5 and is now 2", True),
    ]
    with_state = replace(now, dataframes=[["Aggregate"]])
    assert [change.carried for change in now.differences(with_state)] == [True]
    assert [change.carried for change in with_state.differences(now)] == [False]
    assert [layout.has_spark_state for layout in (now, other, with_state)] == [False, False, True]


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
    assert has_ended(offset) is ended
