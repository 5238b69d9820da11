"""The end of a worker, as Spark ends it, closes the resources of its functions."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from runtime_spark.frames import worker_resources


class Worker:
    """Replaces a module of PySpark whose ``main`` runs one task."""

    def __init__(self) -> None:
        module: Any = ModuleType("a worker")
        module.main = self._run_task
        self.module = module
        self.end: BaseException | None = None
        self.tasks = 0

    def _run_task(self, connection: str) -> None:
        self.tasks += 1
        if self.end is not None:
            raise self.end


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The things that were closed."""
    found: list[str] = []
    monkeypatch.setattr(worker_resources, "close_resources", lambda: found.append("resources"))
    return found


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker of which a task has opened resources."""
    worker = Worker()
    monkeypatch.setitem(sys.modules, "a worker", worker.module)
    monkeypatch.setattr(sys, "argv", ["daemon", "a worker"])
    monkeypatch.setattr(worker_resources, "any_open", lambda: True)
    before = signal.getsignal(signal.SIGHUP)
    with worker_resources.worker_resources():
        pass
    yield worker
    signal.signal(signal.SIGHUP, before)
    worker_resources._close_at_exit.cache_clear()


def test_resources_stay_open_between_tasks(worker: Worker, closed: list[str]) -> None:
    for _ in range(2):
        worker.module.main("a connection")
    assert (worker.tasks, closed) == (2, [])


@pytest.mark.parametrize("end", [SystemExit(0), KeyboardInterrupt()], ids=repr)
def test_end_of_a_worker_closes_them(worker: Worker, closed: list[str], end: BaseException) -> None:
    worker.end = end
    with pytest.raises(type(end)):
        worker.module.main("a connection")
    assert closed == ["resources"]


def test_signal_to_end_closes_them_once(worker: Worker, closed: list[str]) -> None:
    worker.module.main("a connection")
    with pytest.raises(SystemExit, match="129"):
        signal.raise_signal(signal.SIGHUP)
    worker.end = SystemExit(129)  # raised within the task
    with pytest.raises(SystemExit):
        worker.module.main("a connection")
    signal.raise_signal(signal.SIGHUP)  # a second one does not interrupt the end
    assert closed == ["resources"]


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program"])
    monkeypatch.setattr(worker_resources, "any_open", lambda: True)
    before = signal.getsignal(signal.SIGHUP)
    with worker_resources.worker_resources():
        pass
    worker_resources._close_at_exit.cache_clear()
    assert signal.getsignal(signal.SIGHUP) is before
