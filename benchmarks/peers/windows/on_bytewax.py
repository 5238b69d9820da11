"""Bytewax, one worker: its windows with ``reduce_window``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower, reduce_window

from benchmarks.jobs.events import Events, EventTuple
from benchmarks.jobs.windows import add, size, time_of, user_of
from benchmarks.peers.bytewax_flow import Generated, Tally, run
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)

EPOCH = datetime.fromtimestamp(0, UTC)
WAIT = timedelta(seconds=60)
"""In Bytewax, event time advances with the clock. With this wait, no event of a run is late."""


def measure(task: Task) -> Outcome:
    """Run the dataflow. Times must be ``datetime`` objects, and keys must be strings."""
    source, tally = Generated(task, Events(task.keys, task.kind)), Tally()

    def moment(event: EventTuple) -> datetime:
        return EPOCH + timedelta(milliseconds=time_of(event))

    def keyed(events: list[EventTuple]) -> list[tuple[str, EventTuple]]:
        return [(str(user_of(event)), event) for event in events]

    def sums(results: list[tuple[str, tuple[int, EventTuple]]]) -> list[tuple[str, int]]:
        return [(user, result[2]) for user, (_, result) in results]

    flow = Dataflow("windows")
    events = op.flat_map_batch("users", op.input("events", flow, source), keyed)
    windower = TumblingWindower(length=timedelta(milliseconds=size(task)), align_to=EPOCH)
    windows = reduce_window("windows", events, EventClock(moment, WAIT), windower, add)
    op.output("sums", op.flat_map_batch("sum", windows.down, sums), tally)
    return run(flow, task, source.times, tally)
