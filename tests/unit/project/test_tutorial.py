"""The steps of the tutorial print what the page shows."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.tutorial import PAGE, comparable, page_after_running


def test_steps_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the local runtime. A nightly test runs them on Spark."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSV2_RUNTIME", "local")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(logging.root, "handlers", [])  # warnings go to standard error, as outside of pytest
    page = PAGE.read_text(encoding="utf-8")
    assert comparable(page_after_running(page)) == comparable(page)
    del sys.modules["shop"]
