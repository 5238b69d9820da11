"""Code shared by the plain loops: timed batches."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from benchmarks.peers.protocol import Task

__all__ = ("Bare", "timed")

T = TypeVar("T")


class Bare:
    """An object with the given attributes: a minimal replacement for a collector or a context."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def timed(
    task: Task, make: Callable[[int], T], process: Callable[[Iterable[T]], None], *, ready: bool = False
) -> list[float]:
    """Return the seconds of the measured batches. ``ready``: create records before the measurement, not in the loop."""
    seconds = []
    for batch in range(task.warm_up + task.batches):
        records: Iterable[T] = map(make, range(batch * task.records, (batch + 1) * task.records))
        if ready:
            records = list(records)
        gc.collect()  # so that a batch does not collect the garbage of the previous one
        begin = time.perf_counter()
        process(records)
        seconds.append(time.perf_counter() - begin)
    return seconds[task.warm_up :]
