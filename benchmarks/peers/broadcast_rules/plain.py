"""A dict of rules, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.jobs.broadcast_rules import EVENTS_PER_RULE, Rule, category_of, known_limit, lets_through, rule
from benchmarks.jobs.events import Events, EventTuple
from benchmarks.peers.loop import timed
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """A rule comes before the events that it is for."""
    rules: dict[int, Rule] = {}
    results = checksum = 0

    def tell(result: tuple[int, int]) -> None:
        nonlocal results, checksum
        results += 1
        checksum += result[1]

    def run(events: Iterable[EventTuple]) -> None:
        for event in events:
            if event[1] % EVENTS_PER_RULE == 0:
                told = rule(event[1] // EVENTS_PER_RULE)
                rules[told.category] = told
            category = category_of(event)
            known = rules.get(category)
            if lets_through(known.limit if known else known_limit(category), event):
                tell((event[0], event[2]))

    seconds = timed(task, Events(task.keys, task.kind), run)
    return Outcome(seconds, results, checksum)
