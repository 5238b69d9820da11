"""The screenshots of the documentation. ``python -m tests.browser.screenshots`` makes them again."""

from __future__ import annotations

import os
from io import BytesIO

from PIL import Image
from playwright.sync_api import sync_playwright

from components.chromium import find_chromium
from tests import ROOT
from tests.dashboard_client import serving
from tests.dashboard_fakes import FakeJob

_ASSETS = ROOT / "docs/assets"
_PAGES = {
    "overview": ("tab=overview", "What to look at", 900),
    "operator": ("tab=overview&operator=3", "split rates-3", 1080),
    "timeline": ("tab=timeline", "Phases", 830),
}


def main() -> None:
    """Write the files."""
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with serving(FakeJob(30)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
        for name, (address, text, height) in _PAGES.items():
            page = browser.new_page(viewport={"width": 1280, "height": height}, color_scheme="light")
            page.goto(f"{server.url}#job=1&{address}")
            page.get_by_text(text).first.wait_for()
            image = Image.open(BytesIO(page.screenshot()))
            image.quantize(128).save(_ASSETS / f"dashboard_{name}.png", optimize=True)  # a third of the size
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
