"""A browser for the tests of web pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from components.chromium import find_chromium
from components.server import MissingComponentError
from tests.durations import LONG

OpenPage = Callable[..., Page]

expect.set_options(timeout=1000 * LONG)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the browser."""
    for item in items:
        if "open_page" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium: the browsers that Playwright downloads do not run everywhere. Skips if it is missing."""
    try:
        path = find_chromium()
    except MissingComponentError as error:
        pytest.skip(str(error))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[OpenPage]:
    """Opens pages. They must write nothing to the console, and load nothing from elsewhere."""
    pages: list[Page] = []
    complaints: list[str] = []

    def is_ours(text: str) -> bool:
        return not text.startswith("Failed to load resource: net::ERR_")  # a connection that a test has closed

    def opened(url: str, *, scheme: Literal["light", "dark"] = "light", width: int = 1280) -> Page:
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(1000 * LONG)
        origin = url.partition("/?")[0].partition("/#")[0]
        page.on("console", lambda message: complaints.append(message.text) if is_ours(message.text) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(origin) else complaints.append(request.url))
        page.goto(url)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == []
