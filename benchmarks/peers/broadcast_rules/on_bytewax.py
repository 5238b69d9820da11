"""Bytewax, one worker: events and rules are merged into one stream; a step keeps the rules in a dict.

Bytewax can broadcast to several workers, but a stateless step has no recoverable state, so the dict is not recovered.
"""

from __future__ import annotations

from dataclasses import replace

import bytewax.operators as op
from bytewax.dataflow import Dataflow

from benchmarks.jobs.broadcast_rules import EVENTS_PER_RULE, Rule, category_of, known_limit, lets_through, rule
from benchmarks.jobs.events import Events, EventTuple
from benchmarks.peers.bytewax_flow import Generated, Tally, run
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the dataflow. The sink requires pairs of a string and a number."""
    rules: dict[int, Rule] = {}
    source, tally = Generated(task, Events(task.keys, task.kind)), Tally()
    generated = Generated(replace(task, records=-(-task.records // EVENTS_PER_RULE)), rule)

    def apply(records: list[EventTuple | Rule]) -> list[tuple[str, int]]:
        passed = []
        for record in records:
            if isinstance(record, Rule):
                rules[record.category] = record
                continue
            category = category_of(record)
            known = rules.get(category)
            if lets_through(known.limit if known else known_limit(category), record):
                passed.append(("", record[2]))
        return passed

    flow = Dataflow("broadcast_rules")
    merged = op.merge("all", op.input("events", flow, source), op.input("rules", flow, generated))
    op.output("passed", op.flat_map_batch("apply", merged, apply), tally)
    return run(flow, task, source.times, tally)
