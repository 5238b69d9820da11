"""Sinks that may have written a part of a micro-batch do not get other records with its id."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.description import describe_sinks
from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.sinks import CollectSink, FileSink, ForeachBatchSink, ParallelSink, PrintSink, Sink, SinkBatch
from runtime_spark.checkpoint.notes import NoteBook, Notes
from runtime_spark.checkpoint.origin import CheckpointOrigin
from runtime_spark.checkpoint.record import JobRecord
from tests.support import local_environment


class Own(ParallelSink[int]):
    def write(self, batch: SinkBatch[int]) -> None: ...


class OwnWithLedger(Own):
    accepts_other_records = True


def plan_of(sink: Sink[Any], uid: str = "out") -> Plan:
    env = local_environment()
    env.from_collection([1]).with_uid("in").to_sink(sink).with_uid(uid)
    return env.build_plan("sinks")


def check_incomplete_batch(folder: LocalFolder, plan: Plan) -> None:
    JobRecord(folder).check_incomplete_batch(plan)


def begun(path: Path, plan: Plan, *, commit: bool = False, first_batch: int | None = None) -> LocalFolder:
    """The checkpoint of a program that has begun its micro-batch 3."""
    folder = LocalFolder(str(path))
    folder.write("metadata", b'{"id": "%s"}' % str(UUID(int=1)).encode())
    for number in range(4):
        folder.write(f"offsets/{number}", b'v1\n{}\n{"position": 1}')
        if number < 3 or commit:
            folder.write(f"commits/{number}", b"v1\n{}")
    NoteBook(folder).write(Notes(sinks=describe_sinks(plan)))
    if first_batch is not None:
        CheckpointOrigin(None, "id", {}, [], {}, "job", first_batch).write(folder)
    return folder


@pytest.mark.parametrize("sink", [ForeachBatchSink[int](print), Own()], ids=["foreach batch", "own"])
def test_sink_that_relies_on_the_same_records_is_named(tmp_path: Path, sink: Sink[int]) -> None:
    plan = plan_of(sink)
    said = r"sink .*uid 'out'.* micro-batch 13, .* without the changes: it completes .*as_new_job=True"
    with pytest.raises(IncompatibleCheckpointError, match=said):
        check_incomplete_batch(begun(tmp_path, plan, first_batch=10), plan)


def test_job_without_a_complete_micro_batch_may_begin_anew(tmp_path: Path) -> None:
    plan = plan_of(Own())
    folder = begun(tmp_path, plan)
    for number in range(3):
        folder.delete(f"commits/{number}")
        folder.delete(f"offsets/{number + 1}")
    with pytest.raises(IncompatibleCheckpointError, match=r"micro-batch 0.* start with a new checkpoint_location"):
        check_incomplete_batch(folder, plan)


@pytest.mark.parametrize(
    "sink",
    [CollectSink[int](), PrintSink[int](), FileSink[int]("a", schema="a int"), OwnWithLedger()],
    ids=lambda sink: type(sink).__name__,
)
def test_other_sinks_may_get_other_records(tmp_path: Path, sink: Sink[int]) -> None:
    plan = plan_of(sink)
    check_incomplete_batch(begun(tmp_path, plan), plan)


def test_micro_batch_that_no_sink_got_may_change(tmp_path: Path) -> None:
    plan = plan_of(Own())
    folder = begun(tmp_path, plan)
    NoteBook(folder).write(Notes(sinks=describe_sinks(plan), unwritten=3))
    check_incomplete_batch(folder, plan)
    folder.write("offsets/4", b'v1\n{}\n{"position": 1}')
    folder.write("commits/3", b"v1\n{}")
    with pytest.raises(IncompatibleCheckpointError, match="micro-batch 4"):
        check_incomplete_batch(folder, plan)


def test_new_sinks_and_complete_micro_batches_do_not_matter(tmp_path: Path) -> None:
    plan = plan_of(Own())
    check_incomplete_batch(begun(tmp_path / "complete", plan, commit=True), plan)
    check_incomplete_batch(begun(tmp_path / "other", plan_of(Own(), "before")), plan)
    check_incomplete_batch(LocalFolder(str(tmp_path / "empty")), plan)
