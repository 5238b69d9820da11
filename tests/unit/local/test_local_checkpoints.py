"""Checkpoints of local jobs: crashes at every step, restarts of changed programs, and checkpoints that are refused."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobStatus, Trigger
from dsv2.errors import (
    ConfigurationError,
    CorruptDataError,
    DroppedStateWarning,
    IncompatibleCheckpointError,
    MissingUidWarning,
)
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime, RestartPolicy
from dsv2.runtime.state import row_loader
from dsv2.runtime.state.page_budget import PageBudget
from dsv2.sinks import CollectSink, ForeachBatchSink, ParallelSink, SinkBatch, SinkInfo
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclarations
from dsv2.testing import Crash, ManualClock, Stop, TestSource
from tests.durations import ms
from tests.numbering import Numbering
from tests.steps import KilledError, Steps, steps_of_files

COUNT = StateDeclarations.value_state("count", int, default=0)
RECORDS = 30


def pair_of(key: int, number: int, nth: int) -> tuple[int, int]:
    return key, nth


class Counting(OneInputStreamProcessFunction[int, tuple[int, int]]):
    """Emits each key with the number of its records so far, and once more when a timer fires."""

    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect((record % 5, count.value()))
        if record == RECORDS // 2:
            timers = ctx.processing_time_manager
            timers.register_timer(timers.current_time() + 50)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, 0))


class Ledger(ParallelSink[Any]):
    """A database: each transaction writes the records and the number of a micro-batch, like the sink of PostgreSQL."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.entries: dict[tuple[str, str, int], tuple[int, str]] = {}
        self.step: Callable[[], None] = lambda: None

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        for (job, uid, _), entry in self.entries.items():
            if (job, uid) == (info.job_id, info.uid):
                info.is_written(batch_id, *entry)

    def write(self, batch: SinkBatch[Any]) -> None:
        self.step()
        place = batch.info.job_id, batch.info.uid, batch.subtask
        last, run = self.entries.get(place, (-1, ""))
        if not batch.info.is_written(batch.batch_id, last, run):
            self.rows += [record for records in batch.batches for record in records.records]
            self.entries[place] = batch.batch_id, batch.info.run.run_id
        self.step()


class Job:
    """A job that is killed and started again."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.ledger = Ledger()
        self.batches: dict[int, list[Any]] = {}

    def run(
        self, step: Callable[[], None] = lambda: None, restarts: RestartPolicy | None = None, **options: Any
    ) -> Any:
        def replace(records: list[Any], batch_id: int) -> None:
            step()
            assert self.batches.setdefault(batch_id, records) == records
            step()

        self.ledger.step = step
        clock = ManualClock(step=ms(5))
        env = ExecutionEnvironment.get_instance(LocalRuntime(seed=len(self.batches), clock=clock, restarts=restarts))
        env.set_parallelism(2)
        source = DataGeneratorSource(lambda index: index, count=RECORDS, records_per_batch=7)
        counts = env.from_source(source).with_uid("in").key_by(five).process(Counting()).with_uid("counts")
        counts.to_sink(self.ledger).with_uid("ledger")
        counts.to_sink(ForeachBatchSink(replace)).with_uid("batches").with_parallelism(1)
        with steps_of_files(step):
            return env.execute("counting", checkpoint_location=self.checkpoint, **options)

    def check(self) -> None:
        expected = Counter([(key, n) for key in range(5) for n in range(1, 7)] + [(RECORDS // 2 % 5, 0)])
        assert Counter(self.ledger.rows) == expected
        assert Counter(record for records in self.batches.values() for record in records) == expected
        assert sorted(self.batches) == list(range(len(self.batches)))


def five(number: int) -> int:
    return number % 5


def test_crash_at_any_step_loses_and_repeats_nothing(tmp_path: Path) -> None:
    for number in itertools.count():
        job, steps = Job(tmp_path / str(number)), Steps(number)
        with suppress(KilledError):
            job.run(steps)
        if steps.left >= 0:
            break
        job.run()
        job.check()
    assert number > 40


def test_restart_after_a_failure_at_any_step_loses_and_repeats_nothing(tmp_path: Path) -> None:
    class FullDisk(Steps):
        def __call__(self) -> None:
            self.left -= 1
            if self.left == -1:
                raise OSError("No space left on device")

    restarted = 0
    for number in itertools.count():
        job, steps = Job(tmp_path / str(number)), FullDisk(number)
        restarted += job.run(steps, RestartPolicy()).progress.restarts
        job.check()
        if steps.left >= 0:
            break
    assert restarted > 40


def test_failed_job_continues_after_the_last_complete_batch(tmp_path: Path) -> None:
    results: dict[int, list[int]] = {}

    def run(items: list[Any]) -> Any:
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock()))
        numbers = env.from_source(TestSource[int](items)).with_uid("in")
        numbers.to_sink(ForeachBatchSink(lambda records, batch_id: results.update({batch_id: records})))
        return env.execute("numbers", checkpoint_location=tmp_path)

    items = [1, 2, Crash(), 3, Stop(), 4]
    with pytest.raises(JobError, match="an intended crash"):
        run(items)
    assert results == {0: [1, 2]}
    assert run(items).progress.batch_id == 1
    assert results == {0: [1, 2], 1: [3]}
    run(items)
    assert results == {0: [1, 2], 1: [3], 2: [4]}
    assert run(items).progress.batch_id == -1  # it is complete
    assert len(results) == 3
    with pytest.raises(IncompatibleCheckpointError, match=r"ended after 4 records but now holds 5"):
        run([1, 2, 3, 4, 5])


def test_complete_job_continues_with_a_new_source(tmp_path: Path) -> None:
    found: list[int] = []
    for count in (1, 2, 2):
        env = ExecutionEnvironment.get_instance(runtime="local")
        for number in range(count):
            numbers = env.from_collection([number]).with_uid(f"in {number}")
            numbers.to_sink(ForeachBatchSink(lambda records, _: found.extend(records))).with_uid(f"out {number}")
        env.execute(checkpoint_location=tmp_path)
    assert found == [0, 1]


def test_empty_location_is_refused() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1]).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match="checkpoint_location is empty"):
        env.execute(checkpoint_location="")


# --- Another program -------------------------------------------------------------------------------------------------


class Holding(OneInputStreamProcessFunction[int, int]):
    """Has a state and a field."""

    def __init__(self, name: str = "held", kind: type = int) -> None:
        self.seen = 0
        self.held: Any = StateDeclarations.value_state(name, kind)

    def uses_states(self) -> Any:
        return [self.held]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        held = ctx.state_manager.get_state(self.held)
        output.collect(held.value())
        held.update(record)


def run_holding(
    checkpoint: Path,
    function: Any,
    *,
    key: Callable[[int], Any] = five,
    parallelism: int = 2,
    uid: str = "f",
    end: bool = True,
    **options: Any,
) -> list[Any]:
    env, sink = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[Any]()
    items = [*range(5), Stop(), *range(5, 10)]
    numbers = env.from_source(TestSource[int](items)).with_uid("in").with_parallelism(1)
    numbers.key_by(key).process(function).with_uid(uid).with_parallelism(parallelism).to_sink(sink).with_uid("out")
    env.execute("holding", checkpoint_location=checkpoint, **options)
    return sink.results


def test_changed_parallelism_migrates_the_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_holding(tmp_path, Holding())
    with pytest.raises(IncompatibleCheckpointError, match=r"(?s)parallelism.*or start with on_change='migrate'"):
        run_holding(tmp_path, Holding(), parallelism=3, on_change="refuse")
    with caplog.at_level(logging.WARNING):
        assert sorted(run_holding(tmp_path, Holding(), parallelism=3)) == [0, 1, 2, 3, 4]
    assert "The program has changed: " in caplog.text


def test_state_is_migrated_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of the new subtasks are stored while those of the old ones are read."""
    monkeypatch.setattr(row_loader, "_ROWS_BETWEEN_SNAPSHOTS", 20)
    keys, numbers = list(range(300)), list[Any]()
    for parallelism in (2, 3, 1):
        numbers += [*keys, Stop()]
        sink = CollectSink[tuple[int, int]]()
        env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
        stream = env.from_source(TestSource[int](numbers, records_per_batch=100)).with_uid("in").key_by(abs)
        stream.process(Numbering(pair_of)).with_uid("f").with_parallelism(parallelism).to_sink(sink).with_uid("out")
        env.execute("numbers", checkpoint_location=tmp_path)
    assert sorted(sink.results) == [(key, 3) for key in keys]


@pytest.mark.parametrize(("function", "uid"), [(Holding("other"), "f"), (Holding(), "g")])
def test_dropped_state_must_be_allowed(tmp_path: Path, function: Any, uid: str) -> None:
    run_holding(tmp_path, Holding())
    with pytest.raises(IncompatibleCheckpointError, match="allow_dropped_state=True"):
        run_holding(tmp_path, function, uid=uid)
    with pytest.warns(DroppedStateWarning):
        assert run_holding(tmp_path, function, uid=uid, allow_dropped_state=True) == [None] * 5
    assert run_holding(tmp_path, function, uid=uid) == [], "it is gone"


def test_records_for_a_sink_that_is_gone_are_kept(tmp_path: Path) -> None:
    def run(uid: str, write: Callable[[list[int], int], None], **options: Any) -> None:
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.from_collection([1, 2]).with_uid("in").to_sink(ForeachBatchSink(write)).with_uid(uid)
        env.execute(checkpoint_location=tmp_path, **options)

    def fail(records: list[int], batch_id: int) -> None:
        raise OSError("the disk is full")

    with pytest.raises(JobError, match="the disk is full"):
        run("a", fail)
    found: list[int] = []
    with pytest.raises(IncompatibleCheckpointError, match="holds records of micro-batch 0 for the sink 'a'"):
        run("b", lambda records, _: found.extend(records))
    run("b", lambda records, _: found.extend(records), allow_dropped_state=True)
    assert found == []


def test_operators_with_state_need_uids(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1]).key_by(five).process(Holding()).to_sink(CollectSink())
    with pytest.warns(MissingUidWarning):
        env.execute(checkpoint_location=tmp_path)


# --- Savepoints ------------------------------------------------------------------------------------------------------


def continued(checkpoint: Path | None, ledger: Ledger, stop: int | None, **options: Any) -> Any:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
    items: list[Any] = list(range(10))
    items = items if stop is None else [*items[:stop], Stop(), *items[stop:]]
    env.from_source(TestSource[int](items)).with_uid("in").to_sink(ledger).with_uid("ledger")
    job = env.execute_async("numbers", checkpoint_location=checkpoint, **options)
    job.await_termination()
    return job


def test_checkpoint_from_a_savepoint_continues_the_job(tmp_path: Path) -> None:
    ledger = Ledger()
    savepoint = continued(tmp_path / "a", ledger, 4).savepoint(tmp_path / "s")
    continued(tmp_path / "b", ledger, 6, savepoint=savepoint)
    continued(tmp_path / "b", ledger, None, savepoint=savepoint)  # the checkpoint has begun with it
    assert ledger.rows == list(range(10))
    assert {job for job, _, _ in ledger.entries} == {next(iter(ledger.entries))[0]}
    with pytest.raises(JobError, match="The sink already has micro-batch"):
        continued(tmp_path / "a", ledger, None)
    other = continued(tmp_path / "c", ledger, 3).savepoint(tmp_path / "t")
    with pytest.raises(ConfigurationError, match=r"began from the savepoint .*/s, so it cannot start from"):
        continued(tmp_path / "b", ledger, None, savepoint=other)


@pytest.mark.parametrize("options", [{"checkpoint_location": "b", "as_new_job": True}, {"checkpoint_location": None}])
def test_new_job_from_a_savepoint(tmp_path: Path, options: dict[str, Any]) -> None:
    ledger = Ledger()
    savepoint = continued(tmp_path / "a", ledger, 4).savepoint(tmp_path / "s")
    location = options.pop("checkpoint_location")
    continued(location and tmp_path / location, ledger, None, savepoint=savepoint, **options)
    assert ledger.rows == list(range(10))
    assert len({job for job, _, _ in ledger.entries}) == 2


# --- Refusals --------------------------------------------------------------------------------------------------------


def test_older_copy_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    ledger = Ledger()
    continued(tmp_path / "a", ledger, 4)
    older = {file: file.read_bytes() for file in (tmp_path / "a").rglob("*") if file.is_file()}
    continued(tmp_path / "a", ledger, 8)
    for file in (tmp_path / "a" / "local").iterdir():
        file.unlink()
    for file, content in older.items():
        file.write_bytes(content)
    with pytest.raises(JobError, match="The sink already has micro-batch"):
        continued(tmp_path / "a", ledger, None)


def test_second_job_on_a_checkpoint_is_refused(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_source(DataGeneratorSource(abs)).to_sink(ForeachBatchSink(lambda records, _: None))
    job = env.execute_async("endless", checkpoint_location=tmp_path)
    env.from_collection([1]).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match="Another job uses the checkpoint"):
        env.execute(checkpoint_location=tmp_path)
    job.stop()
    assert job.status is JobStatus.STOPPED


@pytest.mark.parametrize("damage", [lambda data: data.replace(b"job_id", b"job_ie"), lambda _: b""])
def test_damaged_file_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    continued(tmp_path, Ledger(), 4)
    (file,) = (tmp_path / "local").glob("*.log")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CorruptDataError, match=rf"{file} is damaged"):
        continued(tmp_path, Ledger(), None)


def test_damaged_state_is_named(tmp_path: Path) -> None:
    run_holding(tmp_path, Holding())
    (file,) = (tmp_path / "local").glob("*.log")
    data = file.read_bytes()
    file.write_bytes(data[:-400] + bytes(9) + data[-391:])
    with pytest.raises(CorruptDataError, match=rf"{file} is damaged at byte "):
        run_holding(tmp_path, Holding())


def test_checkpoint_of_spark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(IncompatibleCheckpointError, match="is the checkpoint of a job on Spark"):
        continued(tmp_path, Ledger(), None)


@pytest.mark.parametrize("location", ["s3://bucket/job", "hdfs:/jobs/1"])
def test_other_file_systems_are_refused(location: str) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection([1]).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match=f"{location} is not on the local disk"):
        env.execute(checkpoint_location=location)


def test_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    continued(tmp_path, Ledger(), 4)
    left = tmp_path / "local" / ".00000001.log.new"
    left.write_bytes(b"half of it")
    continued(tmp_path, Ledger(), None, trigger=Trigger.available_now())
    assert not left.exists()


def test_restart_continues_with_the_size_of_micro_batches(tmp_path: Path) -> None:
    def sizes() -> list[int]:
        found: list[int] = []
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock()))
        numbers = env.from_source(TestSource[int]([*range(700), Stop(), *range(2_000)])).with_uid("numbers")
        numbers.to_sink(ForeachBatchSink[int](lambda records, batch_id: found.append(len(records)))).with_uid("out")
        trigger = Trigger.available_now(target_batch_duration=ms(1_000))
        env.execute("sizes", checkpoint_location=tmp_path, trigger=trigger)
        return found

    assert sizes() == [100, 200, 400]
    assert sizes() == [100, 400, 800, 700]  # a small one, then as large as before the stop


def test_restarts_of_checks_keep_no_former_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps, enforce = set[int](), PageBudget.enforce

    def counted(budget: PageBudget) -> None:
        maps.add(len(budget._maps))
        enforce(budget)

    monkeypatch.setattr(PageBudget, "enforce", counted)
    env = ExecutionEnvironment.get_instance(runtime="local")
    numbers = env.from_source(DataGeneratorSource(int, count=50, records_per_batch=5)).with_uid("in")
    numbers.key_by(five).process(Holding()).with_uid("f").to_sink(CollectSink[Any]()).with_uid("out")
    env.execute("holding", checkpoint_location=tmp_path)
    assert maps == {1}
