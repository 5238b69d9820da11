"""Sinks that take Arrow tables: what they receive for tables and for single records, and their errors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment, NonKeyedPartitionStream
from dsv2.arrow import (
    ArrowCollector,
    ArrowForeachBatchSink,
    ArrowProcessFunction,
    ArrowSink,
    ArrowSinkBatch,
    map_tables,
    schema_of,
)
from dsv2.errors import JobError, PlanError, SchemaError
from dsv2.local import LocalRuntime
from dsv2.sinks import Sink, SinkInfo
from dsv2.sources import DataGeneratorSource
from dsv2.testing import ManualClock
from tests.steps import KilledError, Steps, steps_of_files

T = TypeVar("T")


@dataclass(frozen=True)
class Number:
    """A record that cannot be constructed. It exists in columns only."""

    value: int

    def __post_init__(self) -> None:
        raise AssertionError("single records are not expected")


class Plain(NamedTuple):
    """An ordinary record."""

    value: int


def as_numbers(table: pa.Table) -> pa.Table:
    """The same rows as ``Number``."""
    return table


class Among(ArrowProcessFunction[Plain, Plain]):
    """Emits a single record before the tables, and one after them."""

    def __init__(self) -> None:
        self.began = False

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Plain], ctx: Any) -> None:
        if not self.began:
            output.collect(Plain(-1))
            self.began = True
        output.collect_batch(batch)

    def end_input(self, output: ArrowCollector[Plain], ctx: Any) -> None:
        output.collect(Plain(-2))


class Written(NamedTuple):
    """One call of a sink that runs in tasks."""

    info: SinkInfo
    subtask: int
    batch_id: int
    tables: list[pa.Table]


class Store(ArrowSink[Number]):
    """Keeps its calls."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.calls: list[Written] = []

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        self.begun.append(batch_id)

    def write_tables(self, batch: ArrowSinkBatch) -> None:
        self.calls.append(Written(batch.info, batch.subtask, batch.batch_id, list(batch.tables)))


class PlainStore(ArrowSink[Plain]):
    """The same for ordinary records."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def write_tables(self, batch: ArrowSinkBatch) -> None:
        self.tables += batch.tables


def environment(*batches: int, parallelism: int = 1) -> ExecutionEnvironment:
    """The source gives each subtask ``batches`` records per micro-batch."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=batches))
    env.set_parallelism(parallelism)
    return env


def plain(env: ExecutionEnvironment, count: int) -> NonKeyedPartitionStream[Plain]:
    """Single records."""
    return env.from_collection([Plain(value) for value in range(count)])


def test_empty_micro_batch_is_an_empty_table() -> None:
    tables: list[pa.Table] = []
    env = environment(1)
    plain(env, 1).filter(lambda number: False).to_sink(
        ArrowForeachBatchSink(lambda table, batch_id: tables.append(table), Plain)
    )
    env.execute()
    assert tables
    assert {(table.num_rows, table.schema) for table in tables} == {(0, schema_of(Plain))}


def test_each_run_has_a_job_id() -> None:
    stores = [Store(), Store()]
    for store in stores:
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock()))
        plain(env, 1).process(map_tables(as_numbers, Plain, Number)).to_sink(store)
        env.execute()
    assert len({call.info.job_id for store in stores for call in store.calls}) == 2


def test_tasks_get_single_records_as_tables() -> None:
    store = PlainStore()
    env = environment()
    plain(env, 3).to_sink(store)
    env.execute()
    assert pa.concat_tables(store.tables).equals(pa.table({"value": [0, 1, 2]}, schema_of(Plain)))


class Undeclared(ArrowSink[T], Generic[T]):
    """Does not declare its record type."""

    def write_tables(self, batch: ArrowSinkBatch) -> None: ...


class Shapeless(ArrowSink[int]):
    """Its records have no columns."""

    def write_tables(self, batch: ArrowSinkBatch) -> None: ...


@pytest.mark.parametrize(
    ("sink", "error", "said"),
    [
        (
            Undeclared(),
            PlanError,
            r"Undeclared must declare the classes of its records: class Undeclared\(ArrowSink\[Total\]\)",
        ),
        (Shapeless(), SchemaError, "int has no columns. Use a NamedTuple class or a dataclass"),
    ],
    ids=["unsaid", "no columns"],
)
def test_classes_without_columns_are_refused(sink: Sink[Any], error: type[PlanError], said: str) -> None:
    env = environment()
    env.from_collection([1]).to_sink(sink).with_name("Lake")
    with pytest.raises(error, match=rf"Lake at {re.escape(__file__)}:\d+: {said}"):
        env.build_plan("refused")


def test_driver_sink_refuses_classes_without_columns() -> None:
    with pytest.raises(SchemaError, match="int has no columns"):
        ArrowForeachBatchSink(lambda table, batch_id: None, int)


def fails(*args: Any) -> None:
    """Always fails."""
    raise OSError("the disk is full")


class Failing(ArrowSink[Plain]):
    """Fails when it writes."""

    def write_tables(self, batch: ArrowSinkBatch) -> None:
        fails()


class Unready(PlainStore):
    """Fails before it writes."""

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        fails()


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (lambda: ArrowForeachBatchSink(fails, Plain), "raised on batch 0: OSError: the disk is full"),
        (Failing, "failed on batch 0, subtask 0: OSError: the disk is full"),
        (Unready, "failed before batch 0: OSError: the disk is full"),
    ],
    ids=["driver", "task", "begin"],
)
def test_failing_sink_is_named(sink: Callable[[], Sink[Plain]], said: str) -> None:
    env = environment()
    plain(env, 1).to_sink(sink()).with_uid("lake")
    with pytest.raises(JobError, match=rf"sink Sink \(uid 'lake'\), defined at {re.escape(__file__)}:\d+, {said}"):
        env.execute()


SINKS = [lambda: ArrowForeachBatchSink(lambda table, batch_id: None, Plain), PlainStore]


@pytest.mark.parametrize("sink", SINKS, ids=["driver", "task"])
def test_invalid_record_is_an_error_of_the_sink(sink: Callable[[], Sink[Plain]]) -> None:
    env = environment()
    plain(env, 1).map(lambda number: Plain(None)).to_sink(sink()).with_uid("lake")  # type: ignore[arg-type]
    with pytest.raises(JobError, match=r"sink Sink \(uid 'lake'\).*batch 0.*SchemaError: Field 'value' of Plain is"):
        env.execute()


@pytest.mark.parametrize("sink", SINKS, ids=["driver", "task"])
def test_records_of_another_class_are_refused(sink: Callable[[], Sink[Plain]]) -> None:
    env = environment()
    env.from_collection([1]).to_sink(sink())  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"test_arrow_sinks.py:\d+ takes records of Plain, but those .* are of int"):
        env.execute()


class Swapped(NamedTuple):
    """The fields of ``Pair`` in another order."""

    second: int
    first: int


class Pair(NamedTuple):
    first: int
    second: int


def test_records_of_a_class_that_is_not_declared_are_matched_by_name() -> None:
    env, found = environment(), list[Any]()
    mixed = env.from_collection([1, 2]).map(lambda number: Pair(number, 0) if number == 1 else Swapped(0, number))
    mixed.to_sink(ArrowForeachBatchSink(lambda table, batch_id: found.extend(table.to_pylist()), Pair))
    env.execute()
    assert found == [{"first": 1, "second": 0}, {"first": 2, "second": 0}]


class Kept:
    """The records that an outside system has received, by sink, micro-batch and subtask, over all runs of a job."""

    def __init__(self) -> None:
        self.step: Callable[[], None] = lambda: None
        self.rows: dict[tuple[str, int, int], list[int]] = {}
        self.calls = 0

    def __deepcopy__(self, memo: Any) -> Kept:
        return self

    def put(self, sink: str, batch_id: int, subtask: int, tables: list[pa.Table]) -> None:
        """Keep the rows, which must be the same if the call is repeated."""
        rows = [value for table in tables for value in table["value"].to_pylist()]
        self.step()
        assert self.rows.setdefault((sink, batch_id, subtask), rows) == rows
        self.calls += 1
        self.step()

    def of(self, sink: str) -> list[int]:
        return sorted(value for (name, _, _), rows in self.rows.items() if name == sink for value in rows)


class KeepingSink(ArrowSink[Plain]):
    """Replaces what it has written of a micro-batch, as an upsert does."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def write_tables(self, batch: ArrowSinkBatch) -> None:
        self.kept.put("tasks", batch.batch_id, batch.subtask, list(batch.tables))


def run_killed(kept: Kept, checkpoint: Path, steps: Callable[[], None]) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=kept.calls, clock=ManualClock()))
    env.set_parallelism(2)
    numbers = env.from_source(DataGeneratorSource(Plain, count=4, records_per_batch=2)).with_uid("in")
    kept.step = steps
    driver = ArrowForeachBatchSink(lambda table, batch_id: kept.put("driver", batch_id, 0, [table]), Plain)
    numbers.process(Among()).with_uid("among").to_sink(driver).with_uid("driver").with_parallelism(1)
    numbers.to_sink(KeepingSink(kept)).with_uid("tasks")
    with steps_of_files(steps):
        env.execute("tables", checkpoint_location=checkpoint)


def test_crash_at_any_step_repeats_the_same_tables(tmp_path: Path) -> None:
    repeated = 0
    for number in itertools.count():
        kept, steps = Kept(), Steps(number)
        with suppress(KilledError):
            run_killed(kept, tmp_path / str(number), steps)
        if steps.left >= 0:
            break
        run_killed(kept, tmp_path / str(number), lambda: None)
        assert kept.of("tasks") == [*range(4)], number
        assert kept.of("driver") == [-2, -2, -1, -1, *range(4)], number
        repeated += kept.calls - len(kept.rows)
    assert number > 30
    assert repeated > 5
