"""The queries of ``examples/nexmark`` on Spark."""

from __future__ import annotations

from benchmarks.jobs.nexmark import nexmark
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import run_on_spark

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the query as one streaming query of Spark."""
    return run_on_spark(lambda env: nexmark(env, task), task)
