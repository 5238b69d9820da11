"""The processing-time temporal join on Spark: buffered records survive a stop and a crash, and time out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, JobError, JobHandle, JobStatus, Trigger
from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinType, OnSnapshotTimeout, processing_time_temporal_join
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.testing import Crash, Interruption, Pause, Stop, TestSource
from tests.durations import LONG, ms

BY_CLOCK = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION


class Probe(NamedTuple):
    key: str
    number: int


class Row(NamedTuple):
    key: str
    value: str


END_OF_SNAPSHOT = Row("", "")


class UntilTheMark(OneInputStreamProcessFunction[Row, Row]):
    """Declares the end of the snapshot at its mark."""

    def declare_watermarks(self) -> list[Any]:
        return [BY_CLOCK]

    def process_record(self, record: Row, output: Any, ctx: Any) -> None:
        if record == END_OF_SNAPSHOT:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(BY_CLOCK.new_watermark(True))
        else:
            output.collect(record)


def is_probe(record: Probe | Row) -> bool:
    return isinstance(record, Probe)


def is_row(record: Probe | Row) -> bool:
    return isinstance(record, Row)


def key_of(record: Probe | Row) -> str:
    return record.key


def pair(probe: Probe, row: Row | None, output: Any, ctx: Any) -> None:
    output.collect((probe.number, row.value if row is not None else None))


def start(
    spark: SparkSession,
    checkpoint: str,
    items: list[Probe | Row | Interruption],
    join: Any,
    sink: Any,
    trigger: Trigger | None = None,
) -> JobHandle:
    """Both sides come from one source. The join is at the second level."""
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    source = env.from_source(TestSource[Any](items)).with_parallelism(1)
    rows = source.filter(is_row).with_parallelism(1).process(UntilTheMark()).with_parallelism(1)
    probes = source.filter(is_probe).with_parallelism(1)
    joined: Any = probes.key_by(key_of).connect_and_process(rows.key_by(key_of), join).with_uid("join")
    joined.to_sink(sink)
    return env.execute_async("temporal", checkpoint_location=checkpoint, trigger=trigger)


def waiting(job: JobHandle) -> int:
    return job.progress.operators["join"].counters["probe_records_waiting"]


# A pause ends the micro-batch.
INPUT: list[Probe | Row | Interruption] = [
    *(Row("a", "old"), Probe("a", 1), Probe("b", 2)),
    Stop(),
    *(Row("a", "new"), Probe("a", 3), Probe("b", 4)),
    Crash("no power"),
    END_OF_SNAPSHOT,
    Pause(ms(1)),
    Probe("a", 5),
    Pause(ms(1)),
    Row("a", "newest"),
    Pause(ms(1)),
    *(Probe("a", 6), Probe("c", 7)),
]


def test_buffered_records_survive_a_stop_and_a_crash(spark: SparkSession, checkpoint: str) -> None:
    join: Any = processing_time_temporal_join(pair, JoinType.LEFT)
    sinks = [CollectSink[Any]() for _ in range(3)]
    stopped = start(spark, checkpoint, INPUT, join, sinks[0])
    assert stopped.await_termination(timedelta(seconds=LONG))
    assert (sinks[0].results, waiting(stopped)) == ([], 2)
    crashed = start(spark, checkpoint, INPUT, join, sinks[1])
    with pytest.raises(JobError, match="no power"):
        crashed.await_termination(timedelta(seconds=LONG))
    assert (sinks[1].results, waiting(crashed)) == ([], 4)
    finished = start(spark, checkpoint, INPUT, join, sinks[2])
    assert finished.await_termination(timedelta(seconds=LONG))
    assert finished.status is JobStatus.FINISHED
    waited = [(1, "new"), (2, None), (3, "new"), (4, None)]
    assert sorted(sinks[2].results) == [*waited, (5, "new"), (6, "newest"), (7, None)]
    assert waiting(finished) == 0


def test_endless_snapshot_times_out_without_new_data(spark: SparkSession, checkpoint: str) -> None:
    join: Any = processing_time_temporal_join(
        pair, snapshot_timeout=ms(1500), on_snapshot_timeout=OnSnapshotTimeout.FAIL
    )
    items: list[Probe | Row | Interruption] = [Row("a", "row"), Probe("a", 1), Pause(ms(600_000))]
    job = start(spark, checkpoint, items, join, CollectSink[Any](), Trigger.processing_time(ms(300)))
    with pytest.raises(UserFunctionError) as failed:
        job.await_termination(timedelta(seconds=LONG))
    error = failed.value
    assert (error.callback, error.cause_type, error.key) == ("on_processing_timer", "ContractError", "'a'")
    assert "1 probe records in subtask" in error.cause_message
    assert error.location.startswith(__file__)
