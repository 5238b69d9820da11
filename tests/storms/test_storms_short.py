"""The short form of every storm, each in a process of its own, as users start them.

What a storm finds in these few cells is sound, so it ends with 0. With a wrong oracle it reports it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def run_short(name: str, results: Path) -> dict[str, Any]:
    """The JSON of the report."""
    run = subprocess.run(
        [sys.executable, "-m", f"storms.{name}", "--short", "--results", str(results)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (results / f"{name}.md").read_text() in run.stdout
    report: dict[str, Any] = json.loads((results / f"{name}.json").read_text())
    return report


def rows_of(report: dict[str, Any], table: int) -> list[list[Any]]:
    rows: list[list[Any]] = report["tables"][table]["rows"]
    return rows


def test_kills(tmp_path: Path) -> None:
    report = run_short("kills", tmp_path)
    assert sum(kills for _, kills in rows_of(report, 0)) == 2
    assert sum(kills for _, kills in rows_of(report, 1)) == 1
    assert rows_of(report, 2) == [["two-sources-small", 1, 3, 1, 0]]


def test_corruption(tmp_path: Path) -> None:
    report = run_short("corruption", tmp_path)
    assert sum(cells for _, cells in rows_of(report, 0)) >= 3


def test_changed_restarts(tmp_path: Path) -> None:
    report = run_short("changes", tmp_path)
    assert [row[2:] for row in rows_of(report, 1)] == [["right", "yes"], ["refused", "yes"]]


def test_random_graphs(tmp_path: Path) -> None:
    report = run_short("dags", tmp_path)
    assert [row[1] for row in rows_of(report, 0)] == [12, 12, 12]


def test_poison(tmp_path: Path) -> None:
    report = run_short("poison", tmp_path)
    assert len(rows_of(report, 1)) == 5


def test_soak(tmp_path: Path) -> None:
    report = run_short("soak", tmp_path)
    assert rows_of(report, 1) == [["all micro-batches", "each number once, counted right"]]
