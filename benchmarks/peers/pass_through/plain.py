"""A loop that pickles and unpickles the events twice, 8,192 at a time, and adds up their values.

This is the minimal work of an engine that runs a function in another process than source and sink. In the mode
``ready``, it only does this, and events are created before the measurement. Otherwise it also creates the events and
calls the function.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from benchmarks.jobs.events import KINDS, Events
from benchmarks.jobs.pass_through import passed
from benchmarks.peers.loop import timed
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)

_AT_ONCE = 8192


def measure(task: Task) -> Outcome:
    """Run the loop. The function is called between the two round trips."""
    value_of = KINDS[task.kind].value
    ready = "ready" in task.mode
    results = checksum = 0

    def run(events: Iterable[Any]) -> None:
        nonlocal results, checksum
        remaining = iter(events)
        while received := _sent(list(islice(remaining, _AT_ONCE))):
            returned = _sent(received if ready else [passed(event) for event in received])
            results += len(returned)
            if not ready:
                checksum += sum(map(value_of, returned))

    seconds = timed(task, Events(task.keys, task.kind), run, ready=ready)
    if ready:
        checksum = sum(value_of(event) for event in _all(task))
    return Outcome(seconds, results, checksum)


def _sent(events: list[Any]) -> list[Any]:
    found: list[Any] = pickle.loads(pickle.dumps(events, pickle.HIGHEST_PROTOCOL))  # noqa: S301 - our own bytes
    return found


def _all(task: Task) -> Iterator[Any]:
    return map(Events(task.keys, task.kind), range(task.total))
