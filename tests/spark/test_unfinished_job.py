"""Jobs that a program does not wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.processes import JobProcess


@pytest.mark.spark
@pytest.mark.slow
def test_program_waits_for_bounded_jobs_and_warns_of_others(tmp_path: Path) -> None:
    program = JobProcess(tmp_path, "unfinished_job")
    program.start()
    program.finish()
    assert (tmp_path / "found").read_text() == "[1, 2, 3]"
    log = program.log_file.read_text()  # the complete log: Spark has its own message about an interrupted job
    assert "UnfinishedJobWarning: Job 'without an end' was still running when the program ended" in log
    assert log.count("UnfinishedJobWarning") == 1
