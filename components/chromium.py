"""Finds the Chromium of this machine, for tests of web pages."""

from __future__ import annotations

import shutil

from components.server import MissingComponentError

__all__ = ("find_chromium",)

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str:
    """Return the path of the browser.

    Raises:
        MissingComponentError: There is none.
    """
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        raise MissingComponentError(
            "Chromium is missing. Install it with the package manager of the system, such as: apt-get install chromium"
        )
    return found
