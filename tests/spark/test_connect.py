"""Batch jobs on Spark Connect: a client and a server in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from components.spark_connect import ConnectServer
from tests import ROOT
from tests.spark.connect_job import NUMBERS

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def found(connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the jobs of the client."""
    folder = str(tmp_path_factory.mktemp("client"))
    command = [sys.executable, "-m", "tests.spark.connect_job", connect_server.url, folder]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=800)
    assert ran.returncode == 0, ran.stderr[-5_000:]
    results: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return results


def test_streaming_jobs_are_refused_with_the_reason(found: dict[str, Any]) -> None:
    assert found["streaming"].startswith(
        "ConfigurationError: 'a job' is a STREAMING job, which cannot run on Spark Connect: what follows each "
    )


def test_records_do_not_pass_through_dataframes(found: dict[str, Any]) -> None:
    assert found["through"].startswith("ConfigurationError: 'a job' uses through_dataframe, which requires internals")


def test_dataframes_are_read_and_returned(found: dict[str, Any]) -> None:
    assert found["dataframes"] == list(range(40, 240, 4))


def test_files_are_read_and_written(found: dict[str, Any]) -> None:
    assert found["files"] == [2 * n for n in NUMBERS if n != 13]


def test_state_of_a_savepoint_is_read(found: dict[str, Any]) -> None:
    assert found["savepoint"] == list(range(10))


def test_files_on_other_file_systems_are_refused(found: dict[str, Any]) -> None:
    assert "hdfs://127.0.0.1:1/out is not on the local disk. On Spark Connect, use to_dataframe" in found["elsewhere"]


def test_output_of_another_run_is_refused(found: dict[str, Any]) -> None:
    assert "ConfigurationError" in found["used_output"]


def test_failure_names_the_operator_and_the_record(found: dict[str, Any]) -> None:
    assert found["failure"].startswith("UserFunctionError: ")
    assert "doubled" in found["failure"]
    assert "13 cannot be doubled" in found["failure"]


def test_job_is_cancelled(found: dict[str, Any]) -> None:
    assert found["cancelled"] == "STOPPED"
