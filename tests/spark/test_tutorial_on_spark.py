"""The steps of the tutorial print on Spark what the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.python_path import python_path
from tests.tutorial import PAGE, comparable

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


def test_steps_print_what_is_shown(tmp_path: Path) -> None:
    written = tmp_path / "tutorial.md"
    environment = {**os.environ, "PYTHONPATH": python_path()}
    run = subprocess.run(
        [sys.executable, "-m", "tests.tutorial", str(written)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert comparable(written.read_text(encoding="utf-8")) == comparable(PAGE.read_text(encoding="utf-8"))
