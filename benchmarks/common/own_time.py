"""Measures the time of the project's own code in the processes of a query: driver, source planners and workers.

In a session with ``settings(folder)``, every process that imports this module (unpickling a class of a benchmark does)
writes each call of the functions below to its own file. All calls of a micro-batch are added up, including concurrent
ones. Time in a nested call of these functions counts for the nested one only.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from inspect import isgeneratorfunction
from pathlib import Path
from typing import Any

from pyspark.sql.classic.dataframe import DataFrame

from dsv2.runtime.operator.subtask import Subtask
from runtime_spark.frames.worker import WorkerJob
from runtime_spark.job.query import StreamingJob
from runtime_spark.source.feeds import IndexedFeed
from runtime_spark.source.frame_source import FrameStreamReader
from runtime_spark.source.source_read import SourceRead
from runtime_spark.task import stage

__all__ = ("PARTS", "milliseconds", "settings", "watching")

_FOLDER = "DSV2_OWN_TIME"  # an environment variable of workers and planners

# The calls of each part, as owner and attribute.
_CALLS: dict[str, list[tuple[Any, str]]] = {
    "plan the micro-batch": [(FrameStreamReader, "latestOffset"), (FrameStreamReader, "partitions")],
    "commit its offsets": [(FrameStreamReader, "commit")],
    "read, and route": [(IndexedFeed, "rows"), (SourceRead, "advance")],
    "make subtasks": [(WorkerJob, "new_subtask")],
    "restore": [(Subtask, "open"), (Subtask, "restore"), (Subtask, "begin_batch")],
    "decode, process and route": [(stage, "decode_frame"), (Subtask, "receive")],
    "snapshot": [(Subtask, "end_batch"), (Subtask, "flush"), (Subtask, "snapshot")],
    "write, and progress": [(StreamingJob, "write_batch")],
}
_SPARK = "Spark, within write"
PARTS = tuple(_CALLS)


def settings(folder: str) -> dict[str, str]:
    """The settings of a session that writes times to ``folder``."""
    return {f"spark.executorEnv.{_FOLDER}": folder}


@contextmanager
def watching(folder: str) -> Iterator[None]:
    """Measure the times of this process during the block."""
    with ExitStack() as stack:
        for owner, attribute, original in _watch(folder):
            stack.callback(setattr, owner, attribute, original)
        yield


def milliseconds(folder: str, spans: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The average time of each part per micro-batch. ``spans``: the times of micro-batches, in seconds."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for file in Path(folder).iterdir():
        for line in file.read_text().splitlines():
            part, ended, took = line.split("\t")
            if any(begin <= float(ended) < end for begin, end in spans):
                seconds[part] += float(took)
    return {part: seconds[part] * 1000 / len(spans) for part in PARTS}


def _watch(folder: str) -> list[tuple[Any, str, Any]]:
    """Replace all functions with measured ones. Returns the originals."""
    replaced = []
    note = _notes(folder)
    for part, calls in {**_CALLS, _SPARK: [(DataFrame, "collect")]}.items():
        for owner, attribute in calls:
            original = getattr(owner, attribute)
            replaced.append((owner, attribute, original))
            setattr(owner, attribute, _timed(original, part, note))
    return replaced


def _notes(folder: str) -> Callable[[str, float], None]:
    files: dict[int, int] = {}  # by process id, because workers are forked

    def note(part: str, took: float) -> None:
        process = os.getpid()
        if process not in files:
            files[process] = os.open(f"{folder}/{process}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(files[process], f"{part}\t{time.time()}\t{took}\n".encode())

    return note


class _Within(threading.local):
    """The seconds that each active call, outermost first, has spent in nested measured calls."""

    def __init__(self) -> None:
        self.seconds: list[float] = []


_within = _Within()


@contextmanager
def _own_time(took: Callable[[float], None]) -> Iterator[None]:
    """Call ``took`` with the seconds of the block, without nested measured calls."""
    begin, seconds = time.perf_counter(), _within.seconds
    seconds.append(0.0)
    try:
        yield
    finally:
        total = time.perf_counter() - begin
        took(total - seconds.pop())
        if seconds:
            seconds[-1] += total


def _timed(function: Callable[..., Any], part: str, note: Callable[[str, float], None]) -> Callable[..., Any]:
    @wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with _own_time(partial(note, part)):
            return function(*args, **kwargs)

    @wraps(function)
    def timed_generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
        items = function(*args, **kwargs)
        took: list[float] = []
        while True:
            with _own_time(took.append):
                item = next(items, items)
            if item is items:
                break
            yield item
        note(part, sum(took))

    return timed_generator if isgeneratorfunction(function) else timed


if _FOLDER in os.environ:
    _watch(os.environ[_FOLDER])
