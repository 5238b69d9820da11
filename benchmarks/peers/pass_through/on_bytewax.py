"""Bytewax, one worker: ``map``."""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow

from benchmarks.jobs.events import KINDS, Events
from benchmarks.jobs.pass_through import passed
from benchmarks.peers.bytewax_flow import Generated, Tally, run
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the dataflow. The sink requires pairs."""
    value_of = KINDS[task.kind].value
    source, tally = Generated(task, Events(task.keys, task.kind)), Tally()

    def values(events: list[Any]) -> list[tuple[str, int]]:
        return [("", value_of(event)) for event in events]

    flow = Dataflow("pass_through")
    through = op.map("pass", op.input("events", flow, source), passed)
    op.output("told", op.flat_map_batch("values", through, values), tally)
    return run(flow, task, source.times, tally)
