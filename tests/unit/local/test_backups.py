"""Backups of checkpoints while their jobs run: each is the checkpoint as of one micro-batch."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.base.folders import LocalFolder
from dsv2.cli import main
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime, backup
from dsv2.local.backup import back_up
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclarations
from tests.log_writer import Content, Writer, content_of, make_limits_small, opened

KEYS = 400
COUNT = StateDeclarations.value_state("count", int, default=0)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


def same(number: int) -> int:
    return number


def key_of(number: int) -> int:
    return number % KEYS


class Counting(OneInputStreamProcessFunction[int, tuple[int, int]]):
    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect((record, count.value()))


def start(checkpoint: Path, processes: int = 1) -> tuple[Any, CollectSink[tuple[int, int]]]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, processes=processes))
    env.set_parallelism(processes)
    sink = CollectSink[tuple[int, int]]()
    numbers = env.from_source(DataGeneratorSource(same, records_per_batch=100)).with_uid("numbers")
    numbers.key_by(key_of).process(Counting()).with_uid("counts").to_sink(sink).with_uid("out")
    return env.execute_async("counts", checkpoint_location=checkpoint), sink


def run_to(job: Any, sink: CollectSink[tuple[int, int]], records: int) -> None:
    while len(sink.results) < records:
        assert job.exception() is None
        time.sleep(0.001)


@pytest.mark.parametrize("processes", [1, 2])
def test_running_job_is_backed_up(processes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, sink = start(tmp_path / "checkpoint", processes)
    for number in range(6):
        run_to(job, sink, 5 * KEYS * (number + 1))
        assert main(["checkpoint", "backup", str(tmp_path / "checkpoint"), str(tmp_path / f"backup-{number}")]) == 0
    job.stop()
    shutil.rmtree(tmp_path / "checkpoint")
    assert capsys.readouterr().out.count("has the checkpoint as of micro-batch") == 6
    for number in range(6):
        place = tmp_path / f"backup-{number}"
        assert main(["checkpoint", "verify", str(place)]) == 0
        restored, sink = start(place, processes)
        run_to(restored, sink, 3 * KEYS)
        restored.stop()
        assert all(nth == record // KEYS + 1 for record, nth in sink.results)


class OneLog:
    """A checkpoint with the transactions of a ``Writer``."""

    def __init__(self, folder: LocalFolder) -> None:
        self._log = opened(Path(folder.place("local")), writes=False)
        self.lacks_segments = lambda: self._log.lacks_segments
        self.release = self._log.close

    def last(self) -> SimpleNamespace | None:
        notes = self._log.notes
        return SimpleNamespace(batch_id=int(notes["number"])) if notes else None


@pytest.mark.parametrize("seed", range(25))
def test_job_that_writes_between_the_steps_of_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    writer = Writer(tmp_path / "log" / "local", seed)
    contents: dict[int, Content] = {}

    def write(most: int) -> None:
        for _ in range(writer.random.randrange(most)):
            writer.change()
            writer.commit()
            writer.log.mark()
            contents[writer.number] = writer.committed

    def with_writes(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            write(3)
            try:
                return real(*arguments, **options)
            finally:
                write(3)

        return step

    writer.change()
    writer.commit()
    contents[1] = writer.committed
    write(40)
    monkeypatch.setattr(backup, "_copy", with_writes(backup._copy))
    monkeypatch.setattr(Path, "open", with_writes(Path.open))
    monkeypatch.setattr(os, "scandir", with_writes(os.scandir))
    monkeypatch.setattr(backup, "LocalCheckpoint", OneLog)
    first = writer.number
    number = backup._copy_logs(tmp_path / "log", tmp_path / "copy")
    monkeypatch.undo()
    assert first <= number <= writer.number
    assert content_of(opened(tmp_path / "copy" / "local")) == contents[number]


def test_backup_of_a_busy_job_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as the job begins a segment while they are opened."""
    writer, open_segments = Writer(tmp_path / "log" / "local", 0), backup._open_segments
    writer.change()
    writer.commit()
    lacks = iter([True] * 20)

    def opens(log: Path, stack: ExitStack) -> Any:
        before = {*log.iterdir()}
        while {*log.iterdir()} == before:
            writer.change()
            writer.commit()
            writer.log.mark()
        return open_segments(log, stack)

    class Lacking(OneLog):
        def __init__(self, folder: LocalFolder) -> None:
            super().__init__(folder)
            self.lacks_segments = lambda: next(lacks, False)

    monkeypatch.setattr(backup, "_open_segments", opens)
    monkeypatch.setattr(backup, "LocalCheckpoint", Lacking)
    assert backup._copy_logs(tmp_path / "log", tmp_path / "copy") == writer.number
    assert content_of(opened(tmp_path / "copy" / "local")) == writer.committed


def test_folder_that_exists_is_refused(tmp_path: Path) -> None:
    job, sink = start(tmp_path / "checkpoint")
    run_to(job, sink, 1)
    with pytest.raises(ConfigurationError, match="exists already"):
        back_up(str(tmp_path / "checkpoint"), str(tmp_path))
    job.stop()


@pytest.mark.parametrize("content", [None, b"no log"])
def test_failed_backup_leaves_nothing(tmp_path: Path, content: bytes | None) -> None:
    log = tmp_path / "checkpoint" / "local"
    log.mkdir(parents=True)
    if content is not None:
        (log / "00000000.log").write_bytes(content * 100)
    with pytest.raises((ConfigurationError, CorruptDataError), match=r"no complete micro-batch|damaged"):
        back_up(str(tmp_path / "checkpoint"), str(tmp_path / "backup"))
    assert [place.name for place in tmp_path.iterdir()] == ["checkpoint"]
