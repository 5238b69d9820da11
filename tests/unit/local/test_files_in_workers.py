"""Files that worker processes write: which worker, what they contain, and once, although processes die."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import pyarrow as pa
import pytest

from dsv2 import CollectSink, DeadLetter, ErrorPolicy, ExecutionEnvironment, JobError, RuntimeExecutionMode
from dsv2.arrow import ArrowForeachBatchSink
from dsv2.connectors.files import read_files
from dsv2.errors import SchemaError
from dsv2.file_log import SinkFolder
from dsv2.graph.sinks_elsewhere import with_sinks_of_workers
from dsv2.local import LocalRuntime, RestartPolicy
from dsv2.local import sinks as local_sinks
from dsv2.sinks import FileSink, Sink
from dsv2.sources import DataGeneratorSource
from tests.durations import ms
from tests.steps import KilledError, Steps, steps_of_files
from tests.support import kill_when_it_waits, local_environment

FORMATS = ["parquet", "json", "csv"]
RECORDS, BATCH, PARTS = 48, 8, 3
BATCHES = RECORDS // BATCH
STEPS_BETWEEN = 13


Row: TypeAlias = tuple[int, int]
SCHEMA = "number int, part int"


def row_of(number: int) -> Row:
    return number, number % PARTS


ROWS = [row_of(number) for number in range(RECORDS)]


class Faulty(FileSink[Row]):
    """Calls ``fault`` with the micro-batch and the process before it writes files."""

    def __init__(self, path: Path, fault: Callable[[int, int], object]) -> None:
        self.fault = fault
        super().__init__(path, schema=SCHEMA)

    @property
    def partition_by(self) -> tuple[str, ...]:
        caller = sys._getframe(1)
        if caller.f_code.co_qualname == "FileParts.write":
            self.fault(caller.f_locals["batch_id"], caller.f_locals["number"])
        return self._partition_by

    @partition_by.setter
    def partition_by(self, columns: tuple[str, ...]) -> None:
        self._partition_by = columns


def environment(processes: int, restarts: RestartPolicy | None = None) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, processes=processes, restarts=restarts))
    env.set_parallelism(4)
    return env


def rows_in(env: ExecutionEnvironment) -> Any:
    source = DataGeneratorSource(int, count=RECORDS, records_per_batch=BATCH)
    return env.from_source(source).with_uid("in").map(row_of)


def run(folder: Path, processes: int, sink: FileSink[Row] | None = None, **options: Any) -> Any:
    env = environment(processes, **options)
    rows_in(env).to_sink(sink or FileSink(folder / "out", schema=SCHEMA)).with_uid("out")
    return env.execute("files", checkpoint_location=folder / "checkpoint")


def read(folder: Path, **options: Any) -> list[Row]:
    return sorted(tuple(row.values()) for row in read_files(folder / "out", **options).to_arrow().to_pylist())


def once(marker: Path, act: Callable[[], object]) -> Callable[[int, int], object]:
    """Return a fault of worker 1 in the third micro-batch, which happens once."""

    def fault(batch_id: int, number: int) -> None:
        if (batch_id, number) == (2, 1) and not marker.exists():
            marker.touch()
            act()

    return fault


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Sealed:
    """A record that cannot be constructed. It exists in columns only."""

    shop: str
    amount: int

    def __post_init__(self) -> None:
        raise AssertionError("single records are not expected")


SALES = pa.table({"shop": [f"shop {number % 2}" for number in range(40)], "amount": pa.array(range(40))})


@pytest.mark.parametrize("format", FORMATS)
def test_source_in_front_of_files_reads_columns(tmp_path: Path, format: Any) -> None:
    env = environment(2)
    sales = env.from_dataframe(SALES, Sealed)
    sales.to_sink(FileSink(tmp_path / "a", format=format, schema=Sealed))
    sales.to_sink(FileSink(tmp_path / "b", format=format, schema=Sealed, partition_by=["shop"]))
    env.execute("sales")
    for name in ("a", "b"):
        found = read_files(tmp_path / name).to_arrow().select(SALES.column_names)
        assert sorted(found.to_pylist(), key=lambda row: row["amount"]) == SALES.to_pylist()


def test_source_in_front_of_a_sink_on_tables_of_the_job_reads_columns() -> None:
    tables: list[pa.Table] = []
    env = environment(2)
    env.from_dataframe(SALES, Sealed).to_sink(ArrowForeachBatchSink(lambda table, _: tables.append(table), Sealed))
    env.execute("sales")
    assert sorted(pa.concat_tables(tables)["amount"].to_pylist()) == [*range(40)]


@pytest.mark.parametrize(
    ("sink", "in_columns"),
    [
        (FileSink("out", schema=Sealed), True),
        (ArrowForeachBatchSink(lambda table, _: None, Sealed), True),
        (CollectSink(), False),
    ],
)
def test_plan_of_workers_knows_which_sources_read_columns(sink: Sink[Any], in_columns: bool) -> None:
    env = local_environment()
    env.from_dataframe(SALES, Sealed).to_sink(sink)
    plan = env.build_plan()
    for one in (plan, with_sinks_of_workers(plan)):
        assert one.processes_columns(one.operators[0]) is in_columns


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("partition_by", [[], ["part"]])
def test_each_worker_writes_a_file_for_each_partition(tmp_path: Path, format: Any, partition_by: list[str]) -> None:
    """The process of the job encodes nothing."""
    sink = FileSink[Row](tmp_path / "out", schema=SCHEMA, format=format, partition_by=partition_by)
    with patch.object(local_sinks, "table_of_batches", side_effect=AssertionError):
        run(tmp_path, 2, sink)
    assert read(tmp_path) == ROWS
    for batch_id in range(BATCHES):
        assert read(tmp_path, after=batch_id - 1) == ROWS[batch_id * BATCH :]
        files = [*(tmp_path / "out").glob(f"{'*/' * len(partition_by)}{batch_id:010}-*.{format}")]
        assert len(files) == 2 * (PARTS if partition_by else 1)


def test_small_files_of_workers_are_merged(tmp_path: Path) -> None:
    run(tmp_path, 2, FileSink(tmp_path / "out", schema=SCHEMA, format="json", roll_interval=ms(3_600_000)))
    (file,) = (tmp_path / "out").glob("*.json")
    assert sorted(json.loads(line)["number"] for line in file.read_text().splitlines()) == [*range(RECORDS)]
    assert read(tmp_path, after=2) == ROWS[3 * BATCH :]


def test_batch_job_writes_files_in_workers(tmp_path: Path) -> None:
    env = environment(2)
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    rows_in(env).to_sink(FileSink(tmp_path / "out", schema=SCHEMA))
    env.execute("files")
    assert read(tmp_path) == ROWS
    assert len([*(tmp_path / "out").glob("*.parquet")]) == 2


def refused(record: Row) -> Any:
    return record if record[0] != 21 else (21, "x")


def test_errors_are_those_of_one_process(tmp_path: Path) -> None:
    texts: list[list[str]] = []
    for processes in (1, 2):
        found = []
        for name, schema in (("fits", SCHEMA), ("folder", "number int, part string")):
            env, path = environment(processes), tmp_path / f"{name} {processes}"
            rows = rows_in(env).map(refused if name == "fits" else lambda row: (row[0], "x" * 300))
            rows.to_sink(FileSink(path, schema=schema, partition_by=["part"]))
            with pytest.raises(SchemaError if name == "fits" else JobError) as caught:
                env.execute("files")
            assert not [*path.glob(f"part=*/{2 if name == 'fits' else 0:010}-*")]
            found.append(str(caught.value).partition(f"{path}")[0])
        texts.append(found)
    assert texts[0] == texts[1]
    assert "record (21, 'x')" in texts[0][0]
    assert "failed on batch 0: OSError: " in texts[0][1]


def test_records_that_do_not_fit_are_dead_letters_as_with_one_process(tmp_path: Path) -> None:
    found = []
    for processes in (1, 2):
        env, letters = environment(processes), CollectSink[DeadLetter[Any]]()
        sink = FileSink[Any](tmp_path / f"{processes}" / "out", schema=SCHEMA)
        written = rows_in(env).map(refused).to_sink(sink).with_error_policy(ErrorPolicy().dead_letter(SchemaError))
        written.dead_letters(object).to_sink(letters)
        env.execute("files")
        assert read(tmp_path / f"{processes}") == [row for row in ROWS if row[0] != 21]
        found.append([(letter.subtask, letter.record, letter.error_message) for letter in letters.results])
    assert [record for _, record, _ in found[0]] == [(21, "x")]
    assert found[0] == found[1]


def test_micro_batch_is_completed_after_a_worker_has_died_in_it(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    sink = Faulty(tmp_path / "out", once(tmp_path / "died", die))
    assert run(tmp_path, 2, sink).progress.restarts == 1
    assert read(tmp_path) == ROWS
    assert "Sink (uid 'out'), subtask 1" in caplog.text


PROGRAM = """
import sys, time
from pathlib import Path
from tests.unit.local.test_files_in_workers import Faulty, once, run

def wait():
    print("waits", flush=True)
    time.sleep(600)

folder = Path(sys.argv[1])
run(folder, 2, Faulty(folder / "out", once(folder / "waited", wait)))
"""


def test_process_of_the_job_dies_while_workers_write_files(tmp_path: Path) -> None:
    kill_when_it_waits(PROGRAM, tmp_path)
    assert read(tmp_path) == ROWS[: 2 * BATCH]
    run(tmp_path, 3)
    assert read(tmp_path) == ROWS


def test_stop_cancels_files_that_do_not_return(tmp_path: Path) -> None:
    marker, env = tmp_path / "sleeps", environment(2)
    sink = Faulty(tmp_path / "out", once(marker, partial(time.sleep, 600)))
    rows_in(env).to_sink(sink).with_uid("out")
    job = env.execute_async("files", checkpoint_location=tmp_path / "checkpoint")
    while not marker.exists():
        time.sleep(0.01)
    job.stop(ms(100))
    assert job.await_termination(ms(60_000))
    run(tmp_path, 2)
    assert read(tmp_path) == ROWS


@pytest.mark.parametrize(
    "processes", [(2, 3), *(pytest.param(one, marks=pytest.mark.nightly) for one in ((2, 1), (1, 2), (3, 2)))], ids=str
)
@pytest.mark.parametrize("step", ["prepare", pytest.param("publish", marks=pytest.mark.nightly)])
def test_start_with_other_processes_completes_the_files(tmp_path: Path, processes: tuple[int, int], step: str) -> None:
    """Files that are prepared stay those of the former workers; others are written by the new ones."""
    method, calls = getattr(SinkFolder, step), itertools.count()

    def killed(*args: Any, **options: Any) -> None:
        method(*args, **options)
        if next(calls) == 2:
            raise KilledError

    with patch.object(SinkFolder, step, killed), pytest.raises(KilledError):
        run(tmp_path, processes[0])
    run(tmp_path, processes[1])
    assert read(tmp_path) == ROWS
    assert len([*(tmp_path / "out").glob("0000000002-*")]) == processes[0]
    assert len([*(tmp_path / "out").glob("0000000003-*")]) == processes[1]


@pytest.mark.nightly
@pytest.mark.parametrize("rolling", [None, ms(1)])
def test_crash_of_the_job_at_any_step_loses_and_repeats_nothing(tmp_path: Path, rolling: Any) -> None:
    for number in itertools.count(step=STEPS_BETWEEN):
        folder, steps = tmp_path / str(number), Steps(number)
        sink = FileSink[Row](folder / "out", schema=SCHEMA, roll_interval=rolling)
        with suppress(KilledError), steps_of_files(steps):
            run(folder, 2, sink)
        if steps.left >= 0:
            break
        run(folder, 2, sink)
        assert read(folder) == ROWS, number
    assert number > 30
