"""Shared fixtures: the one Spark session of a test run, the real servers, and a checkpoint folder."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest
from hypothesis import settings

from components.class_archive import jvm_options
from components.fork_server import ForkServer
from components.hdfs import HdfsCluster
from components.kafka import KafkaBroker
from components.mariadb import MariaDBServer
from components.mosquitto import MosquittoBroker
from components.nats import NatsServer
from components.postgres import PostgresServer
from components.prometheus import PrometheusServer
from components.python_path import python_path
from components.redis import RedisServer
from components.s3 import S3Server
from components.server import MissingComponentError
from components.spark_connect import ConnectServer
from tests.profiles import CI, NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ServerT = TypeVar(
    "ServerT",
    KafkaBroker,
    MariaDBServer,
    MosquittoBroker,
    NatsServer,
    PostgresServer,
    PrometheusServer,
    RedisServer,
    S3Server,
    ConnectServer,
    HdfsCluster,
)

_MAX_CPU_USE_AT_THE_END = 0.3
_SECONDS_FOR_THREADS_TO_END = 10

# Fixture -> the marker of the tests that use it.
_MARKERS = {
    "spark": "spark",
    "kafka_broker": "kafka",
    "own_kafka_broker": "kafka",
    "restarted_kafka_broker": "kafka",
    "mariadb_server": "mariadb",
    "postgres_server": "postgres",
    "own_postgres_server": "postgres",
    "postgres_server_without_decoding": "postgres",
    "redis_server": "redis",
    "nats_server": "nats",
    "mosquitto_broker": "mqtt",
    "s3_server": "s3",
    "hdfs_cluster": "spark",
    "connect_server": "spark",
    "new_prometheus_server": "prometheus",
}
_SERVERS = {name for name in _MARKERS if name not in ("spark", "new_prometheus_server")}

settings.load_profile(CI)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--all``."""
    parser.addoption(
        "--all", action="store_true", help="also the tests marked nightly, and Hypothesis' profile nightly"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the options of JVMs, and choose the profile before tests are imported: their settings derive from it."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())  # programs that tests start inherit this
    if config.getoption("--all"):
        settings.load_profile(NIGHTLY)


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that use the session or a server, and skip those that need Java if it is missing."""
    if not config.getoption("--all"):
        _leave_out(config, items, "nightly")
    no_java = pytest.mark.skip(reason="Spark needs Java 17 or 21: there is none in JAVA_HOME or on the PATH.")
    for item in items:
        for fixture in _MARKERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_MARKERS[fixture])
        if item.get_closest_marker("spark") and not _has_java():
            item.add_marker(no_java)


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, which would visit them again and again."""
    gc.collect()
    gc.freeze()


def _leave_out(config: pytest.Config, items: list[pytest.Item], marker: str) -> None:
    marked = [item for item in items if item.get_closest_marker(marker)]
    if marked:
        items[:] = [item for item in items if not item.get_closest_marker(marker)]
        config.hook.pytest_deselected(items=marked)


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return (home is not None and Path(home, "bin", "java").exists()) or shutil.which("java") is not None


def _is_measured() -> bool:
    """Return whether coverage is measured. Spark kills reused workers, and their measurement is lost."""
    return "COVERAGE_PROCESS_CONFIG" in os.environ


@pytest.fixture(scope="session", autouse=True)
def _disk_is_not_forced() -> Iterator[None]:
    """Nothing is forced to the disk, which only a loss of power reveals. Tests of that replace these functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(os, "fdatasync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_thread_stays_busy() -> Iterator[None]:
    """Fails after the last test if a test has left a busy thread behind, which slows down all later tests."""
    yield
    deadline = time.monotonic() + _SECONDS_FOR_THREADS_TO_END
    while _cpu_use() > _MAX_CPU_USE_AT_THE_END:
        names = [thread.name for thread in threading.enumerate()]
        assert time.monotonic() < deadline, f"Threads are busy after the last test. All threads: {names}"


def _cpu_use() -> float:
    """The number of cores that this process uses while this thread sleeps."""
    cpu, began = time.process_time(), time.perf_counter()
    time.sleep(0.1)
    return (time.process_time() - cpu) / (time.perf_counter() - began)


@pytest.fixture(scope="session")
def spark_python() -> Iterator[str]:
    """The command that Spark runs as Python (``PYSPARK_PYTHON``). Its processes start faster than Python itself."""
    if _is_measured():
        yield sys.executable
        return
    with tempfile.TemporaryDirectory(prefix="dsv2-") as folder, ForkServer(Path(folder)) as server:
        yield str(server.python)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_python: str) -> Iterator[SparkSession]:
    """The session: two cores, no user interface, and almost no console output."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        # Workers import what this process imports, whether the packages are installed or checked out.
        environment.setenv("PYTHONPATH", python_path(*filter(None, sys.path)))
        environment.setenv("PYSPARK_PYTHON", spark_python)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("dsv2 tests")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "FATAL")  # some jobs fail on purpose, and the error is enough
            .config("spark.driver.memory", "4g")  # Spark keeps about 1 MB for every ended stateful query
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.network.timeout", "1h")  # a busy machine does not lose its only executor
            .config("spark.python.unix.domain.socket.enabled", "true")
            # Queries of a few micro-batches end before generated code would pay for its compilation.
            .config("spark.sql.codegen.wholeStage", "false")
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("spark.python.worker.reuse", "false" if _is_measured() else "true")
            .getOrCreate()
        )
    yield session
    session.stop()


@contextmanager
def _running(make: Callable[[Path], ServerT]) -> Iterator[ServerT]:
    """A separate server. Skips if the machine lacks it. Its folder has a short name and is open to all users."""
    folder = Path(tempfile.mkdtemp(prefix="dsv2-"))
    try:
        server = make(folder)
    except MissingComponentError as error:
        pytest.skip(str(error))
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _server(make: Callable[[Path], ServerT], scope: Literal["session", "function"] = "session") -> Any:
    """A fixture of a server."""

    @pytest.fixture(scope=scope)
    def server() -> Iterator[ServerT]:
        with _running(make) as running:
            yield running

    return server


# Tests share those of a test run, and use their own topics, tables and folders.
kafka_broker = _server(KafkaBroker)
restarted_kafka_broker = _server(partial(KafkaBroker, session_ms=2000))
"""The broker that tests may kill, if they start it again."""

own_kafka_broker = _server(KafkaBroker, "function")
postgres_server = _server(PostgresServer)
own_postgres_server = _server(PostgresServer, "function")
"""A database server that a test may stop, kill and restart."""

postgres_server_without_decoding = _server(partial(PostgresServer, wal_level="replica"), "function")
"""A database server with default settings, which has no logical decoding."""

mariadb_server = _server(MariaDBServer)
redis_server = _server(RedisServer)
nats_server = _server(NatsServer)
mosquitto_broker = _server(MosquittoBroker)
s3_server = _server(S3Server)
hdfs_cluster = _server(HdfsCluster)


@pytest.fixture(scope="session")
def connect_server(spark_python: str) -> Iterator[ConnectServer]:
    """A server of Spark Connect."""
    with _running(partial(ConnectServer, python=spark_python)) as server:
        yield server


@pytest.fixture
def new_prometheus_server() -> Iterator[Callable[..., PrometheusServer]]:
    """Start servers, with the arguments of ``PrometheusServer`` after the folder."""
    with ExitStack() as running:

        def start(port: int, rules: Path | None = None) -> PrometheusServer:
            return running.enter_context(_running(lambda folder: PrometheusServer(folder, port, rules)))

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs of the servers that a failed test used."""
    report = yield
    if report.failed:
        if call.excinfo is not None and not isinstance(call.excinfo.value, Exception):
            _close_connection_to_spark()
        for name, value in getattr(item, "funcargs", {}).items():
            if name in _SERVERS:
                report.sections.append((f"log of {name}", value.log_tail))
    return report


def _close_connection_to_spark() -> None:
    """Close the connection of this thread, which opens another one with its next call.

    A timeout interrupts a call while it waits for its answer. The next call would get that answer, and so each test
    after it would fail.
    """
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None and (connection := gateway._gateway_client.get_thread_connection()) is not None:
        connection.close()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A new folder for ``checkpoint_location``, which does not exist yet."""
    return str(tmp_path / "checkpoint")
