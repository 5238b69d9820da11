"""A job with dead letters that nothing reads, in two versions: the first one fails for some records.

``python -m tests.spark.dead_letter_job FOLDER VERSION [FILE]``: waits at the gate ``written`` after it has written a
file whose name ends with FILE, and at the gate ``again`` when it processes a dead letter again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from dsv2 import Collector, ErrorPolicy, ExecutionEnvironment, JobHandle, PartitionedContext
from dsv2.base.folders import LocalFolder
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import FileSink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import Stop, TestSource
from runtime_spark import SparkRuntime
from tests.numbering import numbered
from tests.spark.kill_job import new_session
from tests.spark.processes import Gate
from tests.spark.programs import read_back

RECORDS, STOP, PER_BATCH, KEYS = 48, 36, 12, 5
TIMES = StateDeclarations.value_state("times", int, default=0)


class Numbered(NamedTuple):
    key: int
    record: int
    nth: int


def fails(record: int) -> bool:
    """Return whether the first version of the function fails."""
    return record % 7 == 3


def key_of(record: int) -> int:
    """The key selector."""
    return record % KEYS


class Number(OneInputStreamProcessFunction[int, Numbered]):
    """Numbers the records of each key. Version 2 fails for no record, version 3 for all that version 1 fails for."""

    def __init__(self, version: int, gate: Gate | None = None) -> None:
        self._version = version
        self._gate = gate

    def uses_states(self) -> list[StateDeclaration]:
        return [TIMES]

    def process_record(self, record: int, output: Collector[Numbered], ctx: PartitionedContext[Numbered]) -> None:
        times = ctx.state_manager.get_state(TIMES)
        times.update(times.value() + 1)
        output.collect(Numbered(record % KEYS, record, times.value()))
        if self._version == 1 and fails(record):
            raise ValueError(f"refused: {record}")
        if self._version == 3 and fails(record):
            raise OSError("not covered by the policy")
        if self._gate is not None and fails(record):
            self._gate.pass_through()


def start(
    spark: SparkSession, folder: Path, version: int, parallelism: int = 2, gate: Gate | None = None, **options: object
) -> JobHandle:
    """Start the job, or continue it."""
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, **options))  # type: ignore[arg-type]
    items = [*range(STOP), Stop(), *range(STOP, RECORDS)]
    numbers = env.from_source(TestSource[int](items, records_per_batch=PER_BATCH)).with_uid("numbers")
    numbered = numbers.key_by(key_of).process(Number(version, gate)).with_uid("number").with_parallelism(parallelism)
    numbered.with_error_policy(ErrorPolicy().dead_letter(ValueError))
    numbered.to_sink(FileSink(str(folder / "out"), schema=Numbered)).with_uid("out")
    return env.execute_async("letters", checkpoint_location=folder / "checkpoint")


def assert_complete(folder: Path) -> None:
    """Check that each record was processed once, with the state of its key."""
    found = [Numbered(*row) for _, *row in read_back(folder / "out")]
    assert sorted(one.record for one in found) == list(range(RECORDS))
    assert sorted((one.key, one.nth) for one in found) == numbered(map(key_of, range(RECORDS)))


def main(folder: str, version: str, file: str = "") -> None:
    """Run the job with its own session."""
    write, written = LocalFolder.write, Gate(folder, "written")

    def pass_after_write(self: LocalFolder, name: str, data: bytes) -> None:
        write(self, name, data)
        if file and name.endswith(file):
            written.pass_through()

    LocalFolder.write = pass_after_write  # type: ignore[method-assign]
    spark = new_session(folder)
    start(spark, Path(folder), int(version), gate=Gate(folder, "again")).await_termination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
