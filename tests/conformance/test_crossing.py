"""Aligned watermarks that cross fail the job on every runtime. No job ends as if its records had been processed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobStatus, RuntimeExecutionMode
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.handle import JobRuntime
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests.conformance.functions import NUMBERS
from tests.conformance.watermarks import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMING, BATCH = RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH
DAY, WEEK = (
    new_builder(name).type_bool().combine_wait_for_all_channels(True).aligned().build() for name in ("day", "week")
)


class Crossing(OneInputStreamProcessFunction[int, int]):
    """Sends two aligned watermarks with its records, in an order that depends on the subtask."""

    def __init__(self) -> None:
        self.sent = 0

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [DAY, WEEK]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        order = [DAY, WEEK] if ctx.task_info.index_of_this_subtask == 0 else [WEEK, DAY]
        if self.sent < len(order):
            send(ctx.non_partitioned_context, order[self.sent], True)
            self.sent += 1


def check_fails(runtime: JobRuntime, mode: RuntimeExecutionMode, batch: int | None = None, **options: Any) -> None:
    env = ExecutionEnvironment.get_instance(runtime)
    env.set_parallelism(2)
    env.set_execution_mode(mode)
    source = env.from_source(CollectionSource(NUMBERS, records_per_batch=batch))
    source.process(Crossing()).shuffle().map(abs).with_uid("behind").to_sink(CollectSink())
    job = env.execute_async("crossing", **options)
    with pytest.raises(JobError, match="aligned watermarks cross") as caught:
        job.await_termination()
    assert job.status is JobStatus.FAILED
    for said in ("Map (uid 'behind')", f"defined at {__file__}:", "'day' (subtask 0)", "'week' (subtask 1)"):
        assert said in str(caught.value)


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
@pytest.mark.parametrize("batches", [(), (1,), (4,)])
@pytest.mark.parametrize("seed", range(5))
def test_locally(mode: RuntimeExecutionMode, batches: tuple[int, ...], seed: int) -> None:
    check_fails(LocalRuntime(seed=seed, batches=batches), mode)


def test_on_spark_in_batch(spark: SparkSession) -> None:
    from runtime_spark import SparkRuntime

    check_fails(SparkRuntime(spark), BATCH)


@pytest.mark.parametrize("batch", [None, 2])
def test_on_spark_in_streaming(spark: SparkSession, checkpoint: str, batch: int | None) -> None:
    from runtime_spark import SparkRuntime

    check_fails(SparkRuntime(spark), STREAMING, batch, checkpoint_location=checkpoint)
