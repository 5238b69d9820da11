"""Python's garbage collector while a job runs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 200_000
_lock = threading.Lock()
_before: list[tuple[int, int, int]] = []  # the thresholds before each of the contexts that run
_jobs = 0


@contextmanager
def patient_collector() -> Iterator[None]:
    """Make Python collect cyclic garbage less often while many records are in memory: within a micro-batch.

    With the default threshold, the collector traverses all records repeatedly, which takes a third of the CPU time.
    After a micro-batch it has little to traverse.
    """
    with _lock:
        _before.append(gc.get_threshold())
        gc.set_threshold(_ALLOCATIONS, *_before[0][1:])
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:  # other threads may still be in the context
                gc.set_threshold(*before)


@contextmanager
def frozen_modules() -> Iterator[None]:
    """Keep the collector from traversing what exists when a job begins: modules, for the most part.

    A full collection traverses hundreds of thousands of objects otherwise, and delays a micro-batch by 50 ms.
    """
    global _jobs
    with _lock:
        _jobs += 1
        if _jobs == 1:  # else the garbage of jobs that overlap would never be collected
            gc.freeze()
    try:
        yield
    finally:
        with _lock:
            _jobs -= 1
            if not _jobs:
                gc.unfreeze()
