"""Programs in the documents that are functions of a session run on Spark unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.python_path import python_path
from tests.documents import ROOT, program_of

pytestmark = [pytest.mark.spark]

CALLS = """
import json, os, sys

os.chdir(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
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


def test_programs_run_on_spark(tmp_path: Path) -> None:
    words = program_of(ROOT / "docs" / "getting_started.md")
    sales = program_of(ROOT / "docs" / "coming_from" / "structured_streaming.md")
    dataframes = program_of(ROOT / "docs" / "dataframes.md") + PASS_THROUGH_DATAFRAMES
    program = tmp_path / "documents.py"
    program.write_text(words + CALLS + COUNT_WORDS + sales + SUM_SALES + dataframes)
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "('to', 2)" in run.stdout
    totals = [line for line in run.stdout.splitlines() if "Sale(" in line]
    assert len(totals) == 3
    assert any("Sale(product='tea', amount=8)" in line for line in totals)
    assert (
        "[Named(category='drinks', cents=250), Named(category='drinks', cents=370), Named(category='food', cents=300)]"
        in (run.stdout)
    )
    assert "[Named(category='rice', cents=300)]" in run.stdout
