"""The queries of ``examples/nexmark`` on the local runtime, with a checkpoint."""

from __future__ import annotations

from benchmarks.jobs.nexmark import nexmark
from benchmarks.peers.local import run_local
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the query."""
    return run_local(lambda env: nexmark(env, task), task)
