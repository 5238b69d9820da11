"""Sinks that pass the suite for sinks, and for each of its tests a sink that fails it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

import pytest

from dsv2.errors import JobError
from dsv2.model import RecordBatch
from dsv2.sinks import DriverSink, ParallelSink, Sink, SinkBatch, SinkInfo
from dsv2.testing.connectors import SinkTestSuite

PASSWORD = "s3cret/pass"


class Table:
    """A table, with a ledger of what was written to it."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.written: dict[tuple[str, str, int], tuple[int, str]] = {}
        """The last micro-batch, and its run, of each job, sink and subtask."""
        self.parallelism: dict[tuple[str, str, int], int] = {}
        """The number of subtasks that write a job, sink and micro-batch."""


TABLES: dict[str, Table] = {}


class TableSink(ParallelSink[str]):
    """Writes rows exactly once to a table in this process."""

    exactly_once = True

    def __init__(self, table: str, password: str = PASSWORD) -> None:
        self.table, self.password = table, password

    def check_record(self, record: str) -> None:
        if not isinstance(record, str):
            raise ValueError(f"{record} is no text")

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        if self.table not in TABLES:
            raise ConnectionError(f"{self.table} does not answer")
        self.check_parallelism(info)
        for subtask in range(info.parallelism):
            self.is_written(info, subtask, info.run.first_batch)

    def check_parallelism(self, info: SinkInfo) -> None:
        number = TABLES[self.table].parallelism.get((info.job_id, info.uid, info.run.first_batch))
        if number not in (None, info.parallelism):
            raise JobError(f"The micro-batch was written in part by {number} subtasks.")

    def is_written(self, info: SinkInfo, subtask: int, batch_id: int) -> bool:
        entry = TABLES[self.table].written.get((info.job_id, info.uid, subtask))
        return entry is not None and info.is_written(batch_id, *entry)

    def write(self, batch: SinkBatch[str]) -> None:
        rows = [record for part in batch.batches for record in part.records]
        for row in rows:
            self.check_record(row)
        if not self.is_written(batch.info, batch.subtask, batch.batch_id):
            self.commit(batch, rows)

    def commit(self, batch: SinkBatch[str], rows: Sequence[str]) -> None:
        info = batch.info
        table = TABLES[self.table]
        table.rows += rows
        table.written[info.job_id, info.uid, batch.subtask] = batch.batch_id, info.run.run_id
        table.parallelism[info.job_id, info.uid, batch.batch_id] = info.parallelism


class TestTable(SinkTestSuite[str]):
    sink: Any = TableSink
    secrets = (PASSWORD,)

    def setup_method(self) -> None:
        TABLES["table"] = Table()

    def create_sink(self) -> Sink[str]:
        made: Sink[str] = self.sink("table")
        return made

    def read(self) -> Iterable[str]:
        return TABLES["table"].rows

    def create_unwritable_record(self) -> str:
        return 7  # type: ignore[return-value]

    def create_unreachable_sink(self) -> Sink[str]:
        made: Sink[str] = self.sink("nowhere")
        return made


class DriverTableSink(DriverSink[str]):
    """Writes rows at least once, on the driver."""

    def __init__(self, table: str) -> None:
        self.table = table

    def write_batch(self, batches: Sequence[RecordBatch[str]], batch_id: int) -> None:
        TABLES[self.table].rows += [row for batch in batches for row in batch.records]


class TestTableOnDriver(SinkTestSuite[str]):
    def setup_method(self) -> None:
        TABLES["table"] = Table()

    def create_sink(self) -> Sink[str]:
        return DriverTableSink("table")

    def read(self) -> Iterable[str]:
        return TABLES["table"].rows


class Broken(TableSink):
    """Has one mistake."""


class WritesTwice(Broken):
    def is_written(self, info: SinkInfo, subtask: int, batch_id: int) -> bool:
        return False


class Unpicklable(Broken):
    def begin(self, info: SinkInfo, batch_id: int) -> None:
        super().begin(info, batch_id)
        self.connection = threading.Lock()


class Strips(Broken):
    def commit(self, batch: SinkBatch[str], rows: Sequence[str]) -> None:
        super().commit(batch, [row.strip() for row in rows])


class WritesFirstSubtask(Broken):
    def commit(self, batch: SinkBatch[str], rows: Sequence[str]) -> None:
        super().commit(batch, [] if batch.subtask else rows)


class WritesWhileItReads(Broken):
    """Each record on its own, and then the ledger."""

    def write(self, batch: SinkBatch[str]) -> None:
        for part in batch.batches:
            if not self.is_written(batch.info, batch.subtask, batch.batch_id):
                TABLES[self.table].rows += part.records
        self.commit(batch, [])


class LooksBeforeItReads(Broken):
    def write(self, batch: SinkBatch[str]) -> None:
        if not self.is_written(batch.info, batch.subtask, batch.batch_id):
            self.commit(batch, [record for part in batch.batches for record in part.records])


class IgnoresJobs(Broken):
    def is_written(self, info: SinkInfo, subtask: int, batch_id: int) -> bool:
        return any(batch_id <= last for last, _ in TABLES[self.table].written.values())


class IgnoresRuns(Broken):
    def is_written(self, info: SinkInfo, subtask: int, batch_id: int) -> bool:
        last, _ = TABLES[self.table].written.get((info.job_id, info.uid, subtask), (-1, ""))
        return batch_id <= last


class IgnoresParallelism(Broken):
    def check_parallelism(self, info: SinkInfo) -> None: ...


class OneParallelism(Broken):
    def commit(self, batch: SinkBatch[str], rows: Sequence[str]) -> None:
        known = TABLES[self.table].parallelism.values()
        if not known or batch.subtask < min(known):
            super().commit(batch, rows)
        TABLES[self.table].parallelism.setdefault(("", "", 0), 2)


class DropsTheUnwritable(Broken):
    def check_record(self, record: str) -> None: ...


class FailsForTheUnwritable(Broken):
    def check_record(self, record: str) -> None: ...

    def commit(self, batch: SinkBatch[str], rows: Sequence[str]) -> None:
        super().commit(batch, [row + "" for row in rows])


class HidesErrors(Broken):
    def begin(self, info: SinkInfo, batch_id: int) -> None: ...

    def write(self, batch: SinkBatch[str]) -> None:
        if self.table in TABLES:
            super().write(batch)


class NamesPassword(Broken):
    def describe_target(self) -> str:
        return f"table://user:{self.password}@{self.table}"

    def __repr__(self) -> str:
        return "NamesPassword"


class ErrorNamesPassword(Broken):
    def begin(self, info: SinkInfo, batch_id: int) -> None:
        if self.table not in TABLES:
            raise ConnectionError(f"table://user:{quote(self.password, safe='')}@{self.table} does not answer")
        super().begin(info, batch_id)


class LogsPassword(Broken):
    def write(self, batch: SinkBatch[str]) -> None:
        logging.getLogger("table").debug("Writing with %s", self.password)
        super().write(batch)


class OneMicroBatchTooMany(DriverTableSink):
    exactly_once = True

    def write_batch(self, batches: Sequence[RecordBatch[str]], batch_id: int) -> None:
        super().write_batch([batches[0]], batch_id)  # there may be none


MISTAKES = [
    (
        "test_killed_job_writes_each_record",
        WritesFirstSubtask,
        "After a kill at step 0, before begin, .* 2 missing: '1",
    ),
    ("test_awkward_texts_are_unchanged", Strips, "Of the awkward texts, records are .* missing: .*' padded '"),
    ("test_killed_job_writes_each_record", WritesTwice, "After a kill at step 4, after write, records are 1 repeated"),
    ("test_repeated_micro_batch_is_written_once", WritesTwice, "was written again, records are 3 repeated: 'c', 'd'"),
    ("test_interrupted_micro_batch_is_completed", WritesWhileItReads, "interrupted within a write.* 1 repeated: 'c'"),
    ("test_two_attempts_at_once", LooksBeforeItReads, "When two attempts wrote a micro-batch at once.* 2 repeated"),
    ("test_other_parallelism", Unpicklable, "cannot pickle '_thread.lock' object"),
    ("test_other_jobs_and_sinks_are_no_repetition", IgnoresJobs, "When two jobs, .* 2 missing: 'b', 'c'"),
    ("test_empty_micro_batch", OneMicroBatchTooMany, "list index out of range"),
    ("test_other_parallelism", OneParallelism, "After restarts with another parallelism, .* 1 missing: 'c'"),
    ("test_other_parallelism_within_a_micro_batch", IgnoresParallelism, "within a micro-batch, .* 1 repeated: 'c'"),
    ("test_records_behind_an_older_checkpoint_are_not_lost", IgnoresRuns, "older checkpoint.* 1 missing: 'other'"),
    ("test_unwritable_record_fails_the_job", DropsTheUnwritable, "must fail because of an unwritable record"),
    ("test_error_policy_applies_to_unwritable_records", FailsForTheUnwritable, "unsupported operand"),
    ("test_unreachable_system_fails_the_job", HidesErrors, "must fail because of a system that does not answer"),
    ("test_secrets_are_hidden", NamesPassword, r"describe_target\(\) shows the secret"),
    ("test_secrets_are_hidden", ErrorNamesPassword, "The error of a system that does not answer shows the secret"),
    ("test_secrets_are_hidden", LogsPassword, "The log of table shows the secret"),
]


@pytest.mark.parametrize(("test", "sink", "mistake"), MISTAKES)
def test_mistake_is_found(test: str, sink: type[Sink[str]], mistake: str) -> None:
    suite = TestTable()
    suite.sink = sink
    suite.setup_method()
    with pytest.raises((AssertionError, JobError, IndexError, TypeError), match=mistake):
        getattr(suite, test)()


def test_each_test_of_the_suite_can_fail() -> None:
    assert {name for name in dir(SinkTestSuite) if name.startswith("test_")} == {test for test, *_ in MISTAKES}
