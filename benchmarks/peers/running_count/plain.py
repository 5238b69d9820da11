"""A dict of counts, and nothing else.

Mode ``ready``: events are made before the clock runs.
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
    """The numbers are added up by a function of their own, as elsewhere."""
    user_of = KINDS[task.kind].user
    counts: dict[int, int] = {}
    results = checksum = 0

    def tell(result: tuple[int, int]) -> None:
        nonlocal results, checksum
        results += 1
        checksum += result[1]

    def run(events: Iterable[Any]) -> None:
        for event in events:
            user = user_of(event)
            count = counts[user] = one_more(counts.get(user, 0))
            tell((user, count))

    seconds = timed(task, Events(task.keys, task.kind), run, ready="ready" in task.mode)
    return Outcome(seconds, results, checksum)
