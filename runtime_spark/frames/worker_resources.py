"""Keeps the resources of functions open between the tasks of a worker, and closes them when Spark ends the worker."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from types import FrameType
from typing import Any, NoReturn

from dsv2.model.resource import any_open, close_resources, resources_in_use

_KEEP = timedelta(seconds=45)  # Spark ends idle workers after a minute
_ENDS_AFTER_TASK = timedelta(0)


@contextmanager
def worker_resources() -> Iterator[None]:
    """Wrap code of a task that may use resources."""
    with resources_in_use(_KEEP if "SPARK_REUSE_WORKER" in os.environ else _ENDS_AFTER_TASK):
        yield
    if any_open():
        _close_at_exit()


@cache
def _close_at_exit() -> None:
    """Close the resources when Spark ends this worker.

    PySpark has no hook for this: a worker ends by ``os._exit`` when Spark has closed its connection, or by SIGHUP, for
    which PySpark resets the handler before each task. Both happen within ``main``, which runs one task.
    """
    module: Any = sys.modules.get(sys.argv[1] if len(sys.argv) > 1 else "")
    run_task = getattr(module, "main", None)
    if run_task is None:
        return

    def main(*connection: Any) -> None:
        signal.signal(signal.SIGHUP, _exit)
        try:
            run_task(*connection)
        except BaseException:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            close_resources()
            raise

    module.main = main


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
