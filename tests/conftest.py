"""What all tests share: the one Spark session of a test run, and a folder for a checkpoint."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes the session, and skip what is marked where Java is missing."""
    no_java = pytest.mark.skip(reason="Spark needs Java 17 or 21: there is none in JAVA_HOME or on the PATH.")
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") and not _has_java():
            item.add_marker(no_java)


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return (home is not None and Path(home, "bin", "java").exists()) or shutil.which("java") is not None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session: two cores, no user interface, hardly a word on the console."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        # Workers import what this process imports, whether the packages are installed or merely checked out.
        environment.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("dsv2 tests")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "FATAL")  # jobs that fail on purpose; the error tells what happened
            .config("spark.driver.memory", "1g")
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A folder for ``checkpoint_location``; new for every test, and not made yet."""
    return str(tmp_path / "checkpoint")
