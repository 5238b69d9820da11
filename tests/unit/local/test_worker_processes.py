"""Worker processes of local jobs: failures, deaths, restarts, and other numbers of processes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobHandle, RuntimeExecutionMode, Trigger
from dsv2.errors import ConfigurationError, CorruptDataError, UserFunctionError, WorkerLostError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime, RestartPolicy
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.runtime.report import base_job
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclarations
from dsv2.views.logs import JobFilter
from tests import ROOT
from tests.durations import LONG, ms
from tests.support import await_release, wait_until

COUNT = StateDeclarations.value_state("count", int, default=0)
RECORDS, KEYS, BATCH = 60, 6, 10
EXPECTED = Counter((key, nth) for key in range(KEYS) for nth in range(1, RECORDS // KEYS + 1))
_LOG = logging.getLogger("tests.workers")


class Counts(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Emits each key with the number of its records. ``fault`` is called with each record."""

    def __init__(self, fault: Any = None) -> None:
        self.fault = fault

    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if self.fault is not None:
            self.fault(record)
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect((record % KEYS, count.value()))


def key_of(record: int) -> int:
    return record % KEYS


class Job:
    """A job with a checkpoint. A micro-batch that is repeated must have the same records."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[Any]] = {}

    def run(
        self,
        processes: int,
        count: int = RECORDS,
        fault: Any = None,
        *,
        parallelism: int = 4,
        restarts: RestartPolicy | None = None,
    ) -> int:
        """Run the job to the end of ``count`` records, and return how often it was restarted."""
        env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, processes=processes, restarts=restarts))
        env.set_parallelism(parallelism)
        source = DataGeneratorSource(int, count=None if count < RECORDS else count, records_per_batch=BATCH)
        counts = env.from_source(source).with_uid("in").key_by(key_of).process(Counts(fault)).with_uid("counts")
        counts.to_sink(ForeachBatchSink(self._write)).with_uid("out").with_parallelism(1)
        self._last = count // BATCH
        try:
            return env.execute("counting", checkpoint_location=self.checkpoint).progress.restarts
        except JobError as error:
            if "_EndError" in str(error):
                return 0
            raise

    def _write(self, records: list[Any], batch_id: int) -> None:
        if batch_id == self._last and self._last < RECORDS // BATCH:
            raise _EndError
        assert sorted(self.batches.setdefault(batch_id, records)) == sorted(records)

    def check(self) -> None:
        assert Counter(record for records in self.batches.values() for record in records) == EXPECTED


class _EndError(Exception):
    """Ends a job before a micro-batch is written."""


def kill_once(marker: Path, record: int) -> Any:
    def fault(number: int) -> None:
        if number == record and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return fault


def kill(record: int) -> None:
    if record == 25:
        os.kill(os.getpid(), signal.SIGKILL)


def fail(record: int) -> None:
    if record == 25:
        raise ValueError("25 is too much")


def test_worker_that_dies_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(tmp_path)
    assert job.run(2, fault=kill_once(tmp_path / "killed", 25)) == 1
    job.check()
    assert "was ended by SIGKILL" in caplog.text


@pytest.mark.parametrize("processes", [1, 2])
def test_state_is_stored_after_a_restart(processes: int, tmp_path: Path) -> None:
    def fail_once(record: int) -> None:
        if record == 25 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError(record)

    job = Job(tmp_path)
    job.run(processes, 4 * BATCH, fail_once, restarts=RestartPolicy(attempts=1, delay=ms(0)))
    job.run(processes)
    job.check()


def test_worker_that_dies_again_and_again_fails_the_job(tmp_path: Path) -> None:
    with pytest.raises(
        WorkerLostError, match=r"(?s)Worker process 1 \(pid \d+\) was ended by SIGKILL.*counts.*subtask 1"
    ):
        Job(tmp_path).run(2, fault=kill)
    assert sorted(path.name for path in (tmp_path / "checkpoint/local").glob("workers-*/*")) == ["0", "1"]


def test_worker_that_dies_without_a_checkpoint_fails_the_job() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(processes=2))
    env.set_parallelism(2)
    env.from_source(DataGeneratorSource(int, count=RECORDS)).key_by(key_of).process(Counts(kill)).to_sink(CollectSink())
    with pytest.raises(WorkerLostError):
        env.execute("counting")


def test_error_of_a_function_names_everything(tmp_path: Path) -> None:
    with pytest.raises(UserFunctionError) as caught:
        Job(tmp_path).run(2, fault=fail)
    error = caught.value
    assert (error.cause_type, error.key, error.record, error.subtask) == ("ValueError", "1", "25", error.subtask)
    assert 'raise ValueError("25 is too much")' in error.traceback_text
    assert f'File "{__file__}"' in error.traceback_text


def test_function_of_the_program_itself_is_named_with_its_file(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def fault(record):\n    raise KeyError(record)\n", "my_program.py", "exec"), namespace)
    with pytest.raises(UserFunctionError) as caught:
        Job(tmp_path).run(2, fault=namespace["fault"])
    assert 'File "my_program.py", line 2' in caught.value.traceback_text


@pytest.mark.parametrize("steps", [(1, 2), (2, 1), (2, 3), (3, 2, 1, 3)], ids=str)
def test_other_number_of_processes_continues_the_state(steps: tuple[int, ...], tmp_path: Path) -> None:
    job = Job(tmp_path)
    for number, processes in enumerate(steps):
        is_last = number == len(steps) - 1
        job.run(processes, RECORDS if is_last else BATCH * (number + 2))
        found = [path.name for path in (tmp_path / "checkpoint/local").glob("workers-*/*")]
        assert len(found) == (processes if processes > 1 else 0)
    job.check()


@pytest.mark.parametrize("processes", [(2, 2), (2, 1), (1, 2)], ids=str)
def test_changed_program_continues_the_state(processes: tuple[int, int], tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.run(processes[0], 3 * BATCH, parallelism=4)
    job.run(processes[1], parallelism=3)
    job.check()


@pytest.mark.parametrize("processes", [2, 3])
def test_transaction_that_only_workers_have_is_removed(processes: int, tmp_path: Path) -> None:
    write, written = LocalCheckpoint.write, []

    def interrupted(checkpoint: LocalCheckpoint, batch: Any) -> None:
        written.append(batch.batch_id)
        if batch.batch_id == 2:
            raise JobError("The process has died.")
        write(checkpoint, batch)

    job = Job(tmp_path)
    with patch.object(LocalCheckpoint, "write", interrupted), pytest.raises(JobError, match="has died"):
        job.run(2)
    assert sorted(job.batches) == [0, 1]
    job.run(processes)
    job.check()


def test_missing_log_of_a_worker_is_damage(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.run(2, 3 * BATCH)
    (log,) = (tmp_path / "checkpoint/local").glob("workers-*/1/*.log")
    log.unlink()
    with pytest.raises(CorruptDataError, match=r"workers-0/1 is damaged: it does not have micro-batch 3"):
        job.run(2)


def test_savepoint_moves_the_job_to_one_process(tmp_path: Path) -> None:
    batches: dict[str, list[Any]] = {"before": [], "after": []}

    def run(processes: int, name: str, **options: Any) -> JobHandle:
        env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, processes=processes))
        env.set_parallelism(2)
        count = None if name == "before" else RECORDS
        source = DataGeneratorSource(int, count=count, records_per_batch=BATCH)
        counts = env.from_source(source).with_uid("in").key_by(key_of).process(Counts()).with_uid("counts")
        sink = ForeachBatchSink[Any](lambda records, batch_id: batches[name].extend(records))
        counts.to_sink(sink).with_uid("out").with_parallelism(1)
        return env.execute_async("counting", checkpoint_location=tmp_path / name, **options)

    job = run(2, "before", trigger=Trigger.processing_time(ms(1)))
    wait_until(lambda: bool(batches["before"]))
    savepoint = job.stop_with_savepoint(tmp_path / "savepoint")
    with pytest.raises(ConfigurationError, match=r"have ended. Take a savepoint of its checkpoint with dsv2 savepoint"):
        job.savepoint(tmp_path / "late")
    read = max(len(batches["before"]), RECORDS)
    run(1, "after", savepoint=savepoint).result()
    found = Counter(batches["before"] + batches["after"])
    assert found == Counter((number % KEYS, number // KEYS + 1) for number in range(read))


def test_log_records_have_their_subtask(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def log(record: int) -> None:
        if record == 7:
            logging.getLogger("tests.workers").info("Seen %d.", record)

    caplog.handler.addFilter(JobFilter())
    with caplog.at_level(logging.INFO, "tests.workers"):
        Job(tmp_path).run(2, fault=log)
    (record,) = (record for record in caplog.records if record.name == "tests.workers")
    assert record.getMessage() == "Seen 7."
    assert (vars(record)["job"], vars(record)["operator"]) == ("counting", "counts")


def test_batch_job_runs_in_processes() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(processes=2))
    env.set_parallelism(2)
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    sink = CollectSink[Any]()
    env.from_source(DataGeneratorSource(int, count=RECORDS)).key_by(key_of).process(Counts()).to_sink(sink)
    env.execute("counting")
    assert Counter(sink.results) == EXPECTED


def test_stop_cancels_a_function_that_does_not_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_job, "_CANCEL_SECONDS", LONG)
    marker = tmp_path / "sleeps"

    def sleep(record: int) -> None:
        if record == 25:
            marker.touch()
            time.sleep(600)

    env = ExecutionEnvironment.get_instance(LocalRuntime(processes=2))
    env.set_parallelism(2)
    source = DataGeneratorSource(int, count=RECORDS)
    env.from_source(source).key_by(key_of).process(Counts(sleep)).to_sink(CollectSink())
    job = env.execute_async("counting")
    wait_until(marker.exists)
    job.stop(ms(100))
    assert job.await_termination(timedelta(seconds=LONG))


@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_number_of_processes_is_checked(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="processes"):
        LocalRuntime(processes=value)


def test_processes_without_subtasks_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(processes=2))
    env.from_source(DataGeneratorSource(int, count=3)).to_sink(CollectSink())
    env.execute("job")
    assert "2 processes run it no faster than one" in caplog.text


def test_program_that_cannot_be_loaded(tmp_path: Path) -> None:
    class Unloadable:
        def __reduce__(self) -> Any:
            return _refuse, ()

        def __call__(self, record: int) -> None: ...

    with pytest.raises(JobError, match="A worker process cannot load the program: ModuleNotFoundError: No module"):
        Job(tmp_path).run(2, fault=Unloadable())


def _refuse() -> None:
    raise ModuleNotFoundError("No module named 'mine'")


PROGRAM = """
import os, sys, time
from dsv2 import ExecutionEnvironment
from dsv2.local import LocalRuntime, RestartPolicy
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource

def shown(number):
    os.write(1, f"{os.getpid()}\\n".encode())  # at once: the workers share the pipe
    return number

env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, processes=2))
env.set_parallelism(2)
source = DataGeneratorSource(int, records_per_batch=2)
numbers = env.from_source(source).with_uid("in").shuffle().map(shown).with_uid("map")
numbers.to_sink(ForeachBatchSink(lambda records, batch_id: None)).with_uid("out")
env.execute("job", checkpoint_location=sys.argv[1])
"""


def test_workers_end_with_the_process_of_the_job(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=env) as job:
        assert job.stdout is not None
        workers = set[int]()
        while len(workers) < 2:
            workers.add(int(job.stdout.readline()))
        job.kill()
        job.stdout.read()  # until every process that has the pipe has ended
    await_release(tmp_path)  # the workers had locked it as well
