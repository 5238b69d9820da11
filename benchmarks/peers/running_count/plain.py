"""A plain loop with a dict of counts.

Mode ``ready``: events are created before the measurement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.jobs.events import KINDS, Events
from benchmarks.jobs.running_count import one_more
from benchmarks.peers.loop import timed
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the loop. As in the other programs, a separate function adds up the results."""
    user_of = KINDS[task.kind].user
    counts: dict[int, int] = {}
    results = checksum = 0

    def collect(result: tuple[int, int]) -> None:
        nonlocal results, checksum
        results += 1
        checksum += result[1]

    def run(events: Iterable[Any]) -> None:
        for event in events:
            user = user_of(event)
            count = counts[user] = one_more(counts.get(user, 0))
            collect((user, count))

    seconds = timed(task, Events(task.keys, task.kind), run, ready="ready" in task.mode)
    return Outcome(seconds, results, checksum)
