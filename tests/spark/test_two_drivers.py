"""Two processes on one checkpoint: the second one is refused while the first one runs, and continues after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.kill_job import RECORDS_PER_BATCH
from tests.spark.processes import Gate, JobProcess
from tests.spark.test_kill import written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BATCHES = 6


def test_second_driver_waits_for_the_end_of_the_first(tmp_path: Path) -> None:
    first, second = (JobProcess(tmp_path, "kill_job", str(BATCHES * RECORDS_PER_BATCH)) for _ in range(2))
    gate = Gate(tmp_path, "all")
    first.start()
    first.run_to(gate)
    offsets = first.batches("offsets")
    second.start()
    second.fail()
    assert (
        f"Another driver runs a job with the checkpoint {tmp_path}/checkpoint: process {first.pid} on " in second.log()
    )
    assert first.batches("offsets") == offsets

    assert list(tmp_path.glob("local/**/dsv2-reports-*"))
    first.terminate()
    assert not list(tmp_path.glob("local/**/dsv2-reports-*"))
    gate.open()
    second.start()
    second.finish()
    counted, totals = written(tmp_path)
    assert len(counted) == len(set(counted)) == BATCHES * RECORDS_PER_BATCH
    assert totals == [*range(1, BATCHES * RECORDS_PER_BATCH + 1)]
