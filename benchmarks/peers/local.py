"""Runs the contestants on the local runtime."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from benchmarks.common.measure import checkpoint
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import ExecutionEnvironment
from dsv2.jobs import JobHandle, JobListener, JobProgress
from dsv2.local import LocalRuntime

__all__ = ("run_local",)


class _Times(JobListener):
    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.seconds |= {batch.batch_id: batch.duration_ms / 1000 for batch in progress.batches}


def run_local(build: Callable[[ExecutionEnvironment], list[tuple[int, int]]], task: Task) -> Outcome:
    """Run a pipeline with a durable checkpoint. ``build`` returns a list to which its sink appends number and sum."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, processes=task.parallelism))
    env.set_parallelism(task.parallelism)
    totals = build(env)
    times = _Times()
    env.add_job_listener(times)
    with checkpoint() as folder:
        env.execute("benchmark", checkpoint_location=folder)
    seconds = [times.seconds[batch] for batch in range(task.warm_up, task.warm_up + task.batches)]
    versions = {package: version(package) for package in ("dsv2", "pyarrow")}
    return Outcome(seconds, sum(number for number, _ in totals), sum(total for _, total in totals), versions)
