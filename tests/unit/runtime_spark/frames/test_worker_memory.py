"""Garbage collection in a worker, which Spark runs after each task."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc
from pyspark import TaskContext
from runtime_spark.frames.worker import forget_modules

at_start = gc.get_freeze_count()  # some releases of Python freeze objects of their own
forget_modules()
print(gc.get_freeze_count() > at_start)  # not in the program of a user
TaskContext._setTaskContext(TaskContext())
forget_modules()
import pandas, runtime_spark
before = gc.get_freeze_count()
forget_modules()
print(before > 10_000, gc.get_freeze_count() <= before)  # once: what a later job leaves behind can be collected
"""


def test_modules_are_frozen_in_workers_once() -> None:
    run = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "True"]
