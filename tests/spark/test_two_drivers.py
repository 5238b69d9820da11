"""Two processes on one checkpoint: the second one is refused while the first one runs, and continues after it.

This process is the second one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dsv2.errors import ConfigurationError
from tests.spark import kill_job
from tests.spark.kill_job import RECORDS_PER_BATCH
from tests.spark.processes import Gate, JobProcess
from tests.spark.test_kill import written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BATCHES = 6


def test_second_driver_waits_for_the_end_of_the_first(spark: SparkSession, tmp_path: Path) -> None:
    records = BATCHES * RECORDS_PER_BATCH
    first, gate = JobProcess(tmp_path, "kill_job", str(records)), Gate(tmp_path, "all")
    first.start()
    first.run_to(gate)
    offsets = first.batches("offsets")
    refused = f"Another driver runs a job with the checkpoint {tmp_path}/checkpoint: process {first.pid} on "
    with pytest.raises(ConfigurationError, match=re.escape(refused)):
        kill_job.run(spark, str(tmp_path), records)
    assert first.batches("offsets") == offsets

    assert list(tmp_path.glob("local/**/dsv2-reports-*"))
    first.terminate()
    assert not list(tmp_path.glob("local/**/dsv2-reports-*"))
    gate.open()
    kill_job.run(spark, str(tmp_path), records)
    counted, totals = written(tmp_path)
    assert len(counted) == len(set(counted)) == records
    assert totals == [*range(1, records + 1)]
