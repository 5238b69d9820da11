"""A job is not finished while records wait behind aligned watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobStatus, Trigger
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.sinks import CollectSink
from dsv2.sources import BaseSource, RoundRobinSplitAssigner
from dsv2.testing import Stop, TestSource
from dsv2.watermark import WatermarkDeclaration, new_builder
from runtime_spark.job.micro_batch_writer import MicroBatchWriter
from runtime_spark.job.query import StreamingJob
from tests.spans import Spans
from tests.support import local_environment
from tests.unit.runtime_spark.job.test_handles_without_spark import streaming_job

ROUND = new_builder("round").type_bool().combine_wait_for_all_channels(True).aligned().build()


class OneIsAhead(OneInputStreamProcessFunction[Any, Any]):
    """Subtask 0 sends an aligned watermark before its records. The others send none."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [ROUND]

    def open(self, ctx: Any) -> None:
        if ctx.task_info.index_of_this_subtask == 0:
            ctx.watermark_manager.emit_watermark(ROUND.new_watermark(True))

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)


def environment_with(source: BaseSource[Any]) -> ExecutionEnvironment:
    env = local_environment(parallelism=2)
    env.from_source(source).process(OneIsAhead()).global_().process(OneIsAhead()).with_uid("all").to_sink(CollectSink())
    return env


def test_local_available_now_job_with_held_records_stops() -> None:
    source = Spans({"a": 5, "b": 5}, bounded=False, assigner=RoundRobinSplitAssigner())
    job = environment_with(source).execute_async(trigger=Trigger.available_now())
    assert job.result().progress.operators["all"].records_held == 5
    assert job.status is JobStatus.STOPPED


class Query:
    """A Spark query that has ended by itself."""

    isActive = False  # noqa: N815 - Spark's name

    def exception(self) -> None:
        return None

    def awaitTermination(self, timeout: float | None) -> bool:  # noqa: N802 - Spark's name
        return True


def ended(plan: Plan, held: int) -> StreamingJob:
    nothing = Mock(files=[], next_batch=0, first_batch=0)
    writer = MicroBatchWriter(nothing, nothing, nothing, nothing, nothing)
    job = streaming_job(plan, writer, only_available=True)
    job.start(Query)  # type: ignore[arg-type]
    job._reports.add(0, [SubtaskReport("all", 0, 1, [1], held, ended=not held)], 0)
    return job


def test_spark_job_with_held_records_at_its_end_fails() -> None:
    plan = environment_with(Spans({"a": 5})).build_plan()
    job = ended(plan, held=3)
    assert job.status is JobStatus.FAILED
    with pytest.raises(JobError, match=r"records are still buffered behind aligned watermarks: 3 in .* \(uid 'all'\)"):
        job.await_termination()
    assert ended(plan, held=0).status is JobStatus.FINISHED


@pytest.mark.parametrize("source", [Spans({"a": 5}, bounded=False), TestSource([1, Stop()])])
def test_spark_job_with_unbounded_input_stops(source: BaseSource[Any]) -> None:
    job = ended(environment_with(source).build_plan(), held=3)
    assert job.await_termination() is True
    assert job.status is JobStatus.STOPPED
