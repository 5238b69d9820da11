"""A client of Spark Connect with streaming jobs: ``python -m tests.spark.connect_streams URL FOLDER JOB ...``.

Prints what it found as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from dsv2 import (
    Collector,
    CollectSink,
    Dsv2Error,
    ErrorPolicy,
    ExecutionEnvironment,
    OneInputStreamProcessFunction,
    PartitionedContext,
)
from dsv2.connectors.files import FilesSource, json_lines, read_files
from dsv2.dead_letters import DeadLetters
from dsv2.jobs import JobHandle, JobListener, JobProgress, JobStatus, Trigger
from dsv2.jobs.progress_log import read_progress
from dsv2.savepoint import Savepoint
from dsv2.sinks import DriverSink, FileSink, ForeachBatchSink, ParallelSink, SinkBatch
from dsv2.sources import BaseSource, DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations
from runtime_spark import SparkRuntime, through_dataframe
from runtime_spark.platform.driver_processes import is_gone
from storms.common.processes import Gate
from tests import ROOT
from tests.support import wait_until

SECONDS = 600
KEYS = 3
PER_BATCH = 6
COUNT = StateDeclarations.value_state("count", int, default=0)


class Counted(NamedTuple):
    """A key, and how many records of it there have been."""

    key: int
    nth: int


class Count(OneInputStreamProcessFunction[int, Counted]):
    """Emits the number of the record within its key. Fails at ``bad``. The second micro-batch waits at ``gate``."""

    def __init__(self, bad: int | None = None, gate: Gate | None = None) -> None:
        self._bad = bad
        self._gate = gate

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        if record == self._bad:
            raise ValueError(f"{record} is not counted")
        if self._gate is not None and record == PER_BATCH:
            self._gate.pass_through()
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect(Counted(record % KEYS, count.value()))


class Lines(ParallelSink[Counted]):
    """Writes a file for each subtask and micro-batch, which a repetition replaces."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, batch: SinkBatch[Counted]) -> None:
        self._folder.mkdir(exist_ok=True)
        text = "".join(f"{record.key} {record.nth}\n" for records in batch.batches for record in records.records)
        (self._folder / f"{batch.batch_id}-{batch.subtask}").write_text(text)


class Heard(JobListener):
    """Keeps what a listener is called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_started(self, job: JobHandle, plan: Any) -> None:
        self.calls.append("started")

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.calls.append(progress.batch_id)

    def on_ended(self, job: JobHandle) -> None:
        self.calls.append(job.status.value)


def key_of(number: int) -> int:
    return number % KEYS


def same(index: int) -> int:
    return index


def counts(count: int) -> list[list[int]]:
    """What the job has counted after ``count`` records."""
    return sorted([key, nth + 1] for key in range(KEYS) for nth in range(len(range(key, count, KEYS))))


class Client:
    """The jobs of a client. ``spark``: Its session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.sink = CollectSink[Counted]()
        self.on_driver: DriverSink[Counted] = self.sink
        self.heard = Heard()
        self.name = "counting"
        self.parallelism = 2
        self.runtime: dict[str, Any] = {}

    def env(
        self, count: int | None, function: Count | None = None, source: BaseSource[int] | None = None
    ) -> ExecutionEnvironment:
        """Build the job: numbers, counted by key, to all kinds of sinks."""
        env = ExecutionEnvironment.get_instance(SparkRuntime(self.spark, **self.runtime))
        env.set_parallelism(self.parallelism)
        env.add_job_listener(self.heard)
        source = source or DataGeneratorSource(same, count=count, records_per_batch=PER_BATCH)
        keyed = env.from_source(source).with_uid("in").key_by(key_of)
        counted = keyed.process(function or Count()).with_uid("count").with_name("counting")
        counted.to_sink(self.on_driver).with_uid("collected").with_name("on driver")
        counted.to_sink(FileSink(self.folder / "out", schema=Counted)).with_uid("files")
        counted.to_sink(Lines(self.folder / "lines")).with_uid("lines")
        return env

    def start(self, env: ExecutionEnvironment, trigger: Trigger | None = None, **options: Any) -> JobHandle:
        """Start a job, which reads what is available, with another trigger or without."""
        chosen = trigger or Trigger.available_now()
        return env.execute_async(self.name, checkpoint_location=self.checkpoint, trigger=chosen, **options)

    def written(self) -> dict[str, list[list[int]]]:
        """What is in the file sink, in the files of the parallel sink, and in the sink of this process."""
        rows = read_files(self.folder / "out").to_arrow().to_pylist() if (self.folder / "out").exists() else []
        lines = [line.split() for file in sorted((self.folder / "lines").glob("*")) for line in file.open()]
        return {
            "files": sorted([row["key"], row["nth"]] for row in rows),
            "lines": sorted([int(key), int(nth)] for key, nth in lines),
            "collected": sorted([list(record) for record in self.sink.results]),
        }

    def whole(self) -> dict[str, Any]:
        """Read the files that there are."""
        self.add_files(0, 1)
        result = self.start(self.env_of_files()).result()
        stored = [progress.batch_id for progress in read_progress(self.checkpoint)]
        counted = result.progress.operators["count"]
        return {**self.written(), "heard": self.heard.calls, "stored": stored, "in": counted.records_in}

    def restarted(self) -> dict[str, Any]:
        """Continue what ``whole`` has written, with more input. Only new records are collected."""
        self.add_files(2)
        job = self.start(self.env_of_files())
        job.await_termination()
        return {**self.written(), "status": job.status.value}

    def idle(self) -> dict[str, Any]:
        """Start that job when there is nothing more to read."""
        job = self.start(self.env_of_files())
        at_start = {uid: operator.records_in for uid, operator in job.progress.operators.items()}
        job.await_termination()
        return {**self.written(), "status": job.status.value, "heard": self.heard.calls, "at_start": at_start}

    def add_files(self, *parts: int) -> None:
        """Add input."""
        (self.folder / "in").mkdir(exist_ok=True)
        for part in parts:
            numbers = range(part * PER_BATCH, (part + 1) * PER_BATCH)
            (self.folder / "in" / str(part)).write_text("\n".join(map(str, numbers)))

    def env_of_files(self) -> ExecutionEnvironment:
        """Build the job with the input that there is."""
        return self.env(None, source=self.files())

    def files(self) -> FilesSource[int]:
        """The source of that job, which has no end."""
        day = timedelta(days=1)
        return FilesSource(self.folder / "in", json_lines(int), discovery_interval=day, files_per_batch=1)

    def gated(self) -> dict[str, Any]:
        """Run to the end of the input through a gate."""
        self._start_gated().await_termination()
        return self.written()

    def refused(self) -> str:
        """Start that job while it runs."""
        return failure_of(self._start_gated)

    def _start_gated(self) -> JobHandle:
        return self.start(self.env(3 * PER_BATCH, Count(gate=Gate(self.folder, "counting"))))

    def failure(self) -> str:
        """Fail in a function."""
        return failure_of(lambda: self.start(self.env(2 * PER_BATCH, Count(bad=7))).await_termination())

    def repeated_failure(self) -> str:
        """The next start names the position of the record."""
        return self.failure()

    def skipped(self) -> dict[str, Any]:
        """Skip that record."""
        self.start(self.env(2 * PER_BATCH, Count(bad=7)), skip_records={"in": [(0, 7)]}).await_termination()
        return self.written()

    def letters(self) -> list[str]:
        """Keep the record that fails as a dead letter."""
        env = ExecutionEnvironment.get_instance(spark=self.spark)
        source = DataGeneratorSource(same, count=PER_BATCH)
        counted = env.from_source(source).with_uid("in").key_by(key_of).process(Count(bad=4)).with_uid("count")
        counted.with_error_policy(ErrorPolicy().dead_letter()).to_sink(self.sink)
        self.start(env).await_termination()
        return [str(letter.record) for letter in DeadLetters.open(self.checkpoint).letters]

    def failing_sink(self) -> str:
        """Fail in a sink of this process, when the micro-batch is complete on the server."""
        self.on_driver = ForeachBatchSink(refuse)
        return failure_of(lambda: self.start(self.env(2 * PER_BATCH)).await_termination())

    def repaired(self) -> dict[str, Any]:
        """Continue with another sink, which gets what the first one has refused."""
        self.start(self.env(2 * PER_BATCH)).await_termination()
        return self.written()

    def stopped(self) -> dict[str, Any]:
        """Take a savepoint of a job without an end, refuse a second one on its checkpoint, and stop it."""
        job = self.start(self.env(None), Trigger.processing_time())
        await_phase(job, lambda: job.progress.batch_id >= 1)
        second = failure_of(lambda: self.start(self.env(None), Trigger.processing_time()))
        path = job.savepoint(self.folder / "savepoint")
        job.stop()
        in_savepoint = counted_in(path)
        return {
            "second": second,
            "status": job.status.value,
            "heard": [self.heard.calls[0], self.heard.calls[-1]],
            "complete": job.progress.batch_id >= 1,
            "savepoint": len(in_savepoint) == KEYS,
            "equal": self.written()["files"] == self.written()["collected"] == self.written()["lines"],
            "counts": self.written()["files"] == counts(len(self.written()["files"])),
        }

    def continued(self) -> dict[str, Any]:
        """Start from the savepoint of ``stopped``, with a new checkpoint."""
        self.checkpoint, savepoint = self.folder / "other", self.folder / "savepoint"
        before = counted_in(savepoint)
        self.folder = self.folder / "continued"
        self.folder.mkdir()
        job = self.start(self.env(None), Trigger.processing_time(), savepoint=savepoint, as_new_job=True)
        await_phase(job, lambda: job.progress.batch_id >= 0 and len(self.sink.results) >= KEYS)
        job.stop()
        first = {key: min(one.nth for one in self.sink.results if one.key == key) for key in range(KEYS)}
        return {"continues": first == {key: before[key] + 1 for key in before}}

    def through(self) -> str:
        """Pass records through a DataFrame."""
        env = ExecutionEnvironment.get_instance(spark=self.spark)
        numbers = env.from_collection([Counted(1, 1)]).with_uid("in")
        through_dataframe(env, numbers, lambda rows: rows, Counted, Counted).to_sink(CollectSink())
        return failure_of(lambda: self.start(env))

    def streaming_dataframe(self) -> str:
        """Read a streaming DataFrame."""
        env = ExecutionEnvironment.get_instance(spark=self.spark)
        rows = self.spark.readStream.format("rate").load().selectExpr("int(value) AS key", "1 AS nth")
        env.from_dataframe(rows, Counted).with_uid("rate").to_sink(CollectSink())
        return failure_of(lambda: self.start(env))

    def elsewhere(self) -> str:
        """Use a checkpoint that this process does not see."""
        env = self.env(PER_BATCH)
        return failure_of(lambda: env.execute("counting", checkpoint_location="hdfs://127.0.0.1:1/checkpoint"))


def await_phase(job: JobHandle, reached: Callable[[], bool]) -> None:
    """Wait for a phase of a job. Raises the error of a job that fails before it."""
    wait_until(lambda: reached() or job.status is not JobStatus.RUNNING)
    if (error := job.exception()) is not None:
        raise error


def is_free(checkpoint: Path) -> bool:
    """Return whether the process of the server's last run has ended, which is later than its last micro-batch."""
    drivers = (checkpoint / "dsv2/drivers").glob("*.json")
    return all(is_gone(json.loads(driver.read_text(encoding="utf-8"))) for driver in drivers)


def counted_in(savepoint: str | Path) -> dict[int, int]:
    """The number of records of each key in the state of a savepoint."""
    rows = Savepoint.open(savepoint).state("count", "count").to_arrow().to_pylist()
    return {row["key"]: row["value"] for row in rows}


def refuse(records: list[Counted], batch_id: int) -> None:
    """The function of a sink."""
    raise OSError("the disk is full")


def failure_of(run: Callable[[], object]) -> str:
    """Return the error of a job that fails."""
    try:
        run()
    except Dsv2Error as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def command(url: str, folder: Path, *jobs: str, module: str = "connect_streams") -> list[str]:
    """The command of a client. ``module``: Its module in this package."""
    return [sys.executable, "-m", f"tests.spark.{module}", url, str(folder), *jobs]


def results(url: str, folder: Path, *jobs: str, module: str = "connect_streams") -> dict[str, Any]:
    """Run a client to its end, and return what its jobs found, and its log. Parameters: those of ``command``."""
    ran = subprocess.run(
        command(url, folder, *jobs, module=module),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stderr[-5_000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return {**found, "log": ran.stderr}


def main(url: str, folder: str, *jobs: str, client: type[Client] = Client) -> None:
    """Run jobs of ``client``, each with one of its own. ``name:folder`` runs a job in a folder below the first one."""
    spark = SparkSession.builder.remote(url).getOrCreate()
    found = {}
    for job in jobs:
        name, _, own = job.partition(":")
        began = time.monotonic()
        place = Path(folder, own or name)
        place.mkdir(exist_ok=True)
        found[name] = getattr(client(spark, place), name)()
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    # The importable module, not this copy of it, so that the server's processes find the classes.
    from tests.spark import connect_streams

    connect_streams.main(*sys.argv[1:])
