"""The real servers end with their starter, and name missing components."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from components.kafka import KafkaBroker
from components.mariadb import MariaDBServer
from components.mosquitto import MosquittoBroker
from components.nats import NatsServer
from components.postgres import PostgresServer
from components.prometheus import PrometheusServer
from components.redis import RedisServer
from components.server import MissingComponentError, Server, first_port, free_ports, listens
from tests import ROOT
from tests.durations import LONG

SERVE_AND_WAIT = """
import sys, time
from pathlib import Path
from components.server import Server
port, log = sys.argv[1:]
Server([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", port], int(port), Path(log)).start()
print("serves", flush=True)
time.sleep(600)
"""


def eventually(happened: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LONG
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened()


def test_server_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", SERVE_AND_WAIT, str(port), str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"serves\n"
        assert listens(port)
        starter.send_signal(signal.SIGKILL)
    assert eventually(lambda: not listens(port))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux notifies a process when its parent exits")
def test_server_ends_with_its_guard() -> None:
    (port,) = free_ports(1)
    serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    command = [sys.executable, "-m", "components.guard", "SIGTERM", "", *serve]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as guard:
        assert eventually(lambda: listens(port))
        guard.kill()
    assert eventually(lambda: not listens(port))


@pytest.mark.parametrize("ignores", ["trap '' TERM", ":"])
@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_server_ends_with_its_child_processes(end: Callable[[Server], None], ignores: str, tmp_path: Path) -> None:
    port, other = free_ports(2)
    serve = f"{sys.executable} -m http.server --bind 127.0.0.1"
    script = f"trap '' HUP; {serve} {other} & {ignores}; {serve} {port}; :"
    server = Server(["bash", "-c", script], port, tmp_path / "log")
    server.start()
    assert eventually(lambda: listens(other))
    end(server)
    assert eventually(lambda: not listens(port))
    assert eventually(lambda: not listens(other))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt others")
def test_processes_in_other_sessions_have_ended_when_their_server_was_killed(tmp_path: Path) -> None:
    port, other = free_ports(2)
    serve = f"{sys.executable} -m http.server --bind 127.0.0.1"
    server = Server(["bash", "-c", f"setsid {serve} {other} & {serve} {port}; :"], port, tmp_path / "log")
    server.start()
    assert eventually(lambda: listens(other))
    server.kill()
    assert not listens(other)


def test_failed_server_shows_its_last_output(tmp_path: Path) -> None:
    server = Server(["bash", "-c", "echo no room on the disk; exit 3"], free_ports(1)[0], tmp_path / "log")
    with pytest.raises(RuntimeError, match="no room on the disk"):
        server.start()


def test_port_in_use_is_refused(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    first = Server(command, port, tmp_path / "log")
    first.start()
    try:
        with pytest.raises(RuntimeError, match=f"Port {port} is already in use"):
            Server(command, port, tmp_path / "log").start()
    finally:
        first.stop()


def test_missing_maven_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingComponentError, match=r"no java.*openjdk-17-jre-headless"):
        KafkaBroker(tmp_path)
    (tmp_path / "java").write_text("")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(MissingComponentError, match=r"no mvn.*apt-get install maven"):
        KafkaBroker(tmp_path)


def test_missing_mariadb_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("components.mariadb._PLACES", ())
    with pytest.raises(MissingComponentError, match="apt-get install mariadb-server"):
        MariaDBServer(tmp_path)


def test_missing_redis_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingComponentError, match="apt-get install redis-server"):
        RedisServer(tmp_path)


@pytest.mark.parametrize("server", [NatsServer, MosquittoBroker])
def test_missing_messaging_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: type[NatsServer | MosquittoBroker]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(MissingComponentError, match=r"apt-get install (nats-server|mosquitto)"):
        server(tmp_path)


def test_missing_postgresql_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("components.postgres._PLACES", ())
    with pytest.raises(MissingComponentError, match="apt-get install postgresql"):
        PostgresServer(tmp_path)


def test_missing_prometheus_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingComponentError, match="apt-get install prometheus"):
        PrometheusServer(tmp_path, 9464)


def test_processes_that_start_together_search_at_distant_ports() -> None:
    for pid in range(1_000, 1_100):
        first, *others = (first_port(near) for near in range(pid, pid + 8))
        assert min(abs(other - first) for other in others) > 1_000


def test_port_is_reserved_before_its_server_starts() -> None:
    (port,) = free_ports(1)
    (second,) = free_ports(1)
    same_first_port = f"import os\nos.getpid = lambda: {os.getpid()}\n"
    script = f"{same_first_port}from components.server import free_ports\nprint(*free_ports(1))"
    (third,) = map(int, subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True).split())
    assert len({port, second, third}) == 3
