"""Sinks that may have written a part of a micro-batch do not get other records with its id."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dsv2.checkpoint.description import describe
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.record import JobRecord, sinks_of
from dsv2.checkpoint.start import Action, Start, Stored, decide
from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from dsv2.sinks import CollectSink, FileSink, ForeachBatchSink, ParallelSink, PrintSink, Sink, SinkBatch
from tests.support import local_environment


class Own(ParallelSink[int]):
    def write(self, batch: SinkBatch[int]) -> None: ...


class OwnWithLedger(Own):
    accepts_other_records = True


def plan_of(sink: Sink[Any], uid: str = "out") -> Plan:
    env = local_environment()
    env.from_collection([1]).with_uid("in").to_sink(sink).with_uid(uid)
    return env.build_plan("sinks")


def migrated(plan: Plan, before: Plan | None = None, **parts: Any) -> Start:
    """Start ``plan`` with a change that a savepoint carries, while micro-batch 13 of ``before`` is not complete."""
    record = JobRecord(
        job_id="job", batch_id=12, programs=[describe(plan)], sinks=sinks_of(before or plan), has_begun_next=True
    )
    record = replace(record, **parts)
    change = Difference("layout", "it has changed", carried=True)
    return decide(Stored(record, "/checkpoint", differences=[change]), plan, RunOptions(), "job")


@pytest.mark.parametrize("sink", [ForeachBatchSink[int](print), Own()], ids=["foreach batch", "own"])
def test_sink_that_relies_on_the_same_records_is_named(sink: Sink[int]) -> None:
    said = r"sink .*uid 'out'.* micro-batch 13, .* without the changes: it completes .*as_new_job=True"
    with pytest.raises(IncompatibleCheckpointError, match=said):
        migrated(plan_of(sink)).check()


def test_job_without_a_complete_micro_batch_needs_another_checkpoint() -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"micro-batch 0.* start with a new checkpoint_location"):
        migrated(plan_of(Own()), batch_id=-1).check()


@pytest.mark.parametrize(
    "sink",
    [CollectSink[int](), PrintSink[int](), FileSink[int]("a", schema="a int"), OwnWithLedger()],
    ids=lambda sink: type(sink).__name__,
)
def test_other_sinks_may_get_other_records(sink: Sink[int]) -> None:
    assert migrated(plan_of(sink)).action is Action.MIGRATE


def test_new_sinks_and_complete_micro_batches_do_not_matter() -> None:
    assert migrated(plan_of(Own()), has_begun_next=False).action is Action.MIGRATE
    assert migrated(plan_of(Own()), plan_of(Own(), "before")).action is Action.MIGRATE


def test_unchanged_program_does_not_continue_beside_a_later_attempt() -> None:
    plan = plan_of(Own())
    record = JobRecord(job_id="job", batch_id=12, programs=[describe(plan)], sinks=sinks_of(plan))
    later = replace(record, has_begun_next=True)
    start = decide(Stored(record, "/checkpoint", discarded=later), plan, RunOptions(), "job")
    assert start.action is Action.REFUSE
    assert decide(Stored(record, "/checkpoint", discarded=record), plan, RunOptions(), "job").action is Action.CONTINUE
