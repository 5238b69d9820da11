"""Parallel sinks that worker processes write: which worker, in which order, and once, although processes die."""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from dsv2 import ErrorPolicy, ExecutionEnvironment, JobError, JobResult, Resource, RuntimeExecutionMode
from dsv2.errors import ConfigurationError, SerializationError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime, RestartPolicy
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.run import LocalRun
from dsv2.local.workers import process
from dsv2.local.workers.messages import Request
from dsv2.local.workers.process import WorkerProcess
from dsv2.runtime.report import base_job
from dsv2.sinks import CollectSink, ForeachBatchSink, ParallelSink, SinkBatch, SinkInfo
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclarations
from dsv2.testing import ManualClock
from dsv2.views.logs import JobFilter
from tests.conformance.programs_resources import Model
from tests.durations import LONG, ms
from tests.steps import KilledError
from tests.support import kill_when_it_waits, wait_until

COUNT = StateDeclarations.value_state("count", int, default=0)
RECORDS, KEYS, BATCH = 80, 20, 20  # each micro-batch has records for each subtask
EXPECTED = Counter((key, nth) for key in range(KEYS) for nth in range(1, RECORDS // KEYS + 1))
_LOG = logging.getLogger("tests.sinks")


class Counts(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Emits each key with the number of its records."""

    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect((record % KEYS, count.value()))


def key_of(record: int) -> int:
    return record % KEYS


class Written(NamedTuple):
    """A call of a sink."""

    process: int
    batch_id: int
    subtask: int
    parallelism: int
    run: str
    earlier: list[str]


class Files(ParallelSink[tuple[int, int]]):
    """Writes a file for each subtask and micro-batch. One that is repeated must have the same records.

    ``fault`` is called before and after each file is written.
    """

    def __init__(self, folder: Path, fault: Callable[[str, SinkBatch[Any]], object] = lambda when, batch: None) -> None:
        self.folder = folder
        self.fault = fault

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "begun").write_text(str(os.getpid()))

    def write(self, batch: SinkBatch[tuple[int, int]]) -> None:
        records = json.dumps([record for part in batch.batches for record in part.records])
        self.fault("before", batch)
        file = self.folder / f"{batch.batch_id}-{batch.subtask}.json"
        assert not file.exists() or file.read_text() == records
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(records)
        new.replace(file)  # a worker may be ended here
        run = batch.info.run
        call = Written(os.getpid(), batch.batch_id, batch.subtask, batch.info.parallelism, run.run_id, [*run.earlier])
        with (self.folder / "calls").open("a") as calls:
            calls.write(json.dumps(call) + "\n")
        self.fault("after", batch)

    def check_record(self, record: tuple[int, int]) -> None:
        if record[0] == 7:
            raise ValueError(f"{record} is refused")

    def calls(self) -> list[Written]:
        return [Written(*json.loads(line)) for line in (self.folder / "calls").read_text().splitlines()]

    def records(self, batch_id: str = "*") -> Counter[Any]:
        files = [json.loads(file.read_text()) for file in self.folder.glob(f"{batch_id}-*.json")]
        return Counter(tuple(record) for records in files for record in records)


def environment(processes: int, parallelism: int = 4, restarts: RestartPolicy | None = None) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, processes=processes, restarts=restarts))
    env.set_parallelism(parallelism)
    return env


def counts_in(env: ExecutionEnvironment, function: Counts | None = None, rate: float | None = None) -> Any:
    source = DataGeneratorSource(int, count=RECORDS, records_per_batch=BATCH, records_per_second=rate)
    return env.from_source(source).with_uid("in").key_by(key_of).process(function or Counts()).with_uid("counts")


def run(sink: Files, processes: int, parallelism: int = 4, restarts: RestartPolicy | None = None) -> JobResult:
    env = environment(processes, parallelism, restarts)
    counts_in(env).to_sink(sink).with_uid("out")
    return env.execute("counting", checkpoint_location=sink.folder / "checkpoint")


def once(marker: Path, batch_id: int, act: Callable[[], object], when: str = "before") -> Any:
    """Return a fault in subtask 1 of a micro-batch, which happens in one run only."""

    def fault(now: str, batch: SinkBatch[Any]) -> None:
        if (now, batch.batch_id, batch.subtask) == (when, batch_id, 1) and not marker.exists():
            marker.touch()
            act()

    return fault


def refuse() -> None:
    raise ValueError("The disk is full.")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_each_worker_writes_the_records_of_its_subtasks(tmp_path: Path) -> None:
    env, sink = environment(2), Files(tmp_path / "out")
    counts_in(env).to_sink(sink).with_uid("out").with_parallelism(3)  # receives records of both workers
    env.execute("counting")
    processes = {call.process: call.subtask % 2 for call in sink.calls()}
    assert sorted(processes.values()) == [0, 1]
    assert all(call.subtask % 2 == processes[call.process] for call in sink.calls())
    assert {call.parallelism for call in sink.calls()} == {3}
    assert len(sink.calls()) == len({call[1:3] for call in sink.calls()})
    assert os.getpid() not in processes
    assert (sink.folder / "begun").read_text() == str(os.getpid())
    assert sink.records() == EXPECTED


def test_records_are_those_of_one_process(tmp_path: Path) -> None:
    for processes in (1, 2):
        run(Files(tmp_path / f"{processes}"), processes)
    of_one, of_two = ({file.name: file.read_text() for file in (tmp_path / name).glob("*.json")} for name in "12")
    assert of_one == of_two


def test_batch_job_writes_in_workers(tmp_path: Path) -> None:
    env, sink = environment(2), Files(tmp_path)
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    counts_in(env).to_sink(sink)
    env.execute("counting")
    assert len({call.process for call in sink.calls()}) == 2
    assert sink.records() == EXPECTED


def test_error_of_a_sink_is_that_of_one_process(tmp_path: Path) -> None:
    texts = []
    for processes in (1, 2):
        with pytest.raises(JobError) as caught:
            run(Files(tmp_path / f"{processes}", once(tmp_path / f"failed-{processes}", 1, refuse)), processes)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert "failed on batch 1, subtask 1: ValueError: The disk is full." in texts[0]
    assert "The sink " in texts[0]
    assert __file__ in texts[0]


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_mistake_in_a_sink_is_not_followed_by_a_restart(processes: int, tmp_path: Path) -> None:
    def mistaken() -> None:
        raise ConfigurationError("This sink needs a table.")

    sink = Files(tmp_path, once(tmp_path / "failed", 1, mistaken))
    with pytest.raises(JobError, match="needs a table"):
        run(sink, processes, restarts=RestartPolicy(delay=ms(0)))


def test_job_that_restarts_after_an_error_of_a_sink_writes_once(tmp_path: Path) -> None:
    sink = Files(tmp_path, once(tmp_path / "failed", 1, refuse))
    assert run(sink, 2, restarts=RestartPolicy(delay=ms(0))).progress.restarts == 1
    assert sink.records() == EXPECTED


def test_refused_records_are_dead_letters_as_with_one_process(tmp_path: Path) -> None:
    found = []
    for processes in (1, 2):
        env, sink, letters = environment(processes), Files(tmp_path / f"{processes}"), CollectSink[Any]()
        out = counts_in(env).to_sink(sink).with_uid("out").with_error_policy(ErrorPolicy().dead_letter(ValueError))
        out.dead_letters(tuple).to_sink(letters)
        env.execute("counting")
        assert sink.records() == Counter({record: 1 for record in EXPECTED if record[0] != 7})
        found.append([(one.operator, one.subtask, one.record, one.error_message) for one in letters.results])
    assert len(found[0]) == RECORDS // KEYS
    assert found[0] == found[1]


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.nightly), "after"])
def test_micro_batch_is_completed_after_a_worker_has_died_in_a_sink(
    when: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    sink = Files(tmp_path, once(tmp_path / "died", 2, die, when))
    assert run(sink, 2).progress.restarts == 1
    assert sink.records() == EXPECTED
    assert "Sink (uid 'out'), subtask 1" in caplog.text
    first, last = sink.calls()[0].run, sink.calls()[-1].run
    assert first != last
    assert all(call.earlier == [first] for call in sink.calls() if call.run == last)


@pytest.mark.parametrize(
    ("processes", "parallelism"),
    [
        ((3, 2), 2),
        *(pytest.param(processes, 4, marks=pytest.mark.nightly) for processes in ((2, 3), (2, 1), (1, 2))),
    ],
    ids=str,
)
def test_start_with_other_processes_completes_the_micro_batch(
    processes: tuple[int, int], parallelism: int, tmp_path: Path
) -> None:
    """Also of another parallelism: the subtasks of the sink that complete it are those of the earlier program."""
    sink = Files(tmp_path, once(tmp_path / "failed", 2, refuse, "after"))
    with pytest.raises(JobError, match="full"):
        run(sink, processes[0])
    before = sink.calls()
    records = Counter(record for record in EXPECTED if record[1] == 3)
    run(sink, processes[1], parallelism)
    assert sink.records("2") == records
    assert sink.records() == EXPECTED
    of_batch = [call for call in sink.calls()[len(before) :] if call.batch_id == 2]
    assert [call.parallelism for call in of_batch] == [4] * 4
    assert sorted(call.subtask for call in of_batch) == [0, 1, 2, 3]
    assert len({call.process for call in of_batch}) == processes[1]


def test_job_that_dies_before_the_mark_writes_again(tmp_path: Path) -> None:
    mark, marks, sink = LocalCheckpoint.mark_written, itertools.count(), Files(tmp_path)

    def killed(checkpoint: LocalCheckpoint) -> None:
        if next(marks) == 2:
            raise KilledError
        mark(checkpoint)

    with patch.object(LocalCheckpoint, "mark_written", killed), pytest.raises(KilledError):
        run(sink, 2)
    run(sink, 2)
    assert sink.records() == EXPECTED
    assert Counter(call.batch_id for call in sink.calls())[2] == 2 * 4


PROGRAM = """
import sys, time
from pathlib import Path
from tests.unit.local.test_sinks_in_workers import Files, once, run

def wait():
    print("waits", flush=True)
    time.sleep(600)

folder = Path(sys.argv[1])
run(Files(folder, once(folder / "waited", 2, wait)), 2)
"""


def test_process_of_the_job_dies_while_workers_write(tmp_path: Path) -> None:
    kill_when_it_waits(PROGRAM, tmp_path)
    sink = Files(tmp_path)
    assert not (tmp_path / "2-1.json").exists()
    run(sink, 3)
    assert sink.records() == EXPECTED


def test_stop_cancels_a_sink_that_does_not_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_job, "_CANCEL_SECONDS", LONG)
    marker = tmp_path / "sleeps"
    env, sink = environment(2), Files(tmp_path, once(marker, 2, partial(time.sleep, 600)))
    counts_in(env).to_sink(sink).with_uid("out")
    job = env.execute_async("counting", checkpoint_location=tmp_path / "checkpoint")
    wait_until(marker.exists)
    job.stop(ms(100))
    assert job.await_termination(timedelta(seconds=LONG))
    run(sink, 2)
    assert sink.records() == EXPECTED


@pytest.mark.parametrize("hold", [lambda file: file, lambda file: threading.Lock()], ids=["file", "lock"])
def test_sink_that_cannot_be_sent_is_named(hold: Callable[[Any], object], tmp_path: Path) -> None:
    sink = Files(tmp_path)
    with open(os.devnull, "w") as file:
        sink.held = hold(file)  # type: ignore[attr-defined]
        with pytest.raises(
            SerializationError, match=r"Field 'held' \(\w+\) of the sink .*out.*, defined at .*, cannot be"
        ):
            run(sink, 2)
        run(sink, 1)
    assert sink.records() == EXPECTED


def test_resource_is_opened_once_in_each_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shared with a function, and is not opened in the process of the job."""
    monkeypatch.setattr(process, "_SECONDS_TO_CLOSE", LONG)
    models = tmp_path / "models"
    models.mkdir()
    model = Resource(partial(Model, models), close=Model.close)

    def used(when: str, batch: SinkBatch[Any]) -> None:
        assert model.get().process == os.getpid()

    def seen(record: tuple[int, int]) -> tuple[int, int]:
        used("", None)  # type: ignore[arg-type]
        return record

    env, sink = environment(2), Files(tmp_path / "out", used)
    counts_in(env).map(seen).to_sink(sink)
    env.execute("counting")
    assert {file.name for file in models.iterdir()} == {str(call.process) for call in sink.calls()}
    assert [file.read_text().split() for file in models.iterdir()] == [["open", "close"]] * 2


def test_sinks_are_written_in_order_between_the_commit_and_the_notification_of_sources(tmp_path: Path) -> None:
    events: list[tuple[str, int]] = []
    sink, commit, write = Files(tmp_path), LocalRun.commit, LocalCheckpoint.write

    def note(event: str, *_: Any) -> None:
        events.append((event, len([*tmp_path.glob("*.json")])))

    def written(checkpoint: LocalCheckpoint, batch: Any) -> None:
        write(checkpoint, batch)
        note("commit")

    def notified(of_run: LocalRun) -> None:
        note("sources")
        commit(of_run)

    env = environment(2)
    counts = counts_in(env)
    counts.to_sink(ForeachBatchSink(partial(note, "sink before"))).with_uid("before")
    counts.to_sink(sink).with_uid("out")
    counts.to_sink(ForeachBatchSink(partial(note, "sink behind"))).with_uid("behind")
    with patch.object(LocalCheckpoint, "write", written), patch.object(LocalRun, "commit", notified):
        env.execute("counting", checkpoint_location=tmp_path / "checkpoint")
    assert events[:4] == [("commit", 0), ("sink before", 0), ("sink behind", 4), ("sources", 4)]


def test_log_records_of_a_sink_have_its_subtask(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.handler.addFilter(JobFilter())
    with caplog.at_level(logging.INFO, "tests.sinks"):
        run(Files(tmp_path, once(tmp_path / "logged", 1, partial(_LOG.info, "Written."))), 2)
    (record,) = (record for record in caplog.records if record.name == "tests.sinks")
    assert [vars(record)[name] for name in ("job", "operator", "subtask")] == ["counting", "out", 1]


class Timed(Counts):
    """May have something to do when no records arrive, so the job asks for the next deadline."""

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None: ...


def test_sink_costs_one_request_in_each_worker(tmp_path: Path) -> None:
    request, methods = WorkerProcess.request, Counter[str]()

    def counted(worker: WorkerProcess, requested: Request) -> None:
        methods[requested.method] += 1
        request(worker, requested)

    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, processes=2, clock=ManualClock()))
    env.set_parallelism(4)
    counts_in(env, Timed(), rate=1000).to_sink(Files(tmp_path)).with_uid("out")  # it often has nothing to read
    with patch.object(WorkerProcess, "request", counted):
        batches = env.execute("counting", checkpoint_location=tmp_path / "checkpoint").progress.batch_id + 1
    assert methods.keys() == {"open", "run", "write"}
    assert methods["run"] == 2 * 2 * batches
    assert methods["write"] <= 2 * batches
