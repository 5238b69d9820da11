"""The short form of every storm. Those that need a session share a JVM. Jobs that they kill have their own JVMs.

The findings of a storm in these few cells are sound, so it exits with 0. It reports a wrong oracle.

Nightly, because these tests check the storms themselves. Their effects on a job on Spark are tested by
tests/spark/test_kill.py, test_older_state.py, test_refused_restart.py and test_user_failures.py, and the random graphs
of tests/property. test_storms_find_faults.py checks without Spark that storms find faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.program_process import ProgramProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramProcess]:
    """The process that runs the storms."""
    process = ProgramProcess(tmp_path_factory.mktemp("storms"))
    yield process
    process.stop()


def rows_of(report: dict[str, Any], table: int) -> list[list[Any]]:
    rows: list[list[Any]] = report["tables"][table]["rows"]
    return rows


def test_kills(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.kills", tmp_path)
    assert sum(kills for _, kills in rows_of(report, 0)) == 2
    assert sum(kills for _, kills in rows_of(report, 1)) == 1
    assert rows_of(report, 2) == [["two-sources-small", 1, 3, 1, 0]]


def test_cluster(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.cluster", tmp_path)
    assert rows_of(report, 0) == [["executor", 1], ["worker", 1]]
    assert rows_of(report, 1) == [[1, 1, 0, 0]]


def test_upgrades(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.upgrades", tmp_path)
    kills = {kind: 0 for kind, *_ in rows_of(report, 0)}
    for kind, _, number in rows_of(report, 0):
        kills[kind] += number
    assert kills == {"create": 1, "migrate": 1, "restore": 0}
    assert [row[-1] for row in rows_of(report, 1)] == ["equal"]


def test_moves(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.moves", tmp_path)
    assert sum(kills for _, _, kills in rows_of(report, 0)) == 2
    assert [row[-1] for row in rows_of(report, 1)] == ["equal"]


def test_corruption(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.corruption", tmp_path)
    assert sum(cells for _, cells in rows_of(report, 0)) >= 3


def test_changed_restarts(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.changes", tmp_path)
    assert [row[2:] for row in rows_of(report, 1)] == [["right", "yes"], ["refused", "yes"]]


def test_random_graphs(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.dags", tmp_path)
    assert [row[1] for row in rows_of(report, 0)] == [12, 12, 12]


def test_poison(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.poison", tmp_path)
    assert len(rows_of(report, 1)) == 5


def test_soak(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("storms.soak", tmp_path)
    assert rows_of(report, 1) == [["all micro-batches", "each number once, counted right"]]
