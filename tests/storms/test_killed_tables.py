"""``kill -9`` at steps of a commit, and in the middle of a file: Delta and Iceberg tables have each row once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.python_path import python_path

SINKS = [
    ("deltalake", {}),
    ("deltalake", {"key": ["item"], "compact_every": 2}),
    ("pyiceberg", {"compact_every": 2}),
    ("pyiceberg", {"key": ["item"]}),
]


def check(name: str, folder: Path, kills: int, options: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "tests.killed_tables_job", name, str(folder), str(kills), json.dumps(options)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["steps"] > kills
    rows = sorted((row["amount"], row["item"]) for row in result["rows"])
    assert rows == [(number, f"item {number}") for number in range(result["count"])]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), SINKS)
def test_no_row_is_lost_or_doubled(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    check(name, tmp_path, 6, options)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "options"), SINKS)
def test_no_row_is_lost_or_doubled_at_many_steps(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    check(name, tmp_path, 150, options)
