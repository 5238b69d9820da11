"""A plain loop with a dict per window. At the end of a batch, it closes the windows that event time has passed.

Mode ``ready``: events are created before the measurement.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.jobs.events import Events, EventTuple
from benchmarks.jobs.windows import add, size, time_of, user_of
from benchmarks.peers.loop import timed
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the loop. The end of input closes the remaining windows."""
    length = size(task)
    windows: dict[int, dict[int, EventTuple]] = {}
    results = checksum = 0

    def collect(result: EventTuple) -> None:
        nonlocal results, checksum
        results += 1
        checksum += result[2]

    def close(newest: float) -> None:
        for start in [start for start in windows if start + length <= newest]:
            for result in windows.pop(start).values():
                collect(result)

    def run(events: Iterable[EventTuple]) -> None:
        newest = 0
        for event in events:
            timestamp, user = time_of(event), user_of(event)
            if timestamp > newest:
                newest = timestamp
            start = timestamp - timestamp % length
            window = windows.get(start)
            if window is None:
                window = windows[start] = {}
            before = window.get(user)
            window[user] = event if before is None else add(before, event)
        close(newest)

    seconds = timed(task, Events(task.keys, task.kind), run, ready="ready" in task.mode)
    close(float("inf"))
    return Outcome(seconds, results, checksum)
