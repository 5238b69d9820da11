"""Rows of a DataFrame as frames: their order, their subtasks, and the chunks of a streaming job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from dsv2 import ExecutionEnvironment
from dsv2.base.columnar import Columnar
from dsv2.graph import Operator, OperatorKind
from dsv2.runtime.exchange.control_log import END, START
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink
from runtime_spark.frames.layout import REPORT_SLOT, Layout
from runtime_spark.frames.worker import load_job, pack_job
from runtime_spark.source.dataframe_source import _begin, _ColumnReader, _control_maker, _end, _frame_maker
from tests.support import one_input

STRIDE = 1 << 33  # between the ids of the first rows of two partitions of Spark


class Source:
    """The source of a job with parallelism 2."""

    def __init__(self) -> None:
        env = ExecutionEnvironment.get_instance("local")
        env.set_parallelism(2)
        env.from_collection([""]).process(one_input()).to_sink(CollectSink())
        plan = env.build_plan()
        self.packed = pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))
        self.operator: Operator = next(one for one in plan.operators if one.kind is OperatorKind.SOURCE)

    def frames(self, batches: list[pa.RecordBatch], *more: Any, split_by: str | None = None) -> list[tuple[Any, ...]]:
        """``(seq, slot, records, chunk)`` of each frame. ``more``: the first positions of partitions, a chunk size."""
        starts, size = more or (None, None)
        make = _frame_maker(names, split_by, self.operator, self.packed, starts, size)
        rows = [row for batch in make(batches) for row in batch.to_pylist() if row["slot"] != REPORT_SLOT]
        codec = load_job(self.packed).codec()
        return [
            (row["seq"], row["slot"], [*decode_frame(codec, row["payload"], "")[0].records], row.get("chunk"))
            for row in rows
        ]


def names(batch: pa.RecordBatch) -> Sequence[Any]:
    return [*batch.column("name").to_pylist()]


def rows(text: str, first_id: int) -> pa.RecordBatch:
    """A row for each letter."""
    return pa.RecordBatch.from_pydict({"name": list(text), "id": [first_id + number for number in range(len(text))]})


def test_rows_of_a_partition_keep_their_order() -> None:
    frames = Source().frames([rows("abc", STRIDE), rows("de", STRIDE + 3)])
    assert [records for *_, records, _ in frames] == [["a", "b", "c"], ["d", "e"]]
    first, second = (seq for seq, *_ in frames)
    assert first == STRIDE << 8
    assert second == STRIDE + 3 << 8


def test_chunks_contain_as_many_rows_of_all_partitions() -> None:
    frames = Source().frames([rows("abc", 0), rows("de", STRIDE)], {0: 0, 1: 3}, 2)
    assert [(records, chunk) for *_, records, chunk in frames] == [(["a", "b"], 0), (["c"], 1), (["d"], 1), (["e"], 2)]
    assert [seq for seq, *_ in frames] == [position << 8 for position in (0, 2, 3, 4)]


def test_rows_with_the_same_value_reach_the_same_subtask() -> None:
    frames = Source().frames([rows("abcab", 0)], split_by="name")
    assert sorted(record for *_, records, _ in frames for record in records) == list("aabbc")
    by_slot = {slot: {*records} for _, slot, records, _ in frames}
    assert len(by_slot) == 2
    assert not set.intersection(*by_slot.values())


class Name(NamedTuple):
    name: str


def test_columns_are_read_as_records_without_conversion() -> None:
    records = _ColumnReader(Name).read(rows("ab", 0))
    assert isinstance(records, Columnar)
    assert [*records] == [Name("a"), Name("b")]


def test_every_subtask_begins_and_ends() -> None:
    source = Source()
    codec = load_job(source.packed).codec()
    job = load_job(source.packed)
    for make, kind, seq in ((_begin, START, -1), (_end, END, (1 << 63) - 1)):
        rows = [row for subtask in range(2) for row in make(job, source.operator.id, subtask)]
        own = [row for row in rows if row[0] != REPORT_SLOT]
        assert len({slot for slot, *_ in own}) == 2
        assert {at for _, _, at, _ in own} == {seq}
        assert all(kind in [one for _, one, *_ in decode_frame(codec, data, "")[1]] for *_, data in own)


def test_tasks_make_what_the_driver_would_make_for_fewer_subtasks() -> None:
    source = Source()
    subtasks = [pa.RecordBatch.from_pydict({"id": [subtask]}) for subtask in range(2)]
    made = [
        row for batch in _control_maker(_begin, source.operator.id, source.packed)(subtasks) for row in rows_of(batch)
    ]
    job = load_job(source.packed)
    assert made == [row for subtask in range(2) for row in _begin(job, source.operator.id, subtask)] != []


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [(row["slot"], row["channel"], row["seq"], row["payload"]) for row in batch.to_pylist()]
