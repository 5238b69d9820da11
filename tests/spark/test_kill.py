"""kill -9 at chosen points of a micro-batch, of the complete driver or of one worker, has no effect on the results.

The moment is determined by the files that Spark and the sinks write, never by the clock. The job waits for its kill
before Spark commits the micro-batch. After the last kill, the session of the tests continues the job.

A short form runs with all tests. ``DSV2_KILLS=10 ./run test tests/spark/test_kill.py`` is a long one.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import Row, SparkSession

from runtime_spark import StateLayout
from tests.numbering import numbered
from tests.spark import kill_job, kill_splits_job
from tests.spark.kill_job import KEYS, RECORDS_PER_BATCH, gate_of_batch, number
from tests.spark.processes import Gate, JobProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS_PER_PHASE = int(os.environ.get("DSV2_KILLS", "1"))

Phase = Callable[[Path, int], bool]


def begun(folder: Path, batch: int) -> bool:
    """Return whether the offsets of ``batch`` are logged."""
    return (folder / "checkpoint/offsets" / str(batch)).exists()


def first_sink_written(folder: Path, batch: int) -> bool:
    """Return whether the first sink has all records of ``batch``. The second one may or may not."""
    places = (f"counted/_dsv2/data/{batch}-*/_SUCCESS", f"counted/{batch:010}-*")
    return any(next(folder.glob(place), None) is not None for place in places)


def committed(folder: Path, batch: int) -> bool:
    """Return whether Spark has finished ``batch``."""
    return (folder / "checkpoint/commits" / str(batch)).exists()


def kill_in(job: JobProcess, reached: Phase, batch: int | None = None) -> None:
    """Start the job and kill it in a micro-batch that has ``reached`` a phase, before Spark commits it."""
    if batch is None:
        batch = job.batches("commits") + 1  # let a batch pass: the first one after a start is a repeated one
    gate = gate_of_batch(job.folder, batch)
    gate.shut()
    job.start()
    job.wait_until(lambda: reached(job.folder, batch))
    job.kill()
    gate.open()
    assert not committed(job.folder, batch)


def written(folder: Path) -> tuple[list[tuple[int, int]], list[int]]:
    """The sorted contents of both sinks."""
    counted = ds.dataset(folder / "counted", format="parquet").to_table()
    total = ds.dataset(folder / "total", format="json").to_table()
    pairs = zip(counted["key"].to_pylist(), counted["nth"].to_pylist(), strict=True)
    return sorted(pairs), sorted(total["records"].to_pylist())


def test_driver_kills_before_the_commit(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = 4 + 2 * KILLS_PER_PHASE  # each start commits a batch
    records = batches * RECORDS_PER_BATCH
    job = JobProcess(tmp_path, "kill_job", str(records))
    for reached in (begun, first_sink_written):
        for _ in range(KILLS_PER_PHASE):
            kill_in(job, reached)
    kill_job.run(spark, str(tmp_path), records)
    everything = numbered(number(index) % KEYS for index in range(records))
    assert written(tmp_path) == (everything, list(range(1, records + 1)))
    # A function for micro-batches is called again after a kill, with the same number and the same records.
    calls: dict[int, set[str]] = {}
    for file in (tmp_path / "calls").glob("*.json"):
        calls.setdefault(int(file.name.partition("-")[0]), set()).add(file.read_text())
    assert sorted(calls) == list(range(batches))
    assert all(len(variants) == 1 for variants in calls.values())
    assert sorted(tuple(pair) for (text,) in calls.values() for pair in json.loads(text)) == everything
    # Each record is printed at least once. A run collects the micro-batches from the repeated one on, each once.
    lines = f"{job.log_file.read_text()}\n{capsys.readouterr().out}".splitlines()
    printed = [line.removeprefix("total> ") for line in lines if line.startswith("total> ")]
    assert sorted(set(map(int, printed))) == list(range(1, records + 1))
    collected = json.loads((tmp_path / "collected.json").read_text())
    assert collected == list(range(records + 1 - len(collected), records + 1))


def test_driver_kills_around_the_switch_of_sources(spark: SparkSession, tmp_path: Path) -> None:
    job, switch = JobProcess(tmp_path, "kill_splits_job"), kill_splits_job.SWITCH
    is_long = KILLS_PER_PHASE > 1
    for batch in (2, switch - 1, switch, switch + 1) if is_long else (switch - 1, switch):
        kill_in(job, begun, batch)
    if is_long:
        kill_in(job, first_sink_written)

    kill_splits_job.run(spark, str(tmp_path))
    ends = enumerate([*kill_splits_job.HISTORY.values(), *kill_splits_job.LIVE.values()])
    everything = [(span, nth) for span, end in ends for nth in range(1, end + 1)]
    assert written(tmp_path) == (everything, list(range(1, len(everything) + 1)))
    log = (tmp_path / "checkpoint/offsets" / str(switch)).read_text()
    assert '"enumerator": {"source": 1' in log


def states(spark: SparkSession, folder: Path) -> list[list[tuple[object, ...]]]:
    """The state of both levels, by slot, as bytes, without the headers, which name the checkpoint."""
    reader = spark.read.format("statestore")
    levels = [reader.option("operatorId", level).load(str(folder / "checkpoint")).collect() for level in (0, 1)]
    return [sorted((tuple(key), contents(value)) for key, value, *_ in rows) for rows in levels]


def contents(value: Row) -> bytes:
    blob: bytes = value["groupState"].blob
    return blob[blob.index(b"DSV2") :]


def test_worker_kill(spark: SparkSession, tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    undisturbed.mkdir()
    killed.mkdir()
    records = 6 * RECORDS_PER_BATCH
    kill_job.run(spark, str(undisturbed), records)

    job = JobProcess(killed, "kill_job", str(records))
    job.start()
    for name in ("per-key", "all"):
        gate = Gate(killed, name)
        worker = job.run_to(gate)
        assert worker != job.pid
        os.kill(worker, signal.SIGKILL)
        gate.open()
    job.finish()
    assert written(killed) == written(undisturbed)
    assert states(spark, killed) == states(spark, undisturbed)


@pytest.mark.nightly
def test_worker_kill_with_state_in_a_map(tmp_path: Path) -> None:
    records = 5 * RECORDS_PER_BATCH
    job = JobProcess(tmp_path, "kill_job", str(records), StateLayout.MAP.value)
    job.start()
    gate = Gate(tmp_path, "all")
    os.kill(job.run_to(gate), signal.SIGKILL)
    gate.open()
    job.finish()
    everything = numbered(number(index) % KEYS for index in range(records))
    assert written(tmp_path) == (everything, list(range(1, records + 1)))
