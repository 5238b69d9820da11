"""Runs the units of a storm in several processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

__all__ = ("in_order",)

UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")

_AHEAD = 4
"""The number of units of each process that may wait for the result of an earlier one."""


def in_order(
    units: Sequence[UnitT], run: Callable[[UnitT], ResultT], jobs: int, is_over: Callable[[], bool]
) -> Iterator[ResultT]:
    """Run ``units``, and yield their results in the same order.

    Args:
        units: The units. They need not be picklable, unlike their results.
        run: Runs one.
        jobs: The number of processes. 1: only this one.
        is_over: Returns whether no further unit is to be started.
    """
    if jobs == 1:
        for unit in units:
            if is_over():
                return
            yield run(unit)
        return
    numbers = iter(range(len(units)))
    # Each unit gets a process of its own, so that it leaves no memory behind.
    with multiprocessing.get_context("fork").Pool(jobs, _begin, (units, run), maxtasksperchild=1) as pool:
        started: deque[Any] = deque()
        while True:
            while len(started) < _AHEAD * jobs and not is_over() and (number := next(numbers, None)) is not None:
                started.append(pool.apply_async(_run, (number,)))
            if not started:
                pool.close()
                pool.join()
                return
            yield started.popleft().get()


_inherited: list[Any] = []


def _begin(units: Sequence[Any], run: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # with which the pool ends its processes
    _inherited[:] = units, run


def _run(number: int) -> Any:
    units, run = _inherited
    return run(units[number])
