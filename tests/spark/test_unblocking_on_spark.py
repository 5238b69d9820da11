"""A job that is stuck at a bad record continues in each of the ways that its error names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import Collector, DeadLetter, ErrorPolicy, ExecutionEnvironment, PartitionedContext
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.errors import RecordNotSkippedWarning, SchemaError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model import RecordPosition
from dsv2.sinks import CollectSink, FileSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations
from tests.spark.programs import environment

TOTAL = StateDeclarations.value_state("total", int, default=0)
LINES = ["1", "2", "three", "four", "5", "six", "300", "seven", "8"]


class Add(OneInputStreamProcessFunction[str, tuple[int, int]]):
    """Adds numbers, which come as text."""

    def __init__(self, words: dict[str, int]) -> None:
        self.words = words

    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL]

    def process_record(self, record: str, output: Collector[tuple[int, int]], ctx: PartitionedContext[Any]) -> None:
        total = ctx.state_manager.get_state(TOTAL)
        number = self.words[record] if record in self.words else int(record)
        total.update(total.value() + number)
        output.collect((number, total.value()))


def one_key(record: str) -> int:
    return 0


class Job:
    """A job that reads ``LINES`` from a file, in micro-batches of 4, 3 and 2 lines."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.refused = CollectSink[DeadLetter[object]]()
        (folder / "in").mkdir()
        (folder / "in" / "numbers.txt").write_text("".join(f"{line}\n" for line in LINES))

    def run(self, policy: ErrorPolicy | None = None, words: dict[str, int] | None = None, **options: Any) -> None:
        env = environment(self.spark, 2)
        source = FilesSource(self.folder / "in", text_lines(str), bytes_per_batch=12)
        added = env.from_source(source).with_uid("lines").map(str.strip).key_by(one_key).process(Add(words or {}))
        added.with_uid("add").with_error_policy(policy or ErrorPolicy())
        sink = FileSink[tuple[int, int]](self.folder / "out", format="json", schema="number byte, total int")
        written = added.to_sink(sink).with_uid("out").with_error_policy(ErrorPolicy().dead_letter(SchemaError))
        written.dead_letters(object).to_sink(self.refused)
        env.execute("unblocking", checkpoint_location=str(self.folder / "checkpoint"), **options)

    def failure(self, **options: Any) -> UserFunctionError:
        with pytest.raises(UserFunctionError) as failed:
            self.run(**options)
        return failed.value

    def totals(self) -> list[tuple[int, int]]:
        rows = self.spark.read.json(str(self.folder / "out")).collect()
        return sorted((row.total, row.number) for row in rows)


def test_every_way_out(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    first = job.failure()
    assert (first.record, first.position) == ("'three'", None)
    assert "The micro-batch has read:\n  - source 'lines', split 'numbers.txt': position " in str(first)
    assert "Start the job again: it repeats the micro-batch, and the error names the position" in str(first)
    again = job.failure()
    assert again.position == RecordPosition("lines", "numbers.txt", 3)
    assert "skip_records={'lines': [('numbers.txt', 3)]}" in str(again)
    assert "Start the job again" not in str(again)
    # Skipped. The same micro-batch fails again.
    third = job.failure(skip_records={"lines": [("numbers.txt", 3)]})
    assert (third.record, third.position) == ("'four'", RecordPosition("lines", "numbers.txt", 4))
    # Both are skipped, also the one that is no longer asked for. The next micro-batch fails.
    fourth = job.failure(skip_records={"lines": [("numbers.txt", 4)]})
    assert (fourth.record, fourth.position) == ("'six'", None)
    # An operator that gets a policy continues with its state.
    fifth = job.failure(policy=ErrorPolicy().skip(ValueError).limit(total=1))
    assert (fifth.record, fifth.position) == ("'seven'", None)
    # The fixed program processes the record at which it failed. The argument for one that was skipped may stay.
    with pytest.warns(RecordNotSkippedWarning, match=r"offset 99 of .* was not skipped"):
        job.run(words={"seven": 7}, skip_records={"lines": [("numbers.txt", 3), ("numbers.txt", 99)]})
    assert job.totals() == [(1, 1), (3, 2), (8, 5), (315, 7), (323, 8)]
    # A record that does not fit the sink is set aside, without the others of its micro-batch.
    assert {(letter.operator, letter.record) for letter in job.refused.results} == {("out check", (300, 308))}


class Refuse(OneInputStreamProcessFunction[int, int]):
    """Fails for one number."""

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[Any]) -> None:
        if record == 70:
            raise ValueError("refused")
        output.collect(record)


def refusing(spark: SparkSession) -> ExecutionEnvironment:
    env = environment(spark, 2)
    numbers = env.from_source(DataGeneratorSource(lambda index: index * 10, count=9, records_per_batch=5))
    numbers.with_uid("numbers").process(Refuse()).with_uid("refuse").to_sink(CollectSink())
    return env


def test_position_in_a_subtask_that_reads_its_source(spark: SparkSession, checkpoint: str) -> None:
    for expected in (None, RecordPosition("numbers", 0, 7)):
        with pytest.raises(UserFunctionError) as failed:
            refusing(spark).execute("refusing", checkpoint_location=checkpoint)
        assert failed.value.position == expected
        assert ("source 'numbers', split 0: offset 5 to 8" in str(failed.value)) is (expected is None)


def test_position_in_a_batch_job(spark: SparkSession) -> None:
    env = refusing(spark)
    env.set_execution_mode("batch")
    with pytest.raises(UserFunctionError, match=r"skip_records=\{'numbers': \[\(0, 7\)\]\}"):
        env.execute("refusing", trace_records=True)
