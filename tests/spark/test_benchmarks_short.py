"""The short form of every benchmark: it runs, prints the expected output, and stores it in the given place.

They share a JVM, also with the program of the first example. The Kafka benchmark has its own, because Spark's connector
must exist when it starts. Most are nightly: they check tools, and other tests check what they measure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
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
from examples import hot_topics
from tests import ROOT
from tests.program_process import ProgramProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory, spark_python: str) -> Iterator[ProgramProcess]:
    """The process for benchmarks, without contestants that are installed on this machine."""
    folder = tmp_path_factory.mktemp("benchmarks")
    process = ProgramProcess(folder, {"PYSPARK_PYTHON": spark_python, "XDG_CACHE_HOME": str(folder / "cache")})
    yield process
    process.stop()


@pytest.fixture
def own_process(tmp_path: Path, spark_python: str) -> Iterator[ProgramProcess]:
    """The process for one benchmark."""
    process = ProgramProcess(tmp_path, {"PYSPARK_PYTHON": spark_python})
    yield process
    process.stop()


def check(report: dict[str, Any], rows: list[int], verdicts: int) -> None:
    """Check the number of rows of the report's tables, their width, and the number of verdicts."""
    assert [len(table["rows"]) for table in report["tables"]] == rows
    assert all(len(row) == len(table["header"]) for table in report["tables"] for row in table["rows"])
    assert len(report["verdicts"]) == verdicts
    assert all(verdict["measured"] > 0 for verdict in report["verdicts"])
    assert {"date", "command", "python", "pyspark", "java", "cpus", "load average before"} <= report[
        "conditions"
    ].keys()
    assert not any(str(folder) in json.dumps(report) for folder in (ROOT, Path(sys.prefix), Path(gettempdir())))


def test_hot_topics_prints_what_it_prints_locally(
    process: ProgramProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads the events back from the files that it has written."""
    tweets = ["--tweets", "20000"]
    printed = process.run("examples.hot_topics", [*tweets, "--work-dir", str(tmp_path)]).splitlines()
    assert hot_topics.main(["--mode", "local", *tweets]) == 0
    expected = capsys.readouterr().out.splitlines()
    table = slice(2, expected.index("", 2))
    assert expected[table][-1].startswith("topic-1 ")
    assert printed[table] == expected[table]


def test_costs(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("benchmarks.costs", tmp_path)
    costs, functions = report["tables"]
    shares = [float(row[3].rstrip("%")) for row in costs["rows"]]
    total, alone = costs["rows"][-2], costs["rows"][-1]
    assert total[0] == "all"
    assert sum(shares[:-2]) == pytest.approx(100, abs=1)
    assert {"decode", "encode", "process and route", "restore", "snapshot"} <= {row[1] for row in costs["rows"]}
    assert 0 < alone[2] < total[2]
    assert len(functions["rows"]) > 5


@pytest.mark.nightly
def test_growth(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("benchmarks.growth", tmp_path)
    assert [[row[0] for row in table["rows"]] for table in report["tables"]] == [[2000, 4000], [1, 2], [1, 2]]
    assert all(row[1] > 0 for table in report["tables"] for row in table["rows"])


@pytest.mark.nightly
def test_latency(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("benchmarks.latency", tmp_path)
    ((rate, skipped, records, *delays, growth),) = report["tables"][0]["rows"]
    assert (rate, skipped, records) == (200, 1, 400)  # two seconds
    assert 0 < delays[0] <= delays[-1] < 60_000
    assert delays == sorted(delays)
    assert growth > 0
    local = report["tables"][2]["rows"]
    assert [row[:4] for row in local] == [
        ["local", 200, 1, 400],
        ["local, not durable", 200, 1, 400],
        ["local, 2 processes", 200, 1, 400],
    ]
    assert all(0 < row[4] <= row[-2] < 60_000 for row in local)
    assert all(part in dict(row[:2] for row in report["tables"][3]["rows"]) for part in ("source", "level 1", "commit"))
    parts = dict(report["tables"][1]["rows"])
    assert parts["stage 1"] > 0
    assert parts["stage 2"] > 0
    assert parts["sum of the medians"] < 60_000


@pytest.mark.nightly
def test_suite(process: ProgramProcess, tmp_path: Path) -> None:
    """Contestants on Spark and the plain loops. The suite itself compares the results."""
    printed = process.run("benchmarks.suite", [*JOBS, "--short", "--results", str(tmp_path)])
    for name, job in JOBS.items():
        assert (tmp_path / f"{name}.md").read_text() in printed
        report = json.loads((tmp_path / f"{name}.json").read_text())
        own = [
            contestant.name for contestant in job.contestants if contestant.environment == OWN and contestant.in_short
        ]
        assert [row[0] for row in report["tables"][0]["rows"]] == own
        assert all(row[report["tables"][0]["header"].index("results")] > 0 for row in report["tables"][0]["rows"])
    assert not (tmp_path / "rows").exists()


@pytest.mark.nightly
def test_nexmark(process: ProgramProcess, tmp_path: Path) -> None:
    """A query on Spark, locally, in Spark SQL and in DuckDB, and one with updates."""
    report = process.run_short("benchmarks.nexmark", tmp_path)
    check(report, rows=[2], verdicts=1)
    (paces,) = report["tables"]
    assert [[bool(cell) for cell in row[1:7]] for row in paces["rows"]] == [
        [True, True, True, False, True, True],
        [True, True, True, False, False, True],
    ]


@pytest.mark.nightly
def test_batch_overhead(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("benchmarks.batch_overhead", tmp_path)
    check(report, rows=[3, 3, 1, 3] * 2 + [9], verdicts=5)
    *parts, (_, total) = report["tables"][-1]["rows"]
    assert all(took > 0 for _, took in parts)
    assert total == pytest.approx(sum(took for _, took in parts))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "rows", "verdicts"),
    # The last one compares results itself.
    [("state", [4, 1, 1, 2, 2], 8), ("savepoint", [1, 1], 4), ("vectorised", [4], 1)],
)
def test_others(process: ProgramProcess, tmp_path: Path, name: str, rows: list[int], verdicts: int) -> None:
    check(process.run_short(f"benchmarks.{name}", tmp_path), rows=rows, verdicts=verdicts)


@pytest.mark.nightly
def test_many_keys(process: ProgramProcess, tmp_path: Path) -> None:
    check(process.run_short("benchmarks.many_keys", tmp_path), rows=[4], verdicts=2)


def test_transit(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("benchmarks.transit", tmp_path)
    check(report, rows=[6, 6, 2], verdicts=4)
    sent = {tuple(row[:2]): row[2:5] for row in report["tables"][0]["rows"]}
    assert sent["50 watermarks after a record", 4][:2] == [16, 800]
    assert sent["the same, which nothing receives", 4][:2] == [16, 16]
    assert all(
        row[:3] == wanted for row, wanted in zip(report["tables"][2]["rows"], ([1, 1, 3], [4, 2, 5]), strict=True)
    )


@pytest.mark.nightly
def test_async_calls(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("benchmarks.async_calls", tmp_path)
    check(report, rows=[4], verdicts=2)
    rates = {row[0]: row[2] for row in report["tables"][0]["rows"]}
    assert min(rates["ordered"], rates["unordered"]) > 20 * rates["one at a time"]


@pytest.mark.nightly
def test_alignment(process: ProgramProcess, tmp_path: Path) -> None:
    report = process.run_short("benchmarks.alignment", tmp_path)
    waiting, costs = report["tables"]
    check({**report, "tables": [costs]}, rows=[3], verdicts=2)
    within, times_as_much = report["verdicts"]
    assert within["met"]
    assert times_as_much["measured"] > 4
    without = [row[1] for row in waiting["rows"]]
    assert without == sorted(without)
    assert "without alignment" in (tmp_path / "alignment.svg").read_text()


@pytest.mark.kafka
@pytest.mark.nightly
def test_kafka(own_process: ProgramProcess, tmp_path: Path) -> None:
    try:
        maven_classpath(SPARK_KAFKA, "Spark's own Kafka source")
        kafka_classpath()
    except MissingComponentError as error:
        pytest.skip(str(error))
    report = own_process.run_short("benchmarks.kafka", tmp_path)
    check(report, rows=[4, 2, 8], verdicts=1)
    _, hot, latency = report["tables"]
    events, messages = hot["header"].index("hot events"), latency["header"].index("messages")
    by_hand, ours = (row[events] for row in hot["rows"])
    assert ours == pytest.approx(by_hand, rel=0.2)
    assert ours > 0
    assert {row[messages] for row in latency["rows"]} == {200}


@pytest.mark.kafka
@pytest.mark.nightly
def test_idle(process: ProgramProcess, tmp_path: Path) -> None:
    try:
        kafka_classpath()
    except MissingComponentError as error:
        pytest.skip(str(error))
    idle, delays = process.run_short("benchmarks.idle", tmp_path)["tables"]
    assert idle["rows"][0][0] > 0
    assert sorted(delays["rows"][0]) == delays["rows"][0]
