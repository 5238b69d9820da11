"""A dashboard for tests, and requests to it with any headers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple

from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.jobs import WatchedJob
from dsv2.views.dashboard.server import DashboardServer
from tests.durations import LONG

TOKEN = "a-token-of-the-tests"


class Answer(NamedTuple):
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@contextmanager
def serving(*jobs: WatchedJob, settings: Dashboard | None = None) -> Iterator[DashboardServer]:
    """A server at a free port. The first job has the id 1."""
    server = DashboardServer(settings or Dashboard(0))
    try:
        for job in jobs:
            server.board.add(job)
        yield server
    finally:
        server.close()


def ask(
    server: DashboardServer,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    body: object = None,
) -> Answer:
    """Send a request. ``headers``: They replace those that a client would send."""
    connection = HTTPConnection("127.0.0.1", server.settings.port, timeout=LONG)
    content = None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, content, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()


def get(server: DashboardServer, path: str) -> Any:
    """Return JSON."""
    answer = ask(server, path)
    assert answer.status == 200, answer
    return json.loads(answer.body)


@contextmanager
def events(server: DashboardServer) -> Iterator[Iterator[Any]]:
    """The data of the events of the server."""
    connection = HTTPConnection("127.0.0.1", server.settings.port, timeout=LONG)
    connection.request("GET", "/api/events")
    response = connection.getresponse()
    try:
        yield (json.loads(line[6:]) for line in response if line.startswith(b"data: "))
    finally:
        connection.close()
