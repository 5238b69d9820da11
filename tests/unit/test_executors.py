"""The packages of executors are checked before a job starts, once in an application."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pytest

from dsv2 import ConfigurationError
from runtime_spark import executors

_APPLICATIONS = count()


class Context:
    """A ``SparkContext`` whose executor lacks ``modules``."""

    def __init__(self, master: str, monkeypatch: pytest.MonkeyPatch, modules: Iterable[str] = ()) -> None:
        self.master = master
        self.applicationId = f"application-{next(_APPLICATIONS)}"
        self.tasks = 0
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)  # which makes an import fail

    def parallelize(self, values: list[int], _: int) -> Context:
        self._values = values
        return self

    def map(self, function: Callable[[int], Any]) -> Context:
        self._function = function
        return self

    def collect(self) -> list[Any]:
        self.tasks += 1
        return list(map(self._function, self._values))


class Session:
    def __init__(self, context: Context) -> None:
        self.sparkContext = context


def check(context: Context) -> None:
    executors.check_executors(Session(context))  # type: ignore[arg-type]


def test_missing_packages_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("spark://host:7077", monkeypatch, ["pyarrow", "runtime_spark"])
    with pytest.raises(ConfigurationError, match=r"cannot import runtime_spark, pyarrow\. Ship .* --py-files"):
        check(context)
    monkeypatch.undo()
    check(context)  # they were installed meanwhile


def test_application_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("local-cluster[2,1,1024]", monkeypatch)
    check(context)
    check(context)
    assert context.tasks == 1


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_workers_on_this_machine_are_not_checked(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(master, monkeypatch)
    check(context)
    assert context.tasks == 0


def test_session_without_a_context_is_not_checked() -> None:
    executors.check_executors(object())  # type: ignore[arg-type]
