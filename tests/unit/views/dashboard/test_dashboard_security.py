"""Access to a dashboard, and what it never shows."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dsv2.errors import ConfigurationError
from dsv2.jobs.configuration import redacted
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.security import HEADERS, Guard
from dsv2.views.dashboard.server import DashboardServer
from tests.dashboard_client import TOKEN, ask, serving
from tests.dashboard_fakes import SECRET, FakeJob
from tests.durations import LONG

BEARER = {"Authorization": f"Bearer {TOKEN}"}
PAGES = ["/", "/static/main.js", "/api/jobs", "/api/jobs/1", "/api/jobs/1/plan", "/api/jobs/1/history"]
PAGES += ["/api/jobs/1/operator?uid=join", "/api/jobs/1/watermarks", "/api/jobs/1/letters", "/api/jobs/1/configuration"]


@pytest.fixture(scope="module")
def server() -> Iterator[DashboardServer]:
    with serving(FakeJob(3)) as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[DashboardServer]:
    with serving(FakeJob(3), settings=Dashboard(0, token=TOKEN)) as running:
        yield running


@pytest.fixture
def job() -> FakeJob:
    return FakeJob(3)


@pytest.fixture
def acting(job: FakeJob) -> Iterator[DashboardServer]:
    with serving(job, settings=Dashboard(0, token=TOKEN, allow_actions=True)) as running:
        yield running


def own_origin(server: DashboardServer) -> str:
    return f"http://127.0.0.1:{server.settings.port}"


def cookie(server: DashboardServer, token: str = TOKEN) -> dict[str, str]:
    return {"Cookie": f"other=1; dsv2_dashboard_{server.settings.port}={token}"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8050", "LOCALHOST", "127.0.0.1:1", "[::1]:8050"])
def test_names_of_this_machine(host: str, server: DashboardServer) -> None:
    assert ask(server, "/api/jobs", {"Host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8050", "localhost.evil.example", "", "10.0.0.1"]
)
def test_other_hosts_are_refused(host: str, server: DashboardServer) -> None:
    """A page whose name resolves to this address (DNS rebinding) has its own name in this header."""
    answer = ask(server, "/api/jobs", {"Host": host})
    assert answer.status == 421
    assert b"orders" not in answer.body


def test_addresses_are_accepted_if_others_may_connect() -> None:
    with serving(settings=Dashboard(0, "0.0.0.0", TOKEN)) as server:
        assert ask(server, "/api/jobs", BEARER | {"Host": "10.0.0.1:8050"}).status == 200
        assert ask(server, "/api/jobs", BEARER | {"Host": "evil.example"}).status == 421


@pytest.mark.parametrize("path", PAGES)
def test_everything_needs_the_token(path: str, guarded: DashboardServer) -> None:
    assert ask(guarded, path).status == 401
    assert ask(guarded, path, BEARER).status == 200
    assert ask(guarded, path, cookie(guarded)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong-token-of-tests"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer ÄÖÜ"},
        {"Cookie": f"dsv2_dashboard_1={TOKEN}"},
        {"Cookie": TOKEN},
    ],
)
def test_wrong_tokens(headers: Mapping[str, str], guarded: DashboardServer) -> None:
    assert ask(guarded, "/api/jobs", headers).status == 401


def test_token_in_the_address_becomes_a_cookie(guarded: DashboardServer) -> None:
    answer = ask(guarded, f"/?token={TOKEN}")
    assert answer.status == 200
    assert answer.headers["set-cookie"].endswith("Path=/; HttpOnly; SameSite=Strict")
    given = answer.headers["set-cookie"].partition(";")[0]
    assert ask(guarded, "/api/jobs", {"Cookie": given}).status == 200
    assert "set-cookie" not in ask(guarded, "/?token=wrong-token-of-tests").headers


@pytest.mark.parametrize("path", [*PAGES, "/none", "/api/jobs/7", "/api/jobs/1/history?after=x"])
def test_every_answer_has_the_headers(path: str, server: DashboardServer) -> None:
    for host in ("localhost", "evil.example"):
        answer = ask(server, path, {"Host": host})
        assert {name: answer.headers[name.lower()] for name in HEADERS} == dict(HEADERS)
        assert "server" not in answer.headers


@pytest.mark.parametrize("path", PAGES)
def test_secrets_are_not_sent(path: str, server: DashboardServer) -> None:
    answer = ask(server, path)
    assert answer.status == 200
    assert SECRET.encode() not in answer.body


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "main.py", "none.js"])
def test_only_the_files_of_the_page_are_served(name: str, server: DashboardServer) -> None:
    assert ask(server, f"/static/{name}").status == 404


@pytest.mark.parametrize("action", ["stop", "savepoint", "replay", "error-policy"])
def test_nothing_changes_without_allow_actions(action: str, job: FakeJob) -> None:
    with serving(job, settings=Dashboard(0, token=TOKEN)) as server:
        assert json.loads(ask(server, "/api/jobs/1", BEARER).body)["actions"] == []
        answer = ask(server, f"/api/jobs/1/{action}", BEARER, method="POST", body={"path": "/s"})
    assert answer.status == 403
    assert (job.stopped, job.savepoints) == (0, [])


def test_actions_need_a_token_and_the_origin_of_the_page(job: FakeJob, acting: DashboardServer) -> None:
    origin = {"Origin": own_origin(acting)}
    for headers, status in (
        ({}, 401),
        (origin, 401),
        (cookie(acting), 403),
        (cookie(acting) | {"Origin": "http://evil.example"}, 403),
        (cookie(acting) | {"Origin": "null"}, 403),
        (cookie(acting) | {"Origin": own_origin(acting) + "0"}, 403),
        (cookie(acting, "wrong-token-of-tests") | origin, 401),
    ):
        answer = ask(acting, "/api/jobs/1/savepoint", headers, method="POST", body={"path": "/s"})
        assert answer.status == status, headers
    assert ask(acting, "/api/jobs/1/savepoint", cookie(acting)).status == 405, "not with GET"
    assert job.savepoints == []
    for allowed in (cookie(acting) | origin, BEARER):
        assert ask(acting, "/api/jobs/1/savepoint", allowed, method="POST", body={"path": "/s"}).status == 200
    assert job.savepoints == ["/s", "/s"]


def test_stop(job: FakeJob, acting: DashboardServer, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    monkeypatch.setattr(job, "stop", stopped.set)
    answer = ask(acting, "/api/jobs/1/stop", BEARER, method="POST")
    assert answer.status == 202
    assert stopped.wait(LONG)


@pytest.mark.parametrize("body", [None, {}, {"path": ""}, {"path": 3}, [], {"path": "x" * 20_000}])
def test_savepoint_without_a_path(body: object, job: FakeJob, acting: DashboardServer) -> None:
    assert ask(acting, "/api/jobs/1/savepoint", BEARER, method="POST", body=body).status in (400, 413)
    assert job.savepoints == []


def test_error_of_an_action_is_shown(acting: DashboardServer) -> None:
    answer = ask(acting, "/api/jobs/1/savepoint", BEARER, method="POST", body={"path": "/full"})
    assert (answer.status, json.loads(answer.body)) == (409, {"message": "The folder /full is not empty."})


@pytest.mark.parametrize(
    "settings",
    [Dashboard(host="0.0.0.0"), Dashboard(host="::"), Dashboard(host="a-machine"), Dashboard(allow_actions=True)],
)
def test_random_token_where_one_is_required(settings: Dashboard) -> None:
    first, second = (settings.with_token().token for _ in range(2))
    assert first is not None
    assert len(first) >= 32
    assert first != second


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_no_token_for_this_machine(host: str) -> None:
    assert Dashboard(host=host).with_token().token is None


def test_token_is_neither_in_logs_nor_in_the_repr(guarded: DashboardServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ask(guarded, f"/api/jobs?token={TOKEN}")
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(guarded.settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"port": -1}, "from 0 to 65535"),
        ({"port": "8050"}, "from 0 to 65535"),
        ({"port": True}, "from 0 to 65535"),
        ({"host": ""}, "is an address"),
        ({"token": "short"}, "at least 16"),
        ({"token": "with spaces in the token"}, "at least 16"),
        ({"token": "with;semicolon;in;it"}, "at least 16"),
    ],
)
def test_invalid_settings(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        Dashboard(**arguments)  # type: ignore[arg-type]
    assert str(arguments.get("token", "none")) not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", SECRET),
        ("spark.hadoop.fs.s3a.access.key", SECRET),
        ("spark.hadoop.fs.azure.account.key.x", SECRET),
        ("spark.ssl.keyPassword", SECRET),
        ("spark.my.token", SECRET),
        ("spark.sql.url", f"jdbc:postgresql://h/d?user=u&password={SECRET}"),
        ("spark.sql.url", f"postgresql://u:{SECRET}@h/d"),
        ("spark.driver.extraJavaOptions", f"-Djavax.net.ssl.trustStorePassword={SECRET} -Xmx1g"),
        ("spark.driver.extraJavaOptions", f"-Dapi_key={SECRET}"),
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY", SECRET),
    ],
)
def test_settings_are_shown_without_secrets(name: str, value: str) -> None:
    shown = redacted(name, value)
    assert shown.name == name
    assert SECRET not in shown.value
    assert "***" in shown.value


def test_other_settings_are_shown() -> None:
    assert redacted("spark.master", "local[2]").value == "local[2]"
    assert redacted("spark.executor.memory", "4g").value == "4g"


def test_only_requests_of_http_are_answered() -> None:
    asked: list[object] = []

    async def app(*request: object) -> None:
        asked.append(request)

    async def nothing(*_: object) -> Any:
        raise AssertionError("no message is expected")

    asyncio.run(Guard(app, Dashboard(), 8050)({"type": "websocket"}, nothing, nothing))
    assert asked == []
