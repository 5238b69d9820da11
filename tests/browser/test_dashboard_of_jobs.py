"""The page of a dashboard with a job that runs, and with what the job has stored in its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import expect

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, Trigger
from dsv2.base.folders import LocalFolder
from dsv2.extension.event_time import EventTimeExtension, TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.jobs.dashboard_settings import Dashboard
from dsv2.sources import Portion, RoundRobinSplitAssigner
from dsv2.views.dashboard.server import DashboardServer, server_of
from dsv2.views.dashboard.stored_job import CheckpointJob
from tests.browser.conftest import OpenPage
from tests.dashboard_client import events, get
from tests.spans import Item, Span, Spans

START = 1_364_774_400_000
VIEWS = {
    "overview": ["rates", "Split Frankfurt", "join", "orders", "'Frankfurt' has a backlog of 5 records"],
    "watermarks": ["join", "2013-04-01 00:00:02.999", "Frankfurt"],
    "timeline": ["Throughput", "Latency", "Phases", "planning", "sinks"],
    "sources": ["One split needs attention", "Frankfurt", "stands still", "London", "Paris"],
    "errors": ["Dead letters", "ValueError: 3 is unlucky", "join"],
    "configuration": ["prices", "streaming", "every 200 ms", "Numbers", "CollectSink", "seed"],
}


class Numbers(Spans):
    """Spans that end, but for one, which stops."""

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        return super().advance(split, limit) if split.name != "Frankfurt" or split.position < 3 else None

    def lag(self, split: Span, /) -> int:
        return self.ends[split.name] - split.position


class Join(TwoInputNonBroadcastEventTimeStreamProcessFunction[Item, Item, Item]):
    """Passes on both, but for the third record."""

    def process_record_from_first_input(self, record: Item, output: Any, ctx: Any) -> None:
        if record.number == 3:
            raise ValueError("3 is unlucky")
        output.collect(record)

    def process_record_from_second_input(self, record: Item, output: Any, ctx: Any) -> None:
        output.collect(record)


def time_of(item: Item) -> int:
    return START + 1_000 * item.number


def pipeline(env: ExecutionEnvironment) -> None:
    times = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_watermark_strategy()

    def source(uid: str, **ends: int) -> Any:
        numbers = Numbers(ends, assigner=RoundRobinSplitAssigner(), bounded=False, limit=4)
        return env.from_source(numbers, uid, watermarks=times).with_uid(uid)

    joined = source("orders", Paris=100_000).connect_and_process(source("rates", London=100_000, Frankfurt=9), Join())
    joined = joined.with_error_policy(ErrorPolicy().dead_letter(ValueError)).with_uid("join")
    joined.to_sink(CollectSink[Item]()).with_uid("prices")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    """The job 1 runs, the job 2 is its checkpoint."""
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))
    settings = Dashboard(0)
    server, _ = server_of(settings)
    env = ExecutionEnvironment.get_instance("local")
    pipeline(env)
    trigger = Trigger.processing_time(timedelta(milliseconds=200))
    job = env.execute_async("prices", dashboard=settings, checkpoint_location=checkpoint, trigger=trigger)
    try:
        with events(server) as changes:
            next(jobs for jobs in changes if get(server, f"/api/jobs/{jobs[0]['id']}")["summary"]["batch_id"] >= 5)
        server.board.add(CheckpointJob(LocalFolder(checkpoint)))
        yield server
    finally:
        job.stop()
        server.close()


@pytest.mark.parametrize(("number", "status"), [(1, "running"), (2, "stored")])
def test_every_view(number: int, status: str, server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}#job={number}")
    expect(page.locator(".top .pill")).to_have_text(status)
    for view, texts in VIEWS.items():
        page.click(f"#tab-{view}")
        for text in texts:
            expect(page.locator("#view")).to_contain_text(text)  # a split stands still after ten seconds


def test_the_stored_job_is_followed(server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}#job=2")
    shown = page.locator(".top .soft")
    expect(shown).to_contain_text("micro-batch")
    before = shown.inner_text().split(",")[0]
    expect(shown).not_to_contain_text(f"{before},")
