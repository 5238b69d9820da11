"""The steps of the tutorial print what the page shows."""

from __future__ import annotations

import logging
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from dsv2.cli import main
from tests import ROOT
from tests.tutorial import PAGE, comparable, in_new_process, page_after_running


def in_this_process(command: list[str]) -> str:
    if command[0] != "dsv2":
        return in_new_process(command)
    sys.modules.pop("shop", None)
    with redirect_stdout(StringIO()) as printed, redirect_stderr(printed):
        main(command[1:])
    return "".join(line for line in printed.getvalue().splitlines(True) if not line.startswith("pipeline: "))


def test_steps_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the local runtime. A nightly test runs them on Spark."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSV2_RUNTIME", "local")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(logging.root, "handlers", [])  # warnings go to standard error, as outside of pytest
    page = PAGE.read_text(encoding="utf-8")
    assert comparable(page_after_running(page, in_this_process)) == comparable(page)
    del sys.modules["shop"]
