"""The Grafana dashboard and the alert rules of the documentation, with a real Prometheus server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from components.prometheus import PrometheusServer, check_rules
from components.server import MissingComponentError
from dsv2 import JobStatus
from dsv2.metrics.prometheus import PrometheusListener
from dsv2.progress import BatchProgress, SplitProgress
from tests.metered import PlayedJob

NewServer = Callable[..., PrometheusServer]

MONITORING = Path(__file__).parents[2] / "docs" / "assets" / "monitoring"
RULES = MONITORING / "dsv2-alerts.yml"
ALERTS = re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)
DEADLINE_SECONDS = 60.0


@pytest.fixture
def listener() -> Iterator[PrometheusListener]:
    listener = PrometheusListener(0, registry=CollectorRegistry())
    yield listener
    listener.close()


def eventually(happened: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> bool:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happened() and time.monotonic() < deadline:
        meanwhile()
        time.sleep(0.05)
    return happened()


def shortened(folder: Path) -> Path:
    """The rules with durations of some seconds instead of minutes."""
    text = re.sub(r"\b\d+m\b(?=[\]:])", "3s", RULES.read_text())
    text = text.replace("[3s:]", "[3s:200ms]")
    path = folder / "alerts.yml"
    path.write_text(re.sub(r"for: \d+m", "for: 400ms", text))
    return path


class Shop:
    """A job that is played, and whose numbers grow with each micro-batch."""

    def __init__(self, listener: PrometheusListener, name: str) -> None:
        self.job = PlayedJob(listener, name).start()
        self._number = 0

    def report(
        self,
        *,
        moves: bool = True,
        growing_lag: bool = False,
        errors: bool = False,
        seconds: float = 0.1,
        ended_ago: float = 0.0,
        largest_state: int = 0,
    ) -> None:
        self._number += 1
        number = self._number
        now_ms = int(time.time() * 1000)
        lag = 2_000 + 10 * number if growing_lag else 50
        self.job.report(
            number,
            records=100 * number,
            event_times=(now_ms if moves else 1_000, now_ms),
            counters={"errors_dead_lettered": 100 * number if errors else 2},
            splits=(SplitProgress("a", 0, lag=lag),),
            largest_state=largest_state,
            batches=(BatchProgress(number, now_ms - round((seconds + ended_ago) * 1000), seconds * 1000),),
        )


def test_rules_are_valid() -> None:
    try:
        check_rules(RULES)
    except MissingComponentError as error:
        pytest.skip(str(error))


def test_alerts(listener: PrometheusListener, new_prometheus_server: NewServer, tmp_path: Path) -> None:
    shops = {
        name: Shop(listener, name)
        for name in ("healthy", "fails", "restarts", "vanishes", "stuck", "behind", "bad", "slow", "hangs", "large")
    }
    server = new_prometheus_server(listener.port, shortened(tmp_path))

    ended: set[str] = set()

    def play() -> None:
        for name, shop in shops.items():
            if name in ended:
                continue
            shop.report(
                moves=name != "stuck",
                growing_lag=name == "behind",
                errors=name == "bad",
                largest_state=600 << 20 if name == "large" else 1_000,
                seconds=100.0 if name == "slow" else 0.1,
                ended_ago=2_000.0 if name == "hangs" else 0.0,
            )

    def is_scraped() -> bool:
        return len(server.query("dsv2_batch_id")) == len(shops)

    assert eventually(is_scraped, play)
    ended |= {"fails", "vanishes"}
    shops["fails"].job.end(JobStatus.FAILED)
    shops["vanishes"].job.end(JobStatus.RUNNING)  # as if its process were gone
    expected = {
        ("Dsv2JobFailed", "fails"),
        ("Dsv2JobRestarts", "restarts"),
        ("Dsv2JobMissing", "vanishes"),
        ("Dsv2WatermarkStuck", "stuck"),
        ("Dsv2LagGrows", "behind"),
        ("Dsv2RecordsNotProcessed", "bad"),
        ("Dsv2LongMicroBatches", "slow"),
        ("Dsv2MicroBatchHangs", "hangs"),
        ("Dsv2StateLarge", "large"),
    }
    assert {alert for alert, _ in expected} == set(ALERTS)
    fired: set[tuple[str, str]] = set()

    def all_fired() -> bool:
        fired.update(server.firing())
        return expected <= fired

    def play_and_restart() -> None:
        play()
        shops["restarts"].job.end(JobStatus.STOPPED)
        shops["restarts"].job.start()

    assert eventually(all_fired, play_and_restart), expected - fired
    assert {alert for alert in fired if alert[1] == "healthy"} == set()
