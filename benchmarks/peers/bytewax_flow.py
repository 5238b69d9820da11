"""Code shared by the Bytewax dataflows: a generator source that records times, a sink that adds up, and the run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Generic, TypeVar

from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

from benchmarks.peers.protocol import Outcome, Task

__all__ = ("Generated", "GeneratedTogether", "Tally", "run")

T = TypeVar("T")
_AT_ONCE = 8192
"""The number of records that the source returns in one call."""
_EPOCH = timedelta(seconds=1)
"""The time between two snapshots, which is longer than most micro-batches of other contestants."""


class _Made(StatelessSourcePartition, Generic[T]):
    def __init__(self, task: Task, make: Callable[[range], list[T]], times: list[float]) -> None:
        self._task, self._make, self._times, self._next = task, make, times, 0

    def next_batch(self) -> Iterable[T]:
        begin = self._next
        if begin % self._task.records == 0:
            self._times.append(time.perf_counter())
        if begin == self._task.total:
            raise StopIteration
        end = self._next = min(begin + _AT_ONCE, begin - begin % self._task.records + self._task.records)
        return self._make(range(begin, end))


class GeneratedTogether(DynamicSource, Generic[T]):
    """Generates the records 0, 1, 2, … in the only worker. ``times`` gets the start time of each batch.

    ``make`` makes the records of some consecutive numbers.
    """

    def __init__(self, task: Task, make: Callable[[range], list[T]]) -> None:
        self.times: list[float] = []
        self._partition = _Made(task, make, self.times)

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSourcePartition:
        assert worker_count == 1
        return self._partition


class Generated(GeneratedTogether[T]):
    """The same, but ``make`` makes one record."""

    def __init__(self, task: Task, make: Callable[[int], T]) -> None:
        super().__init__(task, lambda numbers: list(map(make, numbers)))


class _Adding(StatelessSinkPartition):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        self._tally.results += len(items)
        self._tally.checksum += sum([number for _, number in items])


class Tally(DynamicSink):
    """Adds up the numbers of pairs ``(key, number)``."""

    def __init__(self) -> None:
        self.results = self.checksum = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition:
        return _Adding(self)


def run(flow: Dataflow, task: Task, times: list[float], tally: Tally) -> Outcome:
    """Run ``flow`` to its end. Its source writes ``times``. Mode ``recovery``: state is stored, offsets are not."""
    if "recovery" in task.mode:
        with tempfile.TemporaryDirectory() as folder:
            init_db_dir(Path(folder), 1)
            run_main(flow, epoch_interval=_EPOCH, recovery_config=RecoveryConfig(Path(folder)))
    else:
        run_main(flow)
    seconds = [end - begin for begin, end in pairwise(times)]
    return Outcome(seconds[task.warm_up :], tally.results, tally.checksum, {"bytewax": version("bytewax")})
