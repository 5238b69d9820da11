"""The short form of every benchmark: it runs, says what it is supposed to say, and keeps it where it is told to.

Each in a process of its own, as users start them: a benchmark brings its own session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from benchmarks.kafka import SPARK_KAFKA
from benchmarks.peers.environments import OWN
from benchmarks.peers.jobs import JOBS
from components.kafka import kafka_classpath
from components.maven import maven_classpath
from components.server import MissingComponentError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent


def run_short(name: str, results: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """What the benchmark prints, and the JSON that it keeps."""
    run = run_program(name, "--results", str(results), *arguments)
    assert (results / f"{name}.md").read_text() in run.stdout
    return run.stdout, json.loads((results / f"{name}.json").read_text())


def run_program(
    name: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The short form of a benchmark, to its end."""
    run = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--short", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert run.returncode == 0, run.stderr
    return run


def check(report: dict[str, Any], rows: list[int], verdicts: int) -> None:
    """The report has tables of so many rows, as wide as their headers, and so many verdicts, with positive numbers."""
    assert [len(table["rows"]) for table in report["tables"]] == rows
    assert all(len(row) == len(table["header"]) for table in report["tables"] for row in table["rows"])
    assert len(report["verdicts"]) == verdicts
    assert all(verdict["measured"] > 0 for verdict in report["verdicts"])
    assert {"date", "command", "python", "pyspark", "java", "cpus", "load average before"} <= report[
        "conditions"
    ].keys()
    assert not any(str(folder) in json.dumps(report) for folder in (ROOT, Path(sys.prefix), Path(gettempdir())))


def test_costs(tmp_path: Path) -> None:
    _, report = run_short("costs", tmp_path)
    costs, functions = report["tables"]
    shares = [float(row[3].rstrip("%")) for row in costs["rows"]]
    total, alone = costs["rows"][-2], costs["rows"][-1]
    assert total[0] == "all"
    assert sum(shares[:-2]) == pytest.approx(100, abs=1)
    assert {"decode", "encode", "process and route", "restore", "snapshot"} <= {row[1] for row in costs["rows"]}
    assert 0 < alone[2] < total[2]
    assert len(functions["rows"]) > 5


def test_growth(tmp_path: Path) -> None:
    _, report = run_short("growth", tmp_path)
    assert [[row[0] for row in table["rows"]] for table in report["tables"]] == [[2000, 4000], [1, 2], [1, 2]]
    assert all(row[1] > 0 for table in report["tables"] for row in table["rows"])


def test_latency(tmp_path: Path) -> None:
    _, report = run_short("latency", tmp_path)
    ((rate, records, *delays, growth),) = report["tables"][0]["rows"]
    assert (rate, records) == (200, 400)  # two seconds
    assert 0 < delays[0] <= delays[-1] < 60_000
    assert delays == sorted(delays)
    assert growth > 0


def test_suite(tmp_path: Path) -> None:
    """Contestants on Spark and the plain loops; the suite itself compares what comes out."""
    results = tmp_path / "results"
    nothing_installed = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = run_program("suite", "--results", str(results), environment=nothing_installed)
    for name, job in JOBS.items():
        assert (results / f"{name}.md").read_text() in run.stdout
        report = json.loads((results / f"{name}.json").read_text())
        own = [
            contestant.name for contestant in job.contestants if contestant.environment == OWN and contestant.in_short
        ]
        assert [row[0] for row in report["tables"][0]["rows"]] == own
        assert all(row[report["tables"][0]["header"].index("results")] > 0 for row in report["tables"][0]["rows"])
    assert not (results / "rows").exists()


def test_batch_overhead(tmp_path: Path) -> None:
    _, report = run_short("batch_overhead", tmp_path)
    check(report, rows=[3, 3, 1, 3] * 2 + [9], verdicts=5)
    *parts, (_, total) = report["tables"][-1]["rows"]
    assert all(took > 0 for _, took in parts)
    assert total == pytest.approx(sum(took for _, took in parts))


def test_state(tmp_path: Path) -> None:
    _, report = run_short("state", tmp_path)
    check(report, rows=[4, 2], verdicts=4)


def test_vectorised(tmp_path: Path) -> None:
    _, report = run_short("vectorised", tmp_path)
    check(report, rows=[4], verdicts=1)  # it compares the results itself


def test_alignment(tmp_path: Path) -> None:
    _, report = run_short("alignment", tmp_path)
    waiting, costs = report["tables"]
    check({**report, "tables": [costs]}, rows=[3], verdicts=2)
    within, times_as_much = report["verdicts"]
    assert within["met"]
    assert times_as_much["measured"] > 4
    without = [row[1] for row in waiting["rows"]]
    assert without == sorted(without)
    assert "without alignment" in (tmp_path / "alignment.svg").read_text()


@pytest.mark.kafka
def test_kafka(tmp_path: Path) -> None:
    try:
        maven_classpath(SPARK_KAFKA, "Spark's own Kafka source")
        kafka_classpath()
    except MissingComponentError as error:
        pytest.skip(str(error))
    _, report = run_short("kafka", tmp_path)
    check(report, rows=[4, 2, 8], verdicts=1)
    _, hot, latency = report["tables"]
    events, messages = hot["header"].index("hot events"), latency["header"].index("messages")
    by_hand, ours = (row[events] for row in hot["rows"])
    assert ours == pytest.approx(by_hand, rel=0.2)
    assert ours > 0
    assert {row[messages] for row in latency["rows"]} == {200}
