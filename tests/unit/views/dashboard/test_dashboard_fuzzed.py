"""Every route of the dashboard with hostile queries and bodies: refused with a text, never an error of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import pytest

from dsv2 import CollectSink, ExecutionEnvironment, JobHandle
from dsv2.testing import Stop, TestSource
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.server import DashboardServer, server_of
from tests.dashboard_client import TOKEN
from tests.durations import LONG

ROUTES = ["", "/plan", "/history", "/operator", "/watermarks", "/letters", "/configuration"]
ACTIONS = ["/savepoint", "/stop", "/replay", "/error-policy"]
TEXTS = ["", "0", "-1", "--1", "1_0", "٣", "1e3", "9" * 5000, "-" + "9" * 5000, "NaN", "\0", "\ud800", "é", "%", "%zz"]
TEXTS += [
    "'\"<>&",
    "../../etc/passwd",
    "x" * 9000,
    "{}",
    "event-time",
    "absolute",
    "\r\nX-Header: 1",
    "\u202e",
    "s3://[",
    "file://[::",
]
BODIES = [
    b"",
    b"{",
    b"[" * 9000,
    b'{"path":' + b"[" * 9000,
    b'{"x":' + b"[" * 9000,
    b'{"path": "\\u0000"}',
    b"\xff\xfe",
]
BODIES += [
    b'{"path": "\\ud800"}',
    b'{"path": "\xff"}',
    b'{"path": 1}',
    b'{"path": null}',
    b"null",
    b'"path"',
    b"1" * 5000,
]
BODIES += [b'{"path": "' + b"x" * 20_000 + b'"}', b'{"path": "/tmp/\\n\\u001b"}']
PATHS = [
    "/api/jobs/%00",
    "/api/jobs/%ff",
    "/api/jobs/" + "9" * 5000,
    "/static/%2e%2e%2fapp.py",
    "/static/%00",
    "/%ff",
    "//",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    settings = Dashboard(0, token=TOKEN, allow_actions=True)
    env = ExecutionEnvironment.get_instance("local")
    source = TestSource([1, -2, 3, Stop()])
    env.from_source(source).with_uid("in").map(str).with_uid("absolute").to_sink(CollectSink[str]()).with_uid("out")
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    job: JobHandle = env.execute_async("fuzzed", dashboard=settings, checkpoint_location=folder / "checkpoint")
    running, _ = server_of(settings)
    yield running
    job.stop()
    running.close()


def answered(server: DashboardServer, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.settings.port, timeout=LONG)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def check(status: int, body: bytes, sent: object) -> None:
    assert status in (200, 202, 400, 404, 405, 408, 409, 413), (sent, status, body)
    if status >= 400 and body.startswith(b"{"):
        assert json.loads(body)["message"], sent


@pytest.mark.parametrize("route", ROUTES)
def test_queries(route: str, server: DashboardServer) -> None:
    for name in ("after", "uid", "identifier", "token", "other"):
        for text in TEXTS:
            path = f"/api/jobs/1{route}?{name}={quote(text, errors='surrogatepass')}"
            check(*answered(server, path), path[:200])
    for query in ("?", "?&&=", "?after", "?after=%ff", "?after=1&after=2", "?" + "&".join(["a=1"] * 2000)):
        check(*answered(server, f"/api/jobs/1{route}{query}"), query[:200])


@pytest.mark.parametrize("action", ACTIONS)
def test_bodies(action: str, server: DashboardServer, monkeypatch: pytest.MonkeyPatch) -> None:
    (watched,) = server.board.jobs.values()
    monkeypatch.setattr(watched, "stop", lambda: None)
    texts = [json.dumps({"path": text}).encode() for text in TEXTS if not text.isprintable() or "/" in text]
    for body in (*BODIES, *texts):
        status, answer = answered(server, f"/api/jobs/1{action}", "POST", body)
        check(status, answer, body[:200])
        assert status != 200, body
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "GET"):
        assert answered(server, f"/api/jobs/1{action}", method)[0] == 405


@pytest.mark.parametrize("path", PATHS)
def test_paths(path: str, server: DashboardServer) -> None:
    status, body = answered(server, path)
    check(status, body, path)
    assert status in (400, 404, 200)


def test_numbers_that_are_none_are_refused_with_a_text(server: DashboardServer) -> None:
    for text in ("9" * 5000, "x", "--1"):
        status, body = answered(server, f"/api/jobs/1/history?after={text}")
        assert (status, json.loads(body)) == (400, {"message": "after is the number of a micro-batch."})


def test_texts_of_records_that_utf8_cannot_encode_are_shown(
    server: DashboardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = {"id": "0.0", "operator": "absolute", "record": "'\ud800'", "error": "ValueError: \udfff"}
    monkeypatch.setattr("dsv2.views.dashboard.app.last_letters", lambda folder: {"letters": [letter]})
    status, body = answered(server, "/api/jobs/1/letters")
    assert status == 200
    (shown,) = json.loads(body)["letters"]
    assert (shown["record"], shown["error"]) == ("'\\ud800'", "ValueError: \\udfff")
