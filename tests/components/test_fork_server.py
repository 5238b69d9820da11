"""The server that forks the Python processes of Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.fork_server import ForkServer

PROGRAM = """
import os, sys
print("warning", file=sys.stderr, flush=True)
kind = "forked" if "colorsys" in sys.modules else "started"
print(kind, __name__, sys.argv[1:], os.environ["GREETING"], os.getcwd(), sys.stdin.read(), flush=True)
if sys.argv[1:] == ["fails"]:
    raise ValueError("wrong")
if sys.argv[1:2] == ["signal"]:
    os.kill(os.getpid(), int(sys.argv[2]))
if sys.argv[1:] == ["waits"]:
    sys.stdout.close()
    os.read(os.pipe()[0], 1)
sys.exit(7)
"""

STARTER = """
import os, sys
from pathlib import Path
from components.fork_server import ForkServer
ForkServer(Path(sys.argv[1]), ["program"], ["colorsys"]).__enter__()
print("started", flush=True)
os._exit(0)
"""


BOTH_END = """
import os, socket
from components.fork_server import _Server
server, (client, starter) = _Server(socket.socket()), socket.socketpair()
process = os.fork() or os._exit(0)
server._clients[process] = client
server._selector.register(client, 1, lambda: server._abandon(process))
starter.close()
os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
ready = [key.data for key, _ in server._selector.select()]
server._wake.send(b" ")
server._reap()
print([answer() for answer in ready])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("program", "other"):
        (tmp_path / f"{name}.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[ForkServer]:
    with ForkServer(folder, ["program"], ["colorsys"]) as server:
        yield server


def start(server: ForkServer, folder: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [server.python, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "GREETING": "hello", "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("module", "kind"), [("program", "forked"), ("other", "started")])
def test_process_has_what_it_was_started_with(server: ForkServer, folder: Path, module: str, kind: str) -> None:
    process = start(server, folder, module, "a", "b c")
    output, errors = process.communicate("input")
    assert output == f"{kind} __main__ ['a', 'b c'] hello {folder} input\n"
    assert errors == "warning\n"
    assert process.returncode == 7


def test_exception_is_printed(server: ForkServer, folder: Path) -> None:
    process = start(server, folder, "program", "fails")
    _, errors = process.communicate("")
    assert errors.endswith("ValueError: wrong\n")
    assert process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_signal_that_ended_a_process_is_reported(
    folder: Path, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    with ForkServer(folder, ["program"], ["colorsys"]) as server:
        process = start(server, folder, "program", "signal", str(number.value))
        _, errors = process.communicate("")
    assert process.returncode == 256 - number
    assert f"was ended by signal {number.value}.\n" in capfd.readouterr().err
    assert ("Segmentation fault" in errors and "program.py" in errors) == (number is signal.SIGSEGV)


def test_process_ends_when_its_starter_is_killed(server: ForkServer, folder: Path) -> None:
    process = start(server, folder, "program", "waits")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.close()
    assert process.stdout.readline().startswith("forked")
    process.kill()
    assert process.stderr.read() == "warning\n"  # up to the end, so no process holds the pipe
    process.wait()
    process.stdout.close()
    process.stderr.close()


def test_process_that_ends_together_with_its_starter_is_no_error() -> None:
    ran = subprocess.run([sys.executable, "-c", BOTH_END], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("[None]\n", "")


def test_server_that_ended_too_early_is_reported(folder: Path) -> None:
    server = ForkServer(folder).__enter__()
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    with pytest.raises(RuntimeError, match="ended too early, with exit code -9"):
        server.__exit__()


def test_without_the_server_python_is_started(folder: Path) -> None:
    with ForkServer(folder, ["program"], ["colorsys"]) as server:
        pass
    process = start(server, folder, "program")
    output, _ = process.communicate("")
    assert output.startswith("started")


def test_server_ends_with_the_process_that_started_it(folder: Path) -> None:
    starter = subprocess.run([sys.executable, "-c", STARTER, folder], capture_output=True, text=True, check=True)
    assert starter.stdout == "started\n"  # read up to the end: the server, which holds the pipe as well, has ended
