"""Dead letters that nothing reads: files of the job, whose records a later version processes once, whatever dies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import ErrorPolicy, JobHandle, RuntimeExecutionMode, Trigger
from dsv2.base.folders import LocalFolder
from dsv2.cli import main
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.dead_letters import DeadLetters, LetterStatus
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.sinks import CollectSink, FileSink
from tests.spark.dead_letter_job import STOP, assert_complete, fails, start
from tests.spark.processes import Gate, JobProcess
from tests.spark.programs import environment, read_back

pytestmark = pytest.mark.spark

FAILING = [record for record in range(STOP) if fails(record)]


class Job:
    """The job in ``folder``."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder
        self.checkpoint = folder / "checkpoint"

    def start(self, version: int, parallelism: int = 2, **options: Any) -> JobHandle:
        return start(self._spark, self.folder, version, parallelism, **options)

    def run(self, version: int, parallelism: int = 2, **options: Any) -> None:
        self.start(version, parallelism, **options).await_termination()

    def letters(self) -> dict[LetterStatus, list[int]]:
        letters = DeadLetters.open(self.checkpoint)
        found: dict[LetterStatus, list[int]] = {}
        for letter in letters.letters:
            found.setdefault(letters.status(letter), []).append(int(letter.record or 0))
        return {status: sorted(records) for status, records in found.items()}


@pytest.fixture(scope="module")
def after_first_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    Job(spark, folder).run(1)
    return folder


@pytest.fixture
def job(spark: SparkSession, after_first_run: Path, tmp_path: Path) -> Job:
    """A job whose first version has stopped before the end of its input, with letters of three micro-batches."""
    return Job(spark, Path(shutil.copytree(after_first_run, tmp_path / "job")))


def test_letters_are_files_below_the_checkpoint(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.letters() == {LetterStatus.NEW: FAILING}
    files = sorted(file.name for file in job.checkpoint.glob("dead-letters/*/letters/*"))
    assert files == ["0.jsonl", "1.jsonl", "2.jsonl"]
    assert main(["dead-letters", "show", str(job.checkpoint), "--json"]) == 0
    first, *_ = json.loads(capsys.readouterr().out)["letters"]
    assert (first["id"][:4], first["operator"], first["callback"]) == ("0.0.", "number", "process_record")
    assert (first["record"], first["key"], first["error_message"]) == ("3", "3", "refused: 3")


def test_replay_survives_every_crash(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    write = LocalFolder.write
    assert main(["dead-letters", "replay", str(job.checkpoint), "0", "--error", "ValueError"]) == 0
    assert main(["dead-letters", "replay", str(job.checkpoint), "--all"]) == 0
    assert job.letters() == {LetterStatus.REQUESTED: FAILING}
    for file in ("savepoint.json", "job/0.json"):

        def die(self: LocalFolder, name: str, data: bytes, file: str = file) -> None:
            if name.endswith(file):
                raise KeyboardInterrupt
            write(self, name, data)

        with monkeypatch.context() as patch:
            patch.setattr(LocalFolder, "write", die)
            with pytest.raises(KeyboardInterrupt):
                job.start(2, 3)
    with pytest.raises(UserFunctionError, match="not covered by the policy"):
        job.run(3, 3)  # in the first micro-batch
    assert job.letters() == {LetterStatus.REQUESTED: FAILING}
    job.run(2, 3)
    assert_complete(job.folder)
    assert job.letters() == {LetterStatus.REPLAYED: FAILING}
    assert main(["dead-letters", "replay", str(job.checkpoint), "--all"]) == 1, "none is new"


class Line(NamedTuple):
    number: int


class Number:
    """Decodes a line."""

    def __init__(self, base: int) -> None:
        self.base = base

    def __call__(self, line: str) -> Line:
        return Line(int(line, self.base))


def refuse_two(line: Line) -> Line:
    if line.number == 2:
        raise OSError("the first micro-batch fails")
    return line


def test_source_decodes_its_letters_again_once(spark: SparkSession, tmp_path: Path) -> None:
    files, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    files.mkdir()

    def run(file: str, content: str, base: int, check: Callable[[Line], Line] | None = None) -> None:
        (files / file).write_text(content)
        env = environment(spark, 2)
        source = FilesSource(files, text_lines(Number(base)), discovery_interval=timedelta(seconds=10))
        lines = env.from_source(source).with_uid("lines")
        lines.with_error_policy(ErrorPolicy().dead_letter(ValueError).limit(total=1))
        checked = lines.map(check or (lambda line: line)).with_uid("checked")
        checked.to_sink(FileSink(tmp_path / "out", schema=Line)).with_uid("out")
        env.execute("lines", checkpoint_location=checkpoint, trigger=Trigger.available_now())

    run("a.txt", "1\n0x2\n", 10)
    assert main(["dead-letters", "replay", str(checkpoint), "--all"]) == 0
    with pytest.raises(UserFunctionError, match="the first micro-batch fails"):
        run("b.txt", "3\n", 0, refuse_two)
    run("b.txt", "3\n", 0)
    run("c.txt", "4\n", 0)
    assert sorted(number for _, number in read_back(tmp_path / "out")) == [1, 2, 3, 4]
    letters = DeadLetters.open(checkpoint)
    assert [letters.status(letter) for letter in letters.letters] == [LetterStatus.REPLAYED]
    with pytest.raises(UserFunctionError, match="allows 1 failures in total, and this is number 2"):
        run("d.txt", "four\n", 0)


def test_batch_job_has_letters_in_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    def run(**options: Any) -> None:
        env, sink = environment(spark, mode=RuntimeExecutionMode.BATCH), CollectSink[int]()
        env.set_error_policy(ErrorPolicy().dead_letter())
        env.from_collection([1, 0, 2]).map(lambda number: 6 // number).to_sink(sink)
        env.execute("batch", **options)
        assert sink.results == [6, 3]

    with pytest.raises(ConfigurationError, match=r"nothing reads its dead letters.*execute\(..., dead_letters="):
        run()
    run(dead_letters=tmp_path)
    run(dead_letters=tmp_path)
    letters = DeadLetters.open(tmp_path)
    assert [letters.record(letter) for letter in letters.letters] == [0, 0]
    assert list(letters.job_names.values()) == ["batch", "batch"]


@pytest.mark.slow
def test_killed_driver(spark: SparkSession, tmp_path: Path) -> None:
    job, written, again = Job(spark, tmp_path), Gate(tmp_path, "written"), Gate(tmp_path, "again")
    written.shut()
    with JobProcess(tmp_path, "dead_letter_job", "1", "0.jsonl") as process:
        process.start()
        process.wait_until(lambda: written.waiting is not None)
        process.kill()
    assert job.letters() == {LetterStatus.NEW: FAILING[:2]}
    assert process.batches("commits") == 0
    assert main(["dead-letters", "replay", str(job.checkpoint), "--all"]) == 0
    job.run(1)  # repeats the micro-batch, so it does not fulfil the request
    assert main(["dead-letters", "replay", str(job.checkpoint), "--withdraw"]) == 0
    assert job.letters() == {LetterStatus.NEW: FAILING}

    assert main(["dead-letters", "replay", str(job.checkpoint), "--all"]) == 0
    again.shut()
    with JobProcess(tmp_path, "dead_letter_job", "2") as process:
        process.start()
        process.wait_until(lambda: again.waiting is not None)
        process.kill()
    again.open()
    job.run(2)
    assert_complete(tmp_path)
    assert job.letters() == {LetterStatus.REPLAYED: FAILING}
