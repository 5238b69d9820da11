"""The server of a dashboard: with jobs that run, jobs that fail, and browsers that do not read."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from components.server import free_ports
from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, JobHandle
from dsv2.cli import main
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.jobs.handle import RunOptions
from dsv2.jobs.unfinished_jobs import _watched, watch
from dsv2.testing import Stop, TestSource
from dsv2.views.dashboard import Dashboard, app, http, responses
from dsv2.views.dashboard.jobs import Board, Status
from dsv2.views.dashboard.running_job import DashboardRuntime, LiveJob
from dsv2.views.dashboard.server import DashboardServer, _servers, server_of
from tests.dashboard_client import TOKEN, ask, events, get, serving
from tests.dashboard_fakes import FakeJob
from tests.durations import LONG


@pytest.fixture(autouse=True)
def no_servers_of_other_tests() -> Iterator[None]:
    for server in list(_servers.values()):
        server.close()
    yield
    for server in list(_servers.values()):
        server.close()


@contextmanager
def shown() -> Iterator[DashboardServer]:
    """The dashboard of a program, at a port that its jobs can share."""
    (port,) = free_ports(1)
    server, is_new = server_of(Dashboard(port))
    assert is_new
    try:
        yield server
    finally:
        server.close()


def only_even(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd, password=hunter2-and-more")
    return number


def pipeline(env: ExecutionEnvironment, *, stops: bool = False, policy: ErrorPolicy | None = None) -> None:
    items = [*range(20), *([Stop()] if stops else [])]
    halves = env.from_source(TestSource(items, records_per_batch=5), "numbers").with_uid("numbers").map(only_even)
    if policy is not None:
        halves = halves.with_error_policy(policy)
    halves.with_uid("even").to_sink(CollectSink[int]()).with_uid("collected")


def started(server: DashboardServer, policy: ErrorPolicy | None, folder: Path | None = None) -> JobHandle:
    env = ExecutionEnvironment.get_instance("local")
    pipeline(env, stops=True, policy=policy)
    return env.execute_async("halves", dashboard=server.settings.port, dead_letters=folder)


def test_job_on_its_dashboard(tmp_path: Path) -> None:
    with shown() as server:
        job = started(server, ErrorPolicy().dead_letter(ValueError), tmp_path)
        job.result()
        (line,) = get(server, "/api/jobs")
        assert (line["name"], line["status"]) == ("halves", "stopped")
        page = get(server, "/api/jobs/1")
        assert page["operators"]["1"]["records_out"] == 10
        assert [one["title"] for one in get(server, "/api/jobs/1/plan")["operators"]] == [
            "numbers",
            "even",
            "collected",
        ]
        letters = get(server, "/api/jobs/1/letters")["letters"]
        assert [letter["record"] for letter in letters] == [str(number) for number in range(19, 0, -2)]
        sections = {one["title"]: one["settings"] for one in get(server, "/api/jobs/1/configuration")}
        assert {"name": "dead_letters", "value": str(tmp_path)} in sections["Job"]
        assert {"name": "seed", "value": "0"} in sections["Runtime"]


def test_failed_job_stays_on_the_dashboard() -> None:
    with shown() as server:
        job = started(server, None)
        with pytest.raises(UserFunctionError):
            job.result()
        page = get(server, "/api/jobs/1")
        assert page["status"] == "failed"
        assert "operator: Map (uid 'even')" in page["error"]
        assert "hunter2" not in page["error"]


def test_dashboard_does_not_count_as_looking_at_the_result() -> None:
    """The program must still be warned if it never looks itself."""
    env = ExecutionEnvironment.get_instance("local")
    pipeline(env)
    shown_job = LiveJob(env.build_plan("halves"), RunOptions(), None)
    job = env.execute_async("halves")
    with pytest.raises(UserFunctionError):
        job.result()
    watch(job, "halves", "program.py:1")
    shown_job.on_ended(job)
    assert shown_job.record.snapshot().status is Status.FAILED
    assert id(job) in _watched
    assert job.exception() is not None
    assert id(job) not in _watched


def test_jobs_of_a_program_share_a_dashboard(capsys: pytest.CaptureFixture[str]) -> None:
    with shown() as server:
        env = ExecutionEnvironment.get_instance("local")
        for _ in range(2):
            pipeline(env, policy=ErrorPolicy().skip(ValueError))
            env.execute("halves", dashboard=server.settings.port)
        assert [line["status"] for line in get(server, "/api/jobs")] == ["finished", "finished"]
        assert "Dashboard:" not in capsys.readouterr().err, "only a new one is printed"


def test_other_settings_for_the_same_port_are_refused() -> None:
    with shown() as server:
        port = server.settings.port
        for other in (Dashboard(port, allow_actions=True), Dashboard(port, token="another-token-of-tests")):
            with pytest.raises(ConfigurationError, match="with other settings"):
                server_of(other)


def test_address_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    env = ExecutionEnvironment.get_instance("local")
    pipeline(env, policy=ErrorPolicy().skip(ValueError))
    env.execute("halves", dashboard=Dashboard(0, allow_actions=True))
    found = re.fullmatch(r"Dashboard: http://127\.0\.0\.1:(\d+)/\?token=([\w-]{32,})\n", capsys.readouterr().err)
    assert found is not None
    assert found[1] != "0"


def test_port_in_use_is_an_error_before_the_job_starts() -> None:
    calls: list[int] = []
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).map(calls.append).to_sink(CollectSink[None]())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=f"cannot listen at port {port} of 127.0.0.1: Address already in use"
        ):
            env.execute("never", dashboard=port)
    assert calls == []


@pytest.mark.parametrize("value", ["8050", True, 70_000])
def test_invalid_dashboards(value: object) -> None:
    env = ExecutionEnvironment.get_instance("local")
    pipeline(env)
    with pytest.raises(ConfigurationError):
        env.execute("never", dashboard=value)  # type: ignore[arg-type]


def test_refused_job_is_not_shown() -> None:
    with shown() as server:
        env = ExecutionEnvironment.get_instance("local")
        pipeline(env)
        with pytest.raises(ConfigurationError):
            env.execute("never", dashboard=server.settings.port, savepoint="/nowhere")
        assert get(server, "/api/jobs") == []


def test_job_that_begins_later_is_shown() -> None:
    with shown() as server:
        env = ExecutionEnvironment.get_instance("local")
        pipeline(env)
        begins_later = Mock(spec=["start"])  # a runtime whose jobs begin in threads of their own
        DashboardRuntime(begins_later, server.settings.port).start(env.build_plan("slow"), RunOptions())
        assert [one["status"] for one in get(server, "/api/jobs")] == ["starting"]


def test_events_tell_of_changes() -> None:
    job = FakeJob(1)
    with serving(job) as server, events(server) as changes:
        first = next(changes)[0]["revision"]
        job.advance()
        assert next(changes)[0]["revision"] > first


def test_pages_that_do_not_read_do_not_slow_the_job() -> None:
    job = FakeJob(0)
    with serving(job) as server:
        silent = [socket.create_connection(("127.0.0.1", server.settings.port)) for _ in range(10)]
        for connection in silent:
            connection.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        job.advance(50)
        assert get(server, "/api/jobs/1")["summary"]["batch_id"] == 49
        for connection in silent:
            connection.close()


def connected(server: DashboardServer, sends: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.settings.port), timeout=LONG)
    connection.sendall(sends)
    return connection


@pytest.mark.parametrize(
    "sent", [b"", b"GET /api/jobs HTTP/1.1\r\nHost: loc", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_silent_connections_keep_no_one_out(sent: bytes) -> None:
    with serving(FakeJob(0)) as server:
        silent = [connected(server, sent) for _ in range(400)]
        assert ask(server, "/api/jobs").status == 200
        first = silent[0]
        with suppress(ConnectionError):
            while first.recv(100_000):  # the oldest one is closed
                pass
        for connection in silent:
            connection.close()


WHOLE, HEAD = b"GET /api/none HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /api/jobs HTTP/1.1\r\nHost: loc"


def test_head_of_a_request_must_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_HEAD_SECONDS", 0.05)
    with serving(FakeJob(0)) as server, suppress(ConnectionError), connected(server, HEAD) as connection:
        assert connection.recv(100_000) == b"", "the server has closed it"


def test_head_of_a_further_request_must_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(FakeJob(0)) as server, connected(server, WHOLE) as connection:
        assert connection.recv(12) == b"HTTP/1.1 404"
        monkeypatch.setattr(http, "_HEAD_SECONDS", 0.05)
        connection.sendall(WHOLE + HEAD)
        answers = b"".join(iter(lambda: connection.recv(100_000), b""))  # until the server has closed it
    assert answers.count(b"HTTP/1.1 404") == 1


def test_stream_of_events_is_no_request_that_waits() -> None:
    with serving(FakeJob(0)) as server, events(server) as changes:
        next(changes)
        (stream,) = server._server.server_state.connections
        assert isinstance(stream, http._Connection)
        assert stream._limit is None


def test_body_of_a_request_must_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_BODY_SECONDS", 0.05)
    head = (
        f"POST /api/jobs/1/savepoint HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nAuthorization: Bearer {TOKEN}"
    )
    settings = Dashboard(0, token=TOKEN, allow_actions=True)
    with serving(FakeJob(0), settings=settings) as server, connected(server, f"{head}\r\n\r\n{{".encode()) as waiting:
        assert waiting.recv(12) == b"HTTP/1.1 408"


def test_streams_of_events_are_limited_for_each_client_and_do_not_keep_requests_out() -> None:
    with serving(FakeJob(0)) as server:
        streams = [connected(server, b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(70)]
        answers = [connection.recv(12) for connection in streams]
        assert answers.count(b"HTTP/1.1 200") == 32
        assert answers.count(b"HTTP/1.1 503") == 38
        assert ask(server, "/api/jobs").status == 200
        for connection in streams:
            connection.close()


def test_closed_streams_make_room_for_others() -> None:
    streams = Counter[str]()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"data: 1\n\n"
            await asyncio.sleep(0)

    async def receive() -> dict[str, object]:
        assert streams == {"here": 1}
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        """The connection takes everything."""

    scope: Any = {"type": "http", "asgi": {"spec_version": "2.3"}}
    asyncio.run(app._EventStream(endless(), "here", streams)(scope, receive, send))
    assert streams == {}


def test_history_since_a_micro_batch() -> None:
    with serving(FakeJob(10)) as server:
        page = get(server, "/api/jobs/1/history?after=7")
        assert (page["first"], [batch["batch_id"] for batch in page["batches"]]) == (0, [8, 9])


@pytest.mark.parametrize("path", ["/api/jobs/9", "/api/jobs/9/letters", "/api/none"])
def test_unknown_things(path: str) -> None:
    with serving(FakeJob(1)) as server:
        assert ask(server, path).status == 404


def test_operator_without_a_report() -> None:
    with serving(FakeJob(1)) as server:
        assert get(server, "/api/jobs/1/operator?uid=none") is None


def test_unknown_watermark() -> None:
    with serving(FakeJob(1)) as server:
        assert ask(server, "/api/jobs/1/watermarks?identifier=none").status == 409


def test_nothing_is_loaded_for_jobs_without_a_dashboard() -> None:
    code = (
        "import sys, dsv2.cli, dsv2.views.dashboard, dsv2.views.dashboard.stored_job; from dsv2 import *\n"
        "env = ExecutionEnvironment.get_instance('local')\n"
        "env.from_collection([1]).to_sink(CollectSink()); env.execute()\n"
        "print([name for name in ('starlette', 'uvicorn') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-W", "ignore", "-c", code], text=True) == "[]\n"


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dsv2.views.dashboard.http", None)
    with pytest.raises(ConfigurationError, match=re.escape("pip install 'dsv2[dashboard]'")):
        DashboardServer(Dashboard(0))


def test_program_ends_although_a_page_is_open(tmp_path: Path) -> None:
    program, (port,) = tmp_path / "program.py", free_ports(1)
    program.write_text(
        "import socket\n"
        "from dsv2 import *\n"
        "env = ExecutionEnvironment.get_instance('local')\n"
        "env.from_collection([1]).to_sink(CollectSink())\n"
        f"env.execute(dashboard={port})\n"
        f"page = socket.create_connection(('127.0.0.1', {port}))\n"
        "page.sendall(b'GET /api/events HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "assert page.recv(12) == b'HTTP/1.1 200'\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr


def test_option_of_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop_on_a_dashboard.py").write_text(
        "from dsv2 import CollectSink\n"
        "def orders(env): env.from_collection([1]).with_uid('in').to_sink(CollectSink()).with_uid('out')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["run", "shop_on_a_dashboard:orders", "--runtime", "local", "--dashboard", "0"]) == 0
    assert "Dashboard: http://127.0.0.1:" in capsys.readouterr().err
    assert main(["run", "shop_on_a_dashboard:orders", "--runtime", "local", "--dashboard", "70000"]) == 2
    assert "from 0 to 65535" in capsys.readouterr().err


def test_command_refuses_a_folder_that_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", str(tmp_path / "none"), "--port", "0"]) == 2
    assert "is not the checkpoint of a job" in capsys.readouterr().err


def test_command_shows_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    command = [sys.executable, "-u", "-m", "dsv2", "dashboard", str(tmp_path), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONWARNINGS": "ignore"}
    ) as run:
        assert run.stdout is not None
        address = run.stdout.readline()
        found = re.fullmatch(r"Dashboard: http://127\.0\.0\.1:(\d+)/\n", address)
        assert found is not None, address
        with socket.create_connection(("127.0.0.1", int(found[1]))) as connection:
            connection.sendall(b"GET /api/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        run.send_signal(2)
        assert run.wait(LONG) == 130
    assert b'"status":"stored"' in answer


def test_pages_of_a_quiet_job_know_that_the_server_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_ALIVE_SECONDS", 0.002)
    monkeypatch.setattr(app, "_LOOK_SECONDS", 0.001)
    board = Board()
    board.add(FakeJob(1))

    class Request:
        async def is_disconnected(self) -> bool:
            return False

    async def sent() -> list[bytes]:
        request: Any = Request()
        changes = app._Handlers(board, False)._changes(request)
        found = [await anext(changes) for _ in range(2)]
        board.is_closing = True
        return [*found, *[message async for message in changes]]

    first, *others = asyncio.run(sent())
    assert first.startswith(b"event: jobs\ndata: [{")
    assert others == [b": still there\n\n"]


def test_actions_on_a_job_that_runs_here(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance("local")
    pipeline(env)
    plan, job = env.build_plan("halves"), Mock()
    shown_job = LiveJob(plan, RunOptions(dead_letters=str(tmp_path)), None)
    assert shown_job.letters_folder() is None, "nothing can open it"
    for action in (shown_job.stop, lambda: shown_job.savepoint("/there")):
        with pytest.raises(ConfigurationError, match=r"The job does not run\."):
            action()
    shown_job.on_started(job, plan)
    assert shown_job.actions == ("stop", "savepoint", "replay", "error-policy")
    assert shown_job.savepoint("/there") is job.savepoint.return_value
    shown_job.stop()
    job.stop.assert_called_once_with()


def test_address_in_brackets() -> None:
    address: Any = DashboardServer.url
    server: Any = SimpleNamespace(settings=Dashboard(8050, host="::1", token="t" * 16))
    assert address.fget(server) == f"http://[::1]:8050/?token={'t' * 16}"


def test_program_can_wait_for_the_server() -> None:
    with shown() as server:
        closing = threading.Timer(0.05, server.close)
        closing.start()
        server.join()
        assert not server._thread.is_alive()
        closing.join()
