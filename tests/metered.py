"""Jobs with given progress, for tests of metrics: no job runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dsv2 import ExecutionEnvironment, JobHandle, JobStatus
from dsv2.graph import Plan
from dsv2.jobs import JobListener, JobProgress
from dsv2.jobs.progress import (
    BatchProgress,
    HistogramProgress,
    InputProgress,
    OperatorProgress,
    SplitProgress,
    SubtaskProgress,
)
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from tests.support import pass_on

NOON_MS = 1_767_009_600_000


class PlayedJob:
    """A ``JobHandle`` of an unbounded job, ``orders`` to ``join`` to ``out``, which tells ``listener``."""

    def __init__(self, listener: JobListener, name: str = "shop", *, parallelism: int = 2) -> None:
        self._listener = listener
        self.name = name
        self.status = JobStatus.RUNNING
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.set_parallelism(parallelism)
        numbers = env.from_source(DataGeneratorSource(abs)).with_uid("orders").with_name("Orders")
        numbers.process(pass_on).with_uid("join").to_sink(CollectSink()).with_uid("out")
        self.plan: Plan = env.build_plan(name)

    def start(self) -> PlayedJob:
        self.status = JobStatus.RUNNING
        handle: Any = self
        self._listener.on_started(handle, self.plan)
        return self

    def report(self, batch_id: int = 0, **counts: Any) -> PlayedJob:
        """Complete a micro-batch. ``counts``: Arguments of ``progress``."""
        handle: Any = self
        self._listener.on_progress(handle, replace(progress(batch_id, **counts), job_name=self.name))
        return self

    def end(self, status: JobStatus = JobStatus.FINISHED) -> None:
        self.status = status
        handle: JobHandle = self  # type: ignore[assignment]
        self._listener.on_ended(handle)


def progress(
    batch_id: int = 0,
    *,
    records: int = 0,
    counters: Mapping[str, int] | None = None,
    gauges: Mapping[str, float] | None = None,
    histograms: Mapping[str, HistogramProgress] | None = None,
    event_times: tuple[int | None, ...] = (),
    watermarks: Mapping[str, tuple[int | None, ...]] | None = None,
    splits: tuple[SplitProgress, ...] = (),
    largest_state: int = 1001,
    rate: float = 0.0,
    batches: tuple[BatchProgress, ...] | None = None,
) -> JobProgress:
    """The progress after a micro-batch, in which ``orders`` and ``join`` have received ``records`` so far."""
    subtasks = tuple(
        SubtaskProgress(
            index,
            records_in=records // 2,
            records_out=records // 2,
            records_held=3,
            late_records=1,
            user_time_ms=records * 1.5 + index,
            state_bytes=1000 + index,
            keys=10,
            timers=index,
            event_time=event_times[index] if index < len(event_times) else None,
            inputs=(InputProgress(0, "orders", channel_count=2, idle_count=index),),
        )
        for index in range(2)
    )
    join = OperatorProgress(
        "join",
        "Join",
        records_in=records,
        records_out=records,
        records_held=6,
        watermarks=watermarks or {},
        counters=counters or {},
        gauges=gauges or {},
        histograms=histograms or {},
        state_bytes=largest_state,
        records_in_per_second=rate,
        records_out_per_second=rate,
        subtasks=subtasks,
    )
    orders = OperatorProgress("orders", "Orders", records_out=records, splits=splits)
    last = BatchProgress(
        batch_id, NOON_MS + 1000 * batch_id, 400.0, {"planning": 100.0, "source": 50.0, "level 1": 200.0}, 5, 4
    )
    return JobProgress(batch_id, {"orders": orders, "join": join}, (last,) if batches is None else batches)
