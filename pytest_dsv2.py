"""A plugin of pytest: environments, harnesses, a manual clock and a shared Spark session as fixtures.

pytest loads it in every run of an environment with dsv2. It is not part of the package ``dsv2``, so that runs without
its fixtures import nothing of dsv2.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dsv2 import ExecutionEnvironment
    from dsv2.testing import HarnessFactory, ManualClock

_OPTION = "--dsv2-runtime"
_MARKER = "both_runtimes"
_RUNTIMES = ("local", "spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that selects a runtime."""
    group = parser.getgroup("dsv2")
    group.addoption(
        _OPTION, choices=(*_RUNTIMES, "both"), default="both", help=f"the runtimes of tests marked {_MARKER}"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", f"{_MARKER}: the test runs with env on the local runtime and on Spark")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run marked tests once for each selected runtime."""
    if metafunc.definition.get_closest_marker(_MARKER) is None:
        return
    if "env" not in metafunc.fixturenames:
        pytest.fail(f"{metafunc.definition.nodeid} is marked {_MARKER}, but does not use env.", pytrace=False)
    chosen = metafunc.config.getoption(_OPTION)
    metafunc.parametrize("env", _RUNTIMES if chosen == "both" else [chosen], indirect=True)


@pytest.fixture
def manual_clock() -> ManualClock:
    """The clock of ``env`` on the local runtime and of the harnesses of ``harness``. It begins at 0."""
    from dsv2.testing import ManualClock

    return ManualClock()


@pytest.fixture
def harness(manual_clock: ManualClock) -> Iterator[HarnessFactory]:
    """``harness(function, ...)`` creates the harness for a function. All are closed at the end of the test."""
    from dsv2.testing import HarnessFactory

    with HarnessFactory(manual_clock) as factory:
        yield factory


@pytest.fixture
def env(request: pytest.FixtureRequest) -> ExecutionEnvironment:
    """An environment on the local runtime with its checks; in tests marked ``both_runtimes``, also on Spark."""
    from dsv2 import ExecutionEnvironment

    if getattr(request, "param", "local") == "spark":
        return ExecutionEnvironment.get_instance(spark=request.getfixturevalue("spark_session"))
    from dsv2.local import LocalRuntime

    return ExecutionEnvironment.get_instance(LocalRuntime(clock=request.getfixturevalue("manual_clock")))


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores for all tests. Tests are skipped if PySpark or Java is missing."""
    if find_spec("pyspark") is None:
        pytest.skip('Spark needs PySpark, which is not installed. Install it: pip install "dsv2[spark]".')
    if not _has_java():
        pytest.skip("Spark needs Java 17 or 21: there is none in JAVA_HOME or on the PATH.")
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # workers import the modules of tests
        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .getOrCreate()
        )
    yield session
    session.stop()


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return (home is not None and Path(home, "bin", "java").exists()) or shutil.which("java") is not None
