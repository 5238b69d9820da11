"""Programs in the documents that are functions of a session run on Spark unchanged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from components.python_path import python_path
from tests import ROOT
from tests.documents import program_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CALLS = """
import json, os, sys

os.chdir(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()  # its bars have no line of their own
"""
COUNT_WORDS = """
print(max(run_on_spark(spark, "words"), key=lambda result: result[1]))
"""
SUM_SALES = """
os.mkdir("sales")
with open("sales/monday.json", "w") as file:
    for product, amount in [("tea", 3), ("milk", 8), ("tea", 5)]:
        print(json.dumps({"product": product, "amount": amount}), file=file)
run(spark)
"""
PASS_THROUGH_DATAFRAMES = """
print(sorted(large_sales(spark, sys.argv[1] + "/dataframes")))
print(greatest_total(spark))
"""
WATCH_DEVICES = """
import time

reports = CollectSink[Report]()
env = ExecutionEnvironment.get_instance(spark=spark)
items = [*sent(), Pause(timedelta(minutes=5))]
build(env.from_source(TestSource[Beat](items)).with_uid("beats"), timedelta(seconds=5), reports)
job = env.execute_async("heartbeats", checkpoint_location="heartbeats", trigger=EVERY_SECOND)
deadline = time.monotonic() + 400
while len(reports.results) < 3 and time.monotonic() < deadline and job.exception() is None:
    job.await_termination(timedelta(seconds=0.2))
job.stop()
print("reports:", [(report.who, report.what) for report in reports.results])
"""
REPORT_PROGRESS = """
print("seen:", run_with_listener(spark, sys.argv[1] + "/prices"))
"""
LOG_IN_WORKERS = """
env = ExecutionEnvironment.get_instance(spark=spark)
env.from_collection([-7]).process(Check()).with_uid("check").to_sink(CollectSink[int]())
env.execute("not configured", checkpoint_location="not configured")
log_in_workers(spark, "configured", sys.argv[1] + "/worker.log")
"""


def test_programs_run_on_spark(tmp_path: Path) -> None:
    words = program_of(ROOT / "docs" / "getting_started.md")
    sales = program_of(ROOT / "docs" / "coming_from" / "structured_streaming.md")
    dataframes = program_of(ROOT / "docs" / "dataframes.md") + PASS_THROUGH_DATAFRAMES
    program = tmp_path / "documents.py"
    beats = program_of(ROOT / "docs" / "event_time.md") + WATCH_DEVICES
    metrics = program_of(ROOT / "docs" / "metrics.md") + REPORT_PROGRESS + LOG_IN_WORKERS
    program.write_text(words + CALLS + COUNT_WORDS + sales + SUM_SALES + dataframes + beats + metrics)
    # Without PYSPARK_PYTHON, workers run the Python of the program.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PYTHONPATH"] = python_path()
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "('to', 2)" in run.stdout
    totals = [line for line in run.stdout.splitlines() if "Sale(" in line and "amount=" in line]
    assert len(totals) == 3
    assert any("Sale(product='tea', amount=8)" in line for line in totals)
    assert (
        "[Named(category='drinks', cents=250), Named(category='drinks', cents=370), Named(category='food', cents=300)]"
        in (run.stdout)
    )
    assert "[Named(category='rice', cents=300)]" in run.stdout
    # Micro-batches without data notice that nothing arrives.
    assert "reports: [('b', 'is silent'), ('b', 'is back'), ('all', 'are silent')]" in run.stdout
    assert re.search(r"seen: \[.*\{'in': 0, 'prices': 4, 'out': 3\}\)\]", run.stdout), run.stdout
    assert "\nnegative price\n" in run.stderr, (
        "workers without a configuration write to the standard error of the driver"
    )
    logged = [json.loads(line) for line in (tmp_path / "worker.log").read_text().splitlines()]
    in_function = [line for line in logged if line["logger"] == "shop"]
    assert [(line["message"], line["price"]) for line in in_function] == [("negative price", -5)]
    assert [(line["job"], line["operator"], line["subtask"]) for line in in_function] == [("prices", "check", 0)]
