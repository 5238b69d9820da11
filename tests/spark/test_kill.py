"""kill -9 of the driver, its JVM and its workers, at chosen points of a micro-batch: nothing is lost, nothing doubled.

The moment is chosen by the files that Spark and the sinks write, never by the clock, and checked afterwards: a kill
that came too late does not count.

A short form runs with all tests. ``DSV2_KILLS=10 ./run test tests/spark/test_kill.py`` is a long one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.spark import kill_splits_job
from tests.spark.kill_job import KEYS, RECORDS, RECORDS_PER_BATCH, number

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS_PER_PHASE = int(os.environ.get("DSV2_KILLS", "1"))
DEADLINE_SECONDS = 90.0

Phase = Callable[[Path, int], bool]


def begun(folder: Path, batch: int) -> bool:
    """The offsets of ``batch`` are logged."""
    return (folder / "checkpoint/offsets" / str(batch)).exists()


def first_sink_written(folder: Path, batch: int) -> bool:
    """The first sink has the records of ``batch``, whole; the second one may or may not."""
    return (folder / f"counted/batch_id={batch}/_SUCCESS").exists()


def committed(folder: Path, batch: int) -> bool:
    """Spark has finished ``batch``."""
    return (folder / "checkpoint/commits" / str(batch)).exists()


def start(folder: Path, job: str = "kill_job") -> subprocess.Popen[bytes]:
    log = (folder / "log").open("ab")
    command = [sys.executable, "-m", f"tests.spark.{job}", str(folder)]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log, start_new_session=True)


def kill_session(leader: int) -> None:
    """SIGKILL for every process of a session: Spark's Python daemon has a process group of its own."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was quicker


def next_batch(folder: Path) -> int:
    commits = folder / "checkpoint/commits"
    done = [int(entry.name) for entry in commits.glob("[0-9]*")] if commits.exists() else []
    return max(done, default=-1) + 1


def kill_in(folder: Path, reached: Phase, name: str = "kill_job", batch: int | None = None) -> bool:
    """Start the job and kill it when a micro-batch has ``reached`` a phase; whether the kill came in time."""
    if batch is None:
        batch = next_batch(folder) + 1  # let a batch pass: the first one after a start is a repeated one
    job = start(folder, name)
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while not reached(folder, batch):
            if job.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"Batch {batch} did not begin: {(folder / 'log').read_text()[-3000:]}")
            time.sleep(0.0005)
    finally:
        kill_session(job.pid)
        job.wait()
    return reached(folder, batch) and not committed(folder, batch)


def kill_in_both_phases(folder: Path, job: str, kills: int) -> None:
    """``kills`` in each of two phases, that is, and as many attempts as it takes, within reason."""
    hits = Counter[str]()
    for reached in (begun, first_sink_written):
        for _ in range(3 * kills):
            if hits[reached.__name__] < kills:
                hits[reached.__name__] += kill_in(folder, reached, job)
    assert hits == {"begun": kills, "first_sink_written": kills}


def finish(folder: Path, job: str) -> None:
    """Let the job come to its end."""
    assert start(folder, job).wait(DEADLINE_SECONDS * 3) == 0, (folder / "log").read_text()[-3000:]


def written(folder: Path) -> tuple[list[tuple[int, int]], list[int]]:
    """What both sinks hold, sorted."""
    counted = ds.dataset(folder / "counted", format="parquet", partitioning="hive").to_table()
    total = ds.dataset(folder / "total", format="json", partitioning="hive").to_table()
    pairs = zip(counted["key"].to_pylist(), counted["nth"].to_pylist(), strict=True)
    return sorted(pairs), sorted(total["records"].to_pylist())


def test_kills_between_offset_log_and_commit_log_leave_no_trace(tmp_path: Path) -> None:
    kill_in_both_phases(tmp_path, "kill_job", KILLS_PER_PHASE)
    assert next_batch(tmp_path) < RECORDS // RECORDS_PER_BATCH, "the job was over before the last kill"

    finish(tmp_path, "kill_job")
    sizes = Counter(number(index) % KEYS for index in range(RECORDS))
    everything = sorted((key, nth) for key, size in sizes.items() for nth in range(1, size + 1))
    assert written(tmp_path) == (everything, list(range(1, RECORDS + 1)))


def test_kills_of_a_job_over_splits_before_in_and_after_the_switch_to_the_second_source(tmp_path: Path) -> None:
    job, switch = "kill_splits_job", kill_splits_job.SWITCH
    assert [kill_in(tmp_path, begun, job, batch) for batch in (2, switch - 1, switch, switch + 1)] == [True] * 4
    assert any(kill_in(tmp_path, first_sink_written, job) for _ in range(3))

    finish(tmp_path, job)
    ends = enumerate([*kill_splits_job.HISTORY.values(), *kill_splits_job.LIVE.values()])
    everything = [(span, nth) for span, end in ends for nth in range(1, end + 1)]
    assert written(tmp_path) == (everything, list(range(1, len(everything) + 1)))
    log = (tmp_path / "checkpoint/offsets" / str(switch)).read_text()
    assert '"enumerator": {"source": 1' in log
