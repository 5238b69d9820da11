"""Bytewax, one worker: ``stateful_batch``, which receives all available events of a user in one call."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic

from benchmarks.jobs.events import KINDS, Events
from benchmarks.jobs.running_count import one_more
from benchmarks.peers.bytewax_flow import Generated, Tally, run
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


class Count(StatefulBatchLogic):
    """The count of one user."""

    def __init__(self, count: int | None) -> None:
        self.count = count or 0

    def on_batch(self, values: list[Any]) -> tuple[Iterable[int], bool]:
        count, counts = self.count, []
        for _ in values:
            count = one_more(count)
            counts.append(count)
        self.count = count
        return counts, StatefulBatchLogic.RETAIN

    def notify_at(self) -> datetime | None:
        return None

    def snapshot(self) -> int:
        return self.count


def measure(task: Task) -> Outcome:
    """Run the dataflow. Keys must be strings."""
    user_of = KINDS[task.kind].user
    source, tally = Generated(task, Events(task.keys, task.kind)), Tally()

    def keyed(events: list[Any]) -> list[tuple[str, Any]]:
        return [(str(user_of(event)), event) for event in events]

    flow = Dataflow("running_count")
    events = op.flat_map_batch("users", op.input("events", flow, source), keyed)
    op.output("counts", op.stateful_batch("count", events, Count), tally)
    return run(flow, task, source.times, tally)
