"""Dead letters and skipped records of local jobs with a checkpoint: crashes at every step, and letters that return."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import ErrorPolicy, ExecutionEnvironment, JobError
from dsv2.cli import main
from dsv2.dead_letters import DeadLetters, LetterStatus
from dsv2.errors import IncompatibleCheckpointError, RecordNotSkippedWarning
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sinks import ForeachBatchSink
from dsv2.state import StateDeclarations
from dsv2.testing import ManualClock, Stop, TestSource
from tests.steps import KilledError, Steps, steps_of_files

SEEN = StateDeclarations.value_state("seen", int, default=0)
POLICY = ErrorPolicy().dead_letter(ValueError)
TEXTS: list[Any] = ["1", "2", "x", "4", "y", "6", Stop(), "7", "8", Stop(), "9"]


class Numbers(OneInputStreamProcessFunction[str, tuple[str, int]]):
    """Emits each text with the number of texts so far. They have to be numbers."""

    def uses_states(self) -> Any:
        return [SEEN]

    def process_record(self, record: str, output: Any, ctx: Any) -> None:
        int(record)
        seen = ctx.state_manager.get_state(SEEN)
        seen.update(seen.value() + 1)
        output.collect((record, seen.value()))


class Texts(Numbers):
    """Accepts every text."""

    def process_record(self, record: str, output: Any, ctx: Any) -> None:
        super().process_record("0", output, ctx)
        output.collect((record, -1))


def alike(text: str) -> str:
    return "all"


class Job(NamedTuple):
    """A job that is killed and started again."""

    folder: Path
    batches: dict[int, list[Any]]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def run(
        self,
        step: Any = lambda: None,
        function: Any = Numbers,
        policy: Any = POLICY,
        texts: Any = TEXTS,
        **options: Any,
    ) -> None:
        def replace(records: list[Any], batch_id: int) -> None:
            assert self.batches.setdefault(batch_id, records) == records

        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2], clock=ManualClock(0)))
        numbers = env.from_source(TestSource[str](texts)).with_uid("texts").key_by(alike).process(function())
        numbers.with_uid("numbers").with_error_policy(policy)
        numbers.to_sink(ForeachBatchSink(replace)).with_uid("out").with_parallelism(1)
        with steps_of_files(step):
            env.execute("numbers", checkpoint_location=self.checkpoint, **options)

    @property
    def letters(self) -> DeadLetters:
        return DeadLetters.open(self.checkpoint)

    def records(self) -> list[Any]:
        return [record for number in sorted(self.batches) for record in self.batches[number]]


BEFORE_STOP = [("1", 1), ("2", 2), ("4", 3), ("6", 4)]


def kill_at_each_step(folder: Path, prepare: Any = lambda job: None, **options: Any) -> Any:
    """Return jobs that were killed, each one step later than the one before. The last one was not killed."""
    for number in itertools.count():
        job, steps = Job(folder / str(number), {}), Steps(number)
        prepare(job)
        with suppress(KilledError):
            job.run(steps, **options)
        yield job
        if steps.left >= 0:
            assert number > 10
            return


def test_crash_at_any_step_loses_and_repeats_no_letter(tmp_path: Path) -> None:
    for job in kill_at_each_step(tmp_path):
        for _ in range(3):
            job.run()
        assert [str(letter.record) for letter in job.letters.letters] == ["'x'", "'y'"]
        assert job.records() == [*BEFORE_STOP, ("7", 5), ("8", 6), ("9", 7)]


def request(job: Job) -> None:
    job.run()
    assert main(["dead-letters", "replay", str(job.checkpoint), "--all"]) == 0


def test_letters_are_processed_again_once_although_the_job_is_killed(tmp_path: Path) -> None:
    for job in kill_at_each_step(tmp_path, request, function=Texts):
        job.run(function=Texts)
        job.run(function=Texts)
        replayed = [text for text, seen in job.records() if seen == -1]
        assert sorted(replayed) == ["7", "8", "9", "x", "y"]
        assert [number for _, number in job.records() if number != -1] == list(range(1, 10))
        letters = job.letters
        assert {letters.status(letter) for letter in letters.letters} == {LetterStatus.REPLAYED}


def test_withdrawn_request_is_not_processed(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    request(job)
    assert main(["dead-letters", "replay", str(job.checkpoint), "--withdraw"]) == 0
    job.run(function=Texts)
    assert sorted(text for text, seen in job.records() if seen == -1) == ["7", "8"]


def test_ended_job_refuses_letters(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    job.run(texts=["1", "x", "3"])
    assert main(["dead-letters", "replay", str(job.checkpoint), "--all"]) == 0
    with pytest.raises(IncompatibleCheckpointError, match="has received the end of its input"):
        job.run(texts=["1", "x", "3"], function=Texts)


def test_request_to_skip_holds_until_the_record_is_skipped(tmp_path: Path) -> None:
    texts, strict = ["1", "2", "x", "4"], ErrorPolicy().dead_letter(KeyError)

    def fail(job: Job) -> None:
        with pytest.raises(JobError, match=r"skip_records=\{'texts': \[\(0, 2\)\]\}"):
            job.run(policy=strict, texts=texts, trace_records=True)

    asked = 0
    for job in kill_at_each_step(tmp_path, fail, policy=strict, texts=texts, skip_records={"texts": [(0, 2)]}):
        if (job.checkpoint / "dsv2" / "unblocking.json").exists():
            asked += 1
            job.run(policy=strict, texts=texts)
            assert job.records() == [("1", 1), ("2", 2), ("4", 3)]
    assert asked > 10


def test_record_that_was_read_before_is_not_skipped(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    job.run()
    with pytest.warns(RecordNotSkippedWarning) as warned:
        job.run(skip_records={"texts": [(0, 0)]})
    assert "earlier micro-batches have read this record" in str(warned[0].message)
