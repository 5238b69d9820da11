"""Batch jobs on Spark Connect: a client and a server in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from components.spark_connect import ConnectServer
from tests import ROOT
from tests.spark.connect_job import NUMBERS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def found(connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the jobs of the client."""
    folder = str(tmp_path_factory.mktemp("client"))
    command = [sys.executable, "-m", "tests.spark.connect_job", connect_server.url, folder]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=800)
    assert ran.returncode == 0, ran.stderr[-5_000:]
    results: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return results


RESULTS = {
    "dataframes": [*range(40, 240, 4)],
    "files": [2 * n for n in NUMBERS if n != 13],
    "savepoint": [*range(10)],
    "cancelled": "STOPPED",
}
ERRORS = {
    "through": "ConfigurationError: 'a job' uses through_dataframe, which requires internals",
    "elsewhere": "hdfs://127.0.0.1:1/out is not on the local disk. On Spark Connect, choose a folder that",
    "used_output": "ConfigurationError",
    "failure": "UserFunctionError: .*13 cannot be doubled",
}


@pytest.mark.parametrize("job", RESULTS)
def test_result(job: str, found: dict[str, Any]) -> None:
    assert found[job] == RESULTS[job]


@pytest.mark.parametrize("job", ERRORS)
def test_error(job: str, found: dict[str, Any]) -> None:
    assert re.search(ERRORS[job], found[job], re.DOTALL)
