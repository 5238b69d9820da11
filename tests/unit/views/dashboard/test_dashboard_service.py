"""The probes and the metrics that a dashboard serves."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import ConfigurationError, JobError
from dsv2.jobs.dashboard_settings import Dashboard
from dsv2.local import LocalRuntime, RestartPolicy
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.testing import Crash, ManualClock, TestSource
from dsv2.views.dashboard.server import DashboardServer, server_of
from tests.dashboard_client import TOKEN, ask, serving
from tests.durations import ms

SETTINGS = Dashboard(0, token=f"{TOKEN}-of-a-service")
BEARER = {"Authorization": f"Bearer {SETTINGS.token}"}


class Clock(ManualClock):
    during: Callable[[], None]

    def wait(self, duration: timedelta) -> None:
        self.during()
        super().wait(duration)


@pytest.fixture
def server() -> Iterator[DashboardServer]:
    """The server of jobs that are executed with the settings."""
    server, _ = server_of(SETTINGS)
    yield server
    server.close()


def probe(server: DashboardServer, path: str, **headers: str) -> str:
    """The answer to a service manager, which has no token."""
    answer = ask(server, path, headers)
    return f"{answer.status} {answer.body.decode()}"


def test_probes_follow_a_job(server: DashboardServer, tmp_path: Path) -> None:
    clock, seen = Clock(), dict[object, list[str]]()

    def look(when: object, *paths: str) -> None:
        seen[when] = [probe(server, path) for path in paths]

    def write(records: list[object], batch_id: int) -> None:
        if batch_id == 0:
            clock.advance(timedelta(minutes=11))
        look(batch_id, "/ready", "/live", "/live?seconds=900")

    look("before", "/ready", "/live")
    clock.during = lambda: look("restarting", "/ready", "/live")
    policy = RestartPolicy(delay=ms(50))
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=clock, restarts=policy, batches=[1]))
    numbers = env.from_source(TestSource([1, 2, Crash(), 3, 4])).with_uid("in")
    numbers.to_sink(ForeachBatchSink(write)).with_uid("out")
    env.execute("shop", checkpoint_location=tmp_path, dashboard=SETTINGS)
    look("after", "/ready", "/live")
    incomplete = "503 The job 'shop' is running: no micro-batch is complete."
    assert seen == {
        "before": ["503 No job has started.", "200 ok"],
        0: [incomplete, "503 A micro-batch of the job 'shop' takes longer than 0:10:00.", "200 ok"],
        1: ["200 ok"] * 3,
        "restarting": ["503 The job 'shop' is restarting: no micro-batch is complete.", "200 ok"],
        2: ["503 The job 'shop' is restarting: no micro-batch is complete.", "200 ok", "200 ok"],
        3: ["200 ok"] * 3,
        4: ["200 ok"] * 3,  # the end of the input
        "after": ["200 ok", "200 ok"],
    }


def test_failed_job_is_not_ready(server: DashboardServer) -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.from_source(TestSource([1, Crash()])).to_sink(CollectSink())
    with pytest.raises(JobError):
        env.execute("shop", dashboard=SETTINGS)
    assert probe(server, "/ready") == "503 The job 'shop' is failed: no micro-batch is complete."
    assert probe(server, "/live") == "200 ok"


def test_metrics_of_jobs_and_of_the_process(server: DashboardServer) -> None:
    found: list[str] = []
    types: set[str] = set()

    def scrape(records: list[int], batch_id: int) -> None:
        for accept in ("", "application/openmetrics-text; version=1.0.0"):
            answer = ask(server, "/metrics", BEARER | {"Accept": accept})
            found.extend(answer.body.decode().splitlines())
            types.add(answer.headers["content-type"].partition(";")[0])

    env = ExecutionEnvironment.get_instance("local")
    env.from_source(TestSource([1])).with_uid("in").to_sink(ForeachBatchSink(scrape)).with_uid("out")
    env.execute("shop", dashboard=SETTINGS)
    assert 'dsv2_job_restarts_total{job_name="shop"} 0.0' in found
    assert [line for line in found if line.startswith("process_resident_memory_bytes ")]
    assert types == {"text/plain", "application/openmetrics-text"}


def test_only_probes_need_no_token(server: DashboardServer) -> None:
    assert probe(server, "/metrics").startswith("401")
    assert probe(server, "/live", Host="10.1.2.3:8050") == "200 ok"
    assert ask(server, "/live", method="POST").status == 401
    answer = ask(server, f"/live?token={SETTINGS.token}")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("seconds", ["soon", "nan", "inf", "1e300"])
def test_limit_that_is_no_number(server: DashboardServer, seconds: str) -> None:
    assert probe(server, f"/live?seconds={seconds}").startswith("400")


def test_library_for_metrics_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in ("prometheus", "served"):
        monkeypatch.delitem(sys.modules, f"dsv2.views.metrics.{name}", raising=False)
    with serving() as server:
        answer = ask(server, "/metrics")
    assert answer.status == 501
    assert b"pip install 'dsv2[metrics]'" in answer.body


def test_addresses_of_the_command_line() -> None:
    assert Dashboard.at("8050") == Dashboard(8050)
    assert Dashboard.at("0.0.0.0:80", TOKEN) == Dashboard(80, "0.0.0.0", TOKEN)
    assert Dashboard.at("[::]:80") == Dashboard(80, "::")
    for wrong in ("", "localhost", "localhost:", "80:http"):
        with pytest.raises(ConfigurationError, match=re.escape(f"{wrong!r} is not PORT or HOST:PORT")):
            Dashboard.at(wrong)
