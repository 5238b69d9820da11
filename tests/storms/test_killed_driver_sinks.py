"""``kill -9`` at each step: ``PrintSink`` prints each record at least once, ``CollectSink`` has each of a run once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from components.python_path import python_path
from tests.driver_sinks_job import PER_BATCH, RECORDS


def run(folder: Path, step: int) -> tuple[int, list[str]]:
    """Run the job, which kills itself at ``step``. Returns its exit code and the lines that it has printed."""
    command = [sys.executable, "-m", "tests.driver_sinks_job", str(folder), str(step)]
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYTHONUNBUFFERED": ""}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process.returncode, process.stdout.splitlines()


@pytest.mark.slow
def test_no_record_is_lost_and_only_the_last_micro_batch_is_repeated(tmp_path: Path) -> None:
    printed: list[int] = []
    for step in (4, 2, 5, 8, 4, 1000):
        code, lines = run(tmp_path, step)
        own = [int(line.removeprefix("printed> ")) for line in lines if line.startswith("printed> ")]
        assert own == list(range(own[0], own[0] + len(own))) if own else True
        if own and printed:
            assert own[0] in (printed[-1] + 1, printed[-1] + 1 - PER_BATCH), "at most the last micro-batch is repeated"
        printed += own
        assert (code == 0) == (step == 1000)
    assert len(printed) > RECORDS, "a micro-batch was repeated"
    assert sorted(set(printed)) == list(range(RECORDS))
    (collected,) = (line.split()[1:] for line in lines if line.startswith("collected"))
    assert list(map(int, collected)) == own, "each record of the last run once"
