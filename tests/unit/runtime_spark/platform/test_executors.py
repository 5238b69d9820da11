"""The packages of executors are checked before a job starts, once in an application."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import dsv2.version
from dsv2.errors import ConfigurationError
from runtime_spark.platform import executors

_APPLICATIONS = count()


class Context:
    """A ``SparkContext`` whose executor lacks ``modules``."""

    def __init__(self, master: str, monkeypatch: pytest.MonkeyPatch, modules: Iterable[str] = ()) -> None:
        self.master = master
        self.applicationId = f"application-{next(_APPLICATIONS)}"
        self.tasks = 0
        self.pythonExec = "python3"
        self.submitted = ""
        self._python_includes: list[str] = []
        self.before_results: Callable[[], None] = lambda: None
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)  # which makes an import fail

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {"spark.submit.pyFiles": self.submitted}

    def parallelize(self, values: list[int], _: int) -> Context:
        self._values = values
        return self

    def map(self, function: Callable[[int], Any]) -> Context:
        self._function = function
        return self

    def collect(self) -> list[Any]:
        self.tasks += 1
        found = list(map(self._function, self._values))
        self.before_results()
        return found


class Session:
    def __init__(self, context: Context) -> None:
        self.sparkContext = context


def check(context: Context, *, map_state: bool = False) -> None:
    executors.check_executors(Session(context), map_state=map_state)  # type: ignore[arg-type]


def test_missing_packages_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("spark://host:7077", monkeypatch, ["typing_extensions", "runtime_spark"])
    with pytest.raises(ConfigurationError) as lacking:
        check(context)
    assert "cannot import runtime_spark, typing_extensions. Ship this project with --py-files" in str(lacking.value)
    assert "Install there: pip install typing-extensions. Or" in str(lacking.value)
    monkeypatch.undo()
    check(context)  # they were installed meanwhile


def test_protobuf_is_needed_for_maps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("yarn", monkeypatch, ["google.protobuf"])
    check(context)
    with pytest.raises(
        ConfigurationError, match=r"cannot import google\.protobuf\. Install there: pip install protobuf"
    ):
        check(context, map_state=True)


def test_other_version_of_the_project_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("yarn", monkeypatch)
    monkeypatch.setattr(dsv2.version, "__version__", "0.0.9")  # that of the executor, read first
    context.before_results = monkeypatch.undo
    with pytest.raises(ConfigurationError, match=rf"has dsv2 0\.0\.9, and the driver has dsv2 {dsv2.__version__}\."):
        check(context)


def test_wheels_of_py_files_are_put_on_the_path_of_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("spark://host:7077", monkeypatch)
    context.submitted = "/home/me/dsv2-0.1.0-py3-none-any.whl,/home/me/more.zip"
    context._python_includes = ["more.zip"]
    check(context)
    check(context, map_state=True)
    assert context._python_includes == ["more.zip", "dsv2-0.1.0-py3-none-any.whl"]


def test_wheels_are_put_on_the_path_of_local_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("local[2]", monkeypatch)
    context.submitted = "/home/me/dsv2-0.1.0-py3-none-any.whl"
    check(context)
    assert (context._python_includes, context.tasks) == (["dsv2-0.1.0-py3-none-any.whl"], 0)


def test_python_of_an_archive_must_be_on_the_host_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    context = Context("spark://host:7077", monkeypatch)
    context.pythonExec = "./environment/bin/python"
    with pytest.raises(ConfigurationError, match="mkdir environment && tar -xzf ARCHIVE -C environment"):
        executors.check_planners(Session(context))  # type: ignore[arg-type]
    context.pythonExec = str(tmp_path / "python3.12")
    with pytest.raises(ConfigurationError, match="Install it here too, or name one that all machines have"):
        executors.check_planners(Session(context))  # type: ignore[arg-type]
    context.pythonExec = "./environment/bin/python"
    (tmp_path / "environment/bin").mkdir(parents=True)
    (tmp_path / "environment/bin/python").touch()
    executors.check_planners(Session(context))  # type: ignore[arg-type]


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
