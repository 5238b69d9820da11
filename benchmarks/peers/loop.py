"""What plain loops share: a batch after the other, timed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from benchmarks.peers.protocol import Task

__all__ = ("Bare", "timed")

T = TypeVar("T")


class Bare:
    """An object with the given attributes, and nothing else: the least that can stand for a collector or a context."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def timed(
    task: Task, make: Callable[[int], T], process: Callable[[Iterable[T]], None], *, ready: bool = False
) -> list[float]:
    """Seconds of the measured batches. Records are made in the loop, or ``ready`` before the clock runs."""
    seconds = []
    for batch in range(task.warm_up + task.batches):
        records: Iterable[T] = map(make, range(batch * task.records, (batch + 1) * task.records))
        if ready:
            records = list(records)
        gc.collect()  # so that no batch pays for the one before
        begin = time.perf_counter()
        process(records)
        seconds.append(time.perf_counter() - begin)
    return seconds[task.warm_up :]
