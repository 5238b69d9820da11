"""Dead letters of sources return to the decoder: each once, whatever dies, with timestamps and positions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, JobError, Trigger
from dsv2.base.folders import LocalFolder
from dsv2.cli import main
from dsv2.connectors.files import FilesSource, csv_rows, json_lines, parquet_rows, text_lines
from dsv2.connectors.kafka import KafkaMessage, KafkaSource, values
from dsv2.connectors.postgres import PostgresSource, RowChange
from dsv2.dead_letters import DeadLetters, LetterStatus
from dsv2.errors import IncompatibleCheckpointError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.local import LocalRuntime
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.model import RecordBatch
from dsv2.runtime.sources.offsets import ReplayedValue
from dsv2.runtime.sources.readers import Readers, ReaderState
from dsv2.savepoint import Savepoint
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataclassSerializer, HybridSource, Portion, SplitBatch, SplitSource
from dsv2.testing import ManualClock
from tests.conformance.functions import Stamped
from tests.steps import KilledError, Steps, steps_of_files
from tests.support import local_environment


@dataclass(frozen=True)
class Part:
    """The texts of a split from ``begin`` on."""

    name: str
    begin: int = 0

    @property
    def split_id(self) -> str:
        return self.name


class Forgetful(SplitSource[Any, Part]):
    """Numbers as text, two at a time. It cannot decode them again."""

    split_serializer = DataclassSerializer(Part)
    limit_per_batch = 2

    def __init__(self, texts: dict[str, list[str]], base: int = 10, *, bounded: bool = False) -> None:
        self.texts = texts
        self.base = base
        self.is_bounded = bounded

    @property
    def bounded(self) -> bool:
        return self.is_bounded

    def number(self, text: str) -> int:
        return int(text, self.base)

    def discover(self) -> list[Part]:
        return [Part(name) for name in self.texts]

    def advance(self, split: Part, limit: int | None, /) -> Portion[Part] | None:
        end = len(self.texts[split.name])
        stop = end if limit is None else min(end, split.begin + limit)
        is_last = self.bounded and stop == end
        if stop == split.begin and not is_last:
            return None
        return Portion(replace(split, begin=stop), stop - split.begin, is_last)

    def read(self, start: Part, stop: Part, /) -> Iterator[RecordBatch[Any]]:
        numbers = range(start.begin, stop.begin)
        values = [self.texts[start.name][number] for number in numbers]
        yield SplitBatch(values, self.number, timestamps=[10 * n for n in numbers], offsets=lambda: list(numbers))


class Texts(Forgetful):
    """It can."""

    def decode_again(self, value: str, split: Any, /) -> SplitBatch[Any]:
        return SplitBatch([value], self.number)


TEXTS = {"a": ["1", "2", "0x3", "4"], "b": ["5", "0x6", "7", "8"]}
DECIMAL = [(1, 0), (2, 10), (4, 30), (5, 0), (7, 20), (8, 30)]
HEXADECIMAL = [(3, 20), (6, 10)]


class Job(NamedTuple):
    """A job that is killed and started again."""

    folder: Path
    batches: dict[int, list[Any]]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def run(
        self, step: Any = lambda: None, base: int = 10, source: Any = None, parallelism: int = 2, **options: Any
    ) -> None:
        def write(records: list[Any], batch_id: int) -> None:
            assert self.batches.setdefault(batch_id, records) == records

        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(0)))
        env.set_parallelism(parallelism)
        source = Texts(TEXTS, base) if source is None else source
        numbers = env.from_source(source).with_uid("texts").with_error_policy(ErrorPolicy().dead_letter(ValueError))
        stamped = numbers.process(Stamped()).with_uid("stamped")
        stamped.to_sink(ForeachBatchSink(write)).with_uid("out").with_parallelism(1)
        with steps_of_files(step):
            env.execute("texts", checkpoint_location=self.checkpoint, trigger=Trigger.available_now(), **options)

    def request(self) -> int:
        return main(["dead-letters", "replay", str(self.checkpoint), "--all"])

    @property
    def letters(self) -> DeadLetters:
        return DeadLetters.open(self.checkpoint)

    def statuses(self) -> list[LetterStatus]:
        letters = self.letters
        return [letters.status(letter) for letter in letters.letters]

    def records(self) -> list[Any]:
        return sorted(record for batch in self.batches.values() for record in batch)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job with two letters that are requested."""
    job = Job(tmp_path, {})
    job.run()
    assert job.request() == 0
    return job


def test_values_are_decoded_again_once_although_the_job_is_killed(tmp_path: Path) -> None:
    for number in itertools.count():
        job, steps = Job(tmp_path / str(number), {}), Steps(number)
        job.run()
        assert job.records() == DECIMAL
        assert job.request() == 0
        with suppress(KilledError):
            job.run(steps, base=0)
        job.run(base=0)
        job.run(base=0)
        assert job.records() == sorted(DECIMAL + HEXADECIMAL)
        assert job.statuses() == [LetterStatus.REPLAYED] * 2
        if steps.left >= 0:
            assert number > 6
            return


def test_replays_of_the_last_micro_batch_are_recorded_although_the_job_is_killed(tmp_path: Path) -> None:
    source = Texts(TEXTS, 0, bounded=True)  # ends in the micro-batch that decodes again
    for number in itertools.count():
        job, steps = Job(tmp_path / str(number), {}), Steps(number)
        job.run()
        assert job.request() == 0
        with suppress(KilledError):
            job.run(steps, source=source)
        job.run(source=source)
        assert job.records() == sorted(DECIMAL + HEXADECIMAL)
        assert job.statuses() == [LetterStatus.REPLAYED] * 2
        if steps.left >= 0:
            assert number > 6
            return


def test_value_that_fails_again_is_a_new_letter_with_its_position(job: Job) -> None:
    job.run()
    assert job.records() == DECIMAL
    old, new = job.letters.letters[:2], job.letters.letters[2:]
    assert [(letter.record, letter.position, letter.timestamp) for letter in new] == [
        (letter.record, letter.position, letter.timestamp) for letter in old
    ]
    assert job.statuses() == [LetterStatus.REPLAYED] * 2 + [LetterStatus.NEW] * 2
    assert job.request() == 0
    job.run(base=0)
    assert job.records() == sorted(DECIMAL + HEXADECIMAL)


def test_replays_are_remembered_without_a_growing_list(tmp_path: Path) -> None:
    job, texts = Job(tmp_path, {}), ["1"]
    for number in range(4):
        texts += ["x", str(number), "y"]
        job.run(source=Texts({"a": list(texts)}))
        assert job.request() == 0
    job.run(source=Texts({"a": texts}, 36))
    stored = LocalCheckpoint(LocalFolder(str(job.checkpoint))).last()
    assert stored is not None
    assert len(stored.replays.requests) == 1
    assert len(stored.replays.letters) <= 10
    assert LetterStatus.REQUESTED not in job.statuses()
    assert job.request() == 1, "all were replayed"


def test_savepoint_is_edited_so_that_the_source_decodes_again(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    job.run()
    savepoint = take(job, tmp_path / "first")
    edited = Savepoint.open(savepoint).edit().replay(job.letters.letters).write(tmp_path / "edited")
    again = Job(tmp_path / "again", {})
    again.run(base=0, savepoint=edited)
    assert again.records() == HEXADECIMAL
    again.run(base=0)
    assert again.records() == HEXADECIMAL


def hundredfold(number: int) -> int:
    return number * 100


def take(job: Job, folder: Path) -> str:
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(0)))
    env.set_parallelism(2)
    numbers = env.from_source(Texts(TEXTS)).with_uid("texts").with_error_policy(ErrorPolicy().dead_letter(ValueError))
    numbers.process(Stamped()).with_uid("stamped").to_sink(ForeachBatchSink(print)).with_uid("out").with_parallelism(1)
    handle = env.execute_async("texts", checkpoint_location=job.checkpoint, trigger=Trigger.available_now())
    handle.await_termination()
    return handle.savepoint(folder)


def test_source_that_cannot_decode_again_is_refused(job: Job) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="a Forgetful, does not define decode_again"):
        job.run(source=Forgetful(TEXTS))
    assert job.statuses() == [LetterStatus.REQUESTED] * 2


@pytest.mark.parametrize("parallelism", [1, 3])
def test_parallelism_may_change(job: Job, parallelism: int) -> None:
    job.run(base=0, parallelism=parallelism)
    assert job.records() == sorted(DECIMAL + HEXADECIMAL)


def test_reader_that_has_ended_leaves_its_letters_to_another_one() -> None:
    before = ReaderState(ended=3).to_json(DataclassSerializer(Part)), ReaderState().to_json(DataclassSerializer(Part))
    readers = Readers(2, ManualClock(0), DataclassSerializer(Part), before)
    readers.replay(ReplayedValue(f"{subtask}.0.a", subtask, "a", 0, b"") for subtask in (0, 1, 0))
    assert [len(state.replays) for state in readers.states] == [0, 3]
    assert readers.has_signals


def test_source_that_ends_decodes_before_its_end(job: Job) -> None:
    job.run(source=Texts(TEXTS, 0, bounded=True))
    assert job.records() == sorted(DECIMAL + HEXADECIMAL)


def test_source_that_has_ended_is_refused(tmp_path: Path) -> None:
    job, source = Job(tmp_path, {}), Texts(TEXTS, bounded=True)
    job.run(source=source)
    assert job.request() == 0
    with pytest.raises(IncompatibleCheckpointError, match="has read its input to the end"):
        job.run(source=source)


def test_event_time_stays_and_the_timestamp_is_extracted(tmp_path: Path) -> None:
    batches: list[Any] = []

    def run(base: int) -> None:
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(0)))
        strategy = EventTimeExtension.new_watermark_generator_builder(hundredfold).per_event_watermark()
        source = env.from_source(Texts(TEXTS, base), watermarks=strategy.build_as_watermark_strategy())
        stamped = source.with_uid("texts").with_error_policy(ErrorPolicy().dead_letter()).process(Stamped())
        stamped.with_uid("stamped").to_sink(ForeachBatchSink(lambda records, _: batches.extend(records))).with_uid(
            "out"
        )
        env.execute("texts", checkpoint_location=tmp_path, trigger=Trigger.available_now())

    run(10)
    before = len(batches)
    assert main(["dead-letters", "replay", str(tmp_path), "--all"]) == 0
    run(0)
    assert sorted(batches[before:]) == [(3, 300), (6, 600)]


class TestLimitInTotal:
    def fails(self, tmp_path: Path, limit: int, **options: Any) -> str | None:
        """Run a job of two subtasks, and return its error."""
        written: list[Any] = []
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(0)))
        env.set_parallelism(2)
        policy = ErrorPolicy().skip().limit(total=limit)
        numbers = env.from_source(Texts(TEXTS | options)).with_uid("texts").with_error_policy(policy)
        numbers.to_sink(ForeachBatchSink(lambda records, _: written.extend(records))).with_uid("out")
        try:
            env.execute("texts", checkpoint_location=tmp_path, trigger=Trigger.available_now())
        except JobError as error:
            assert 8 not in written, "the micro-batch is not written"
            return str(error)
        return None

    def test_failures_of_all_subtasks_and_micro_batches_count(self, tmp_path: Path) -> None:
        assert self.fails(tmp_path / "two", 2) is None
        error = self.fails(tmp_path / "one", 1)
        assert error is not None
        assert "allows 1 failures in total" in error

    def test_earlier_runs_count(self, tmp_path: Path) -> None:
        assert self.fails(tmp_path, 2) is None
        more = [*TEXTS["a"], "nine"]
        error = self.fails(tmp_path, 2, a=more)
        assert error is not None
        assert "allows 2 failures in total, and this is number 3" in error
        assert self.fails(tmp_path, 3, a=more) is None

    def test_failures_of_all_subtasks_of_a_function_count(self) -> None:
        def run(limit: int) -> list[int]:
            env, sink = local_environment(2), CollectSink[int]()
            parsed = env.from_collection(["x", "y", "1", "2"]).shuffle().map(int)
            parsed.with_error_policy(ErrorPolicy().skip().limit(total=limit)).to_sink(sink)
            env.execute()
            return sorted(sink.results)

        assert run(2) == [1, 2]
        with pytest.raises(JobError, match=r"allows 1 failures in total, and its subtasks together have had 2"):
            run(1)


class TestConnectors:
    @pytest.mark.parametrize(
        ("name", "content", "file_format"),
        [
            ("lines.txt", "1\n0x2\n", lambda base: text_lines(lambda line: int(line, base))),
            ("lines.json", '"1"\n"0x2"\n', lambda base: json_lines(lambda line: int(line, base))),
            ("rows.csv", "n\n1\n0x2\n", lambda base: csv_rows(lambda row: int(row["n"], base))),
            ("rows.parquet", ["1", "0x2"], lambda base: parquet_rows(lambda row: int(row["n"], base))),
        ],
    )
    def test_files(self, tmp_path: Path, name: str, content: Any, file_format: Any) -> None:
        folder = tmp_path / "in"
        folder.mkdir()
        if name == "rows.parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"n": content}), folder / name)
        else:
            (folder / name).write_text(content)
        job = Job(tmp_path, {})
        for base, records in ((10, [(1, None)]), (0, [(1, None), (2, None)])):
            job.run(source=FilesSource(folder, file_format(base), discovery_interval=timedelta(seconds=10)))
            assert job.records() == records
            if base:
                assert job.request() == 0

    def test_kafka(self) -> None:
        source = KafkaSource("localhost:1", topics="t", decode=values(json.loads))
        message = KafkaMessage("t", 0, 7, 1000, None, b"[1]", ())
        assert list(source.decode_again(message, 0).records) == [[1]]
        assert list(source.decode_again(replace(message, value=None), 0).records) == []

    def test_postgres(self) -> None:
        source = PostgresSource("host=localhost", table="t", slot_name="s", decode=lambda row: row["n"])
        assert list(source.decode_again(RowChange("insert", (1,), {"n": 2}), "log").records) == [
            RowChange("insert", (1,), 2)
        ]

    def test_hybrid(self) -> None:
        source = HybridSource([Texts(TEXTS, bounded=True), Texts(TEXTS, 16)])
        assert [list(source.decode_again("10", f"{number}/a").records) for number in (0, 1)] == [[10], [16]]
