"""A plain loop with a dict of rules."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.jobs.broadcast_rules import EVENTS_PER_RULE, Rule, category_of, known_limit, lets_through, rule
from benchmarks.jobs.events import Events, EventTuple
from benchmarks.peers.loop import timed
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the loop. A rule is applied before the events that follow it."""
    rules: dict[int, Rule] = {}
    results = checksum = 0

    def collect(result: tuple[int, int]) -> None:
        nonlocal results, checksum
        results += 1
        checksum += result[1]

    def run(events: Iterable[EventTuple]) -> None:
        for event in events:
            if event[1] % EVENTS_PER_RULE == 0:
                new = rule(event[1] // EVENTS_PER_RULE)
                rules[new.category] = new
            category = category_of(event)
            known = rules.get(category)
            if lets_through(known.limit if known else known_limit(category), event):
                collect((event[0], event[2]))

    seconds = timed(task, Events(task.keys, task.kind), run)
    return Outcome(seconds, results, checksum)
