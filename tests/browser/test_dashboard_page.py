"""The page of a dashboard in a browser: every view, light and dark, wide and narrow, with the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from dsv2.base.folders import LocalFolder
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.server import DashboardServer
from dsv2.views.dashboard.stored_job import CheckpointJob
from tests.browser.conftest import OpenPage
from tests.dashboard_client import TOKEN, serving
from tests.dashboard_fakes import SECRET, FakeJob, fake_progress

VIEWS = {
    "overview": ["What to look at", "Split rates-3 holds event time back", "lag 1,196", "busy 36 %"],
    "watermarks": ["quiet split", "split rates-3", "Call with_idleness"],
    "timeline": ["Throughput", "Latency", "Phases", "level 1", "State", "Lag"],
    "sources": ["One split needs attention", "rates-3", "stands still", "orders-0", "ended"],
    "errors": ["find alerts", "There are no stored dead letters."],
    "configuration": ["KafkaSource(orders at kafka.example.com:9092", "sasl.password': '***'", "spark.master"],
}
NAMELESS = """() => [...document.querySelectorAll('button, select, [role=img], [role=region], img, a')]
  .filter((one) => !(one.getAttribute('aria-label') ?? one.getAttribute('alt') ?? one.textContent).trim()
    && !(one.tagName === 'IMG' && one.getAttribute('alt') === ''))
  .map((one) => one.outerHTML)"""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def job() -> FakeJob:
    return FakeJob(30)


@pytest.fixture
def server(job: FakeJob) -> Iterator[DashboardServer]:
    with serving(job) as running:
        yield running


def operator(page: Page, name: str) -> str:
    """The selector of the card of an operator."""
    number = {"orders": 0, "parse orders": 1, "rates": 2, "join": 3, "table": 4, "find alerts": 5}[name]
    expect(page.locator(f"[data-operator='{number}'] .title")).to_have_text(name)
    return f"[data-operator='{number}']"


def focused(page: Page) -> str:
    return str(
        page.evaluate(
            "document.activeElement.querySelector('.title')?.textContent ?? document.activeElement.textContent"
        )
    )


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 400)])
def test_every_view(scheme: Literal["light", "dark"], width: int, server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(server.url, scheme=scheme, width=width)
    for view, texts in VIEWS.items():
        page.click(f"#tab-{view}")
        for text in texts:
            expect(page.locator("#view")).to_contain_text(text)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "only tables and graphs scroll sideways"
        assert page.evaluate(NAMELESS) == []
        expect(page.get_by_role("tab", selected=True)).to_have_attribute("id", f"tab-{view}")
        assert SECRET not in page.content()
    red = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(red) < 60) == (scheme == "dark")


def test_page_follows_the_job(job: FakeJob, server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}#job=1&tab=timeline")
    expect(page.locator(".top")).to_contain_text("micro-batch 29")
    page.get_by_role("img", name="Throughput").focus()
    job.advance(3)
    expect(page.locator(".top")).to_contain_text("micro-batch 32")
    expect(page.get_by_role("img", name="Throughput")).to_be_focused()
    expect(page.get_by_role("img", name="Latency, micro-batch 32")).to_be_visible()


def test_graph_follows_the_job(job: FakeJob, server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(server.url)
    card = page.locator(operator(page, "join"))
    expect(card).to_contain_text("holds 2,380")
    expect(card).to_have_attribute("class", "operator high")
    card.focus()
    job.advance(3)
    expect(card).to_contain_text("holds 2,800")
    expect(card).to_be_focused()
    expect(page.locator("[data-operator]")).to_have_count(7)


def test_choosing_an_operator(server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(server.url)
    page.click(operator(page, "join"))
    details = page.locator("#details")
    for text in ("records held", "2,380", "in callbacks for 62% of the time", "currencies", "split rates-3"):
        expect(details).to_contain_text(text)
    assert "operator=3" in page.url
    page.reload()
    expect(details.get_by_role("heading", name="join")).to_be_visible()
    details.get_by_role("button", name="rates, subtask 1").click()
    expect(details.get_by_role("heading", name="rates")).to_be_visible()
    details.get_by_role("button", name="Close").click()
    expect(details).to_contain_text("What to look at")


def test_keyboard(server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(server.url)
    expect(page.locator("#details")).to_contain_text("What to look at")
    page.keyboard.press("Tab")
    assert focused(page) == "Overview", "the tabs come first"
    page.keyboard.press("ArrowRight")
    assert focused(page) == "Watermarks"
    expect(page.get_by_role("tab", name="Watermarks")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert focused(page) == "Configuration", "they go around"
    page.keyboard.press("ArrowRight")
    expect(page.locator(operator(page, "orders"))).to_be_visible()
    page.keyboard.press("Tab")
    while focused(page) != "orders":  # the graph itself may be a place to scroll
        page.keyboard.press("Tab")
    for key, name in (
        ("ArrowDown", "parse orders"),
        ("ArrowRight", "rates"),
        ("ArrowDown", "join"),
        ("ArrowUp", "parse orders"),
        ("ArrowUp", "orders"),
        ("ArrowUp", "orders"),
    ):
        page.keyboard.press(key)
        assert focused(page) == name
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#details").get_by_role("heading", name="parse orders")).to_be_visible()
    expect(page.locator(operator(page, "parse orders"))).to_have_attribute("aria-pressed", "true")
    assert focused(page) == "parse orders"
    page.keyboard.press("Escape")
    expect(page.locator("#details")).to_contain_text("What to look at")


def test_pointing_at_a_chart(server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}#job=1&tab=timeline")
    chart = page.locator("section.chart", has_text="Phases")
    chart.get_by_role("img").focus()
    page.keyboard.press("ArrowLeft")
    expect(chart).to_contain_text("micro-batch 28")
    expect(chart.get_by_role("img")).to_have_attribute(
        "aria-label",
        "Phases, micro-batch 28: planning 64 ms, source 190 ms, level 1 555 ms, sinks 120 ms, commit 90 ms",
    )
    page.get_by_role("tab", name="Timeline").focus()
    expect(chart).to_contain_text("latest")
    box = chart.get_by_role("img").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 50)
    expect(chart).to_contain_text("micro-batch 0")


def test_choosing_a_time_range(server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}#job=1&tab=timeline")
    chart = page.locator("section.chart", has_text="Latency")
    image = chart.get_by_role("img")
    box = image.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
    expect(chart.locator(".range")).to_be_visible()
    page.mouse.up()
    leave = page.get_by_role("button", name="Leave")
    expect(leave).to_be_visible()
    image.focus()
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    first = int(chart.locator(".when").inner_text().split(",")[0].removeprefix("micro-batch "))
    assert 8 <= first <= 12, "of 30"
    leave.click()
    expect(leave).to_be_hidden()
    image.focus()
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    expect(chart).to_contain_text("micro-batch 0")
    page.keyboard.press("+")
    expect(leave).to_be_visible()
    page.keyboard.press("Escape")
    expect(leave).to_be_hidden()
    page.get_by_label("Show").select_option("the last minute")
    image.focus()
    for _ in range(3):
        page.keyboard.press("PageUp")
    expect(chart).to_contain_text("micro-batch 0")  # all 30 are of the last minute


def test_long_micro_batch_does_not_flatten_the_others(job: FakeJob, open_page: OpenPage) -> None:
    progress = fake_progress(30)
    slow = replace(progress.batches[-1], duration_ms=60_000.0)
    job.record.add(replace(progress, batches=(*progress.batches[:-1], slow)))
    with serving(job) as server:
        page = open_page(f"{server.url}#job=1&tab=timeline")
        chart = page.locator("section.chart", has_text="Latency")
        expect(chart).to_contain_text("1 value beyond the scale, up to 1 min 0 s")
        expect(chart.locator(".beyond")).to_have_count(1)
        assert chart.locator(".tick").all_text_contents()[2] == "2.0 s"


def test_data_are_never_html(open_page: OpenPage) -> None:
    job = FakeJob(30)
    snapshot = job.record.snapshot()
    assert snapshot.plan is not None
    operators = tuple(replace(one, name=HOSTILE, uid=HOSTILE, location=HOSTILE) for one in snapshot.plan.operators)
    job.record.describe(HOSTILE, replace(snapshot.plan, operators=operators, job_name=HOSTILE), snapshot.configuration)
    with serving(job) as server:
        page = open_page(server.url)
        expect(page.locator("h1")).to_have_text(HOSTILE)
        expect(page.locator("[data-operator='3'] .title")).to_contain_text("<img src=x")
        expect(page.locator("[data-operator='3'] > title")).to_contain_text(HOSTILE)
        assert page.locator("img").count() == 1, "the icon"
        assert page.locator("script").count() == 1


def test_several_jobs(job: FakeJob, open_page: OpenPage) -> None:
    second = FakeJob(2)
    second.record.describe("refunds", second.record.snapshot().plan, ())
    with serving(job, second) as server:
        page = open_page(server.url)
        choice = page.get_by_role("combobox", name="Job")
        expect(choice.locator("option:checked")).to_have_text("refunds (running)")
        expect(page.locator(".top")).to_contain_text("micro-batch 1,")
        choice.select_option(label="orders in euros (running)")
        expect(page.locator(".top")).to_contain_text("micro-batch 29")
        assert "job=1" in page.url


def test_connection_that_is_lost_and_found(job: FakeJob, server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(server.url)
    expect(page.locator(".top")).to_contain_text("micro-batch 29")
    page.route("**/*", lambda route: route.abort())  # so that the browser does not report failed requests itself
    server.board.is_closing = True
    expect(page.locator(".notices")).to_contain_text("Not connected")
    expect(page.locator(".top")).to_contain_text("micro-batch 29")
    job.advance()
    server.board.is_closing = False
    page.unroute_all()
    expect(page.locator(".top")).to_contain_text("micro-batch 30")
    expect(page.locator(".notices")).not_to_contain_text("Not connected")


def test_token_and_actions(job: FakeJob, open_page: OpenPage) -> None:
    with serving(job, settings=Dashboard(0, token=TOKEN, allow_actions=True)) as server:
        page = open_page(f"{server.url}")
        expect(page.locator(".top")).to_contain_text("micro-batch 29")
        assert TOKEN not in page.url
        assert TOKEN not in page.evaluate("document.cookie"), "scripts cannot read it"
        page.once("dialog", lambda dialog: dialog.accept("/savepoints/1"))
        page.get_by_role("button", name="Savepoint").click()
        expect(page.locator(".notices")).to_contain_text("The savepoint is in /savepoints/1.")
        page.once("dialog", lambda dialog: dialog.dismiss())
        page.get_by_role("button", name="Stop").click()
        assert job.stopped == 0
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".top")).to_contain_text("stopped")
        assert (job.stopped, job.savepoints) == (1, ["/savepoints/1"])
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_no_actions_unless_allowed(server: DashboardServer, open_page: OpenPage) -> None:
    page = open_page(server.url)
    expect(page.locator(".top")).to_contain_text("micro-batch 29")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def test_jobs_that_are_not_there_yet(open_page: OpenPage) -> None:
    with serving() as server:
        page = open_page(server.url)
        expect(page.locator("#app")).to_contain_text("Waiting for a job")
        server.board.add(FakeJob(0))
        expect(page.locator("h1")).to_have_text("orders in euros")
        expect(page.locator("#view")).to_contain_text("What to look at")


def test_checkpoint_without_progress(tmp_path: object, open_page: OpenPage) -> None:
    with serving(CheckpointJob(LocalFolder(str(tmp_path)))) as server:
        page = open_page(server.url)
        expect(page.locator("#view")).to_contain_text("The checkpoint has no plan of its job yet.")
