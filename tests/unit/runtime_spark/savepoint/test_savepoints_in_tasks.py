"""Rows of savepoints in tasks of Spark: typed columns of tables, and subtasks that continue from them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dsv2 import JobError
from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.description import describe
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.row_edits import DropOperator, RenameOperator
from dsv2.savepoint.table_state import GivenState
from dsv2.savepoint.tables import SavepointTable, TableId
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclarations
from runtime_spark import StateLayout
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.rows import FrameEncoder
from runtime_spark.frames.worker import RestoredProgram, pack_job
from runtime_spark.savepoint import edit, tables
from runtime_spark.savepoint.restore_frames import FrameMaker, empty_frames
from runtime_spark.savepoint.state_rows import to_row_batches
from runtime_spark.task import stage
from tests.support import local_environment
from tests.unit.runtime_spark.task.test_stage import Kept

COUNT = StateDeclarations.value_state("count", int, default=0)


class Counting(OneInputStreamProcessFunction[int, Any]):
    """Numbers the records of each key."""

    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect((record, count.value()))


def plan_of() -> Plan:
    env = local_environment()
    stream = env.from_collection(list[int](), "in").key_by(abs).process(Counting()).with_uid("f")
    stream.with_parallelism(2).to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


PLAN = plan_of()
LAYOUT, TYPES = Layout.of(PLAN), TypeRegistry.of(PLAN)
CODEC = Codec(TYPES)


def row_of(key: int, count: int, uid: str = "f") -> tuple[str, StateRow]:
    return uid, StateRow(0, RowKind.KEYED, "count", CODEC.dumps(key), CODEC.dumps(count))


def test_subtasks_continue_from_the_rows_that_they_receive() -> None:
    packed = pack_job(PLAN, LAYOUT, TYPES, origin=RestoredProgram(describe(PLAN), {}))
    (head,) = PLAN.chains
    counts = {key: 10 * key for key in range(1, 9)}
    restored = FrameMaker(packed)(to_row_batches(row_of(key, count) for key, count in counts.items()))
    rows: list[Any] = [*empty_frames(packed)]
    rows += [(*row.values(),) for batch in restored for row in batch.to_pylist()]
    for subtask in range(2):
        encoder = FrameEncoder(PLAN, LAYOUT, CODEC)
        encoder.emit(Frame(head, subtask, 0, RecordBatch([*counts]), []))
        rows += encoder.take()
    found: dict[int, list[int]] = {key: [] for key in counts}
    for subtask in range(2):
        slot = LAYOUT.slots[head, subtask]
        own = pd.DataFrame([row[1:] for row in rows if row[0] == slot], columns=["channel", "seq", "payload"])
        sent = pd.concat(stage.run_slot(packed, 0, slot, iter([own]), Kept(StateLayout.BLOB)))
        for data in sent[sent["slot"] >= 0]["payload"]:
            for key, count in decode_frame(CODEC, data, "a frame")[0].records:
                found[key].append(count)
    # Each key continues its count in the subtask that owns it, and is new in the other one.
    assert {key: sorted(numbers) for key, numbers in found.items()} == {key: [1, 10 * key + 1] for key in counts}


def test_tables_get_typed_columns() -> None:
    rows = [row_of(7, 70), row_of(8, 80), row_of(9, 90, "of another table")]
    table_id = TableId.of("f", RowKind.KEYED, "count")
    table = SavepointTable.of(table_id, "0000-f", rows[0][1], describe(PLAN), CODEC)
    make = tables._ColumnMaker({table_id: table})
    found = [row for batch in make(to_row_batches(rows)) for row in batch.to_pylist()]
    assert [(row["key"], row["value"], row["table"]) for row in found] == [(7, 70, "0000-f"), (8, 80, "0000-f")]


def test_operators_that_hold_records_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "held_records", lambda gate: gate)
    gates = {"a": [0, 0], "b": [0, 3], "c": []}
    batch = pa.RecordBatch.from_pydict({"uid": [*gates], "value_bytes": [CODEC.dumps(held) for held in gates.values()]})
    assert [row["uid"] for found in tables._holding([batch]) for row in found.to_pylist()] == ["b"]


def test_rows_without_edits_stay() -> None:
    rows = [row_of(7, 70), row_of(8, 80)]
    edited = [row for batch in edit._RowEditor(())(to_row_batches(rows)) for row in batch.to_pylist()]
    assert edited == [row for batch in to_row_batches(rows) for row in batch.to_pylist()]


def test_given_values_become_rows() -> None:
    state = GivenState("f", COUNT, 2, 128, int, None, TYPES, None)
    batches = [pa.RecordBatch.from_pydict({"key": [key], "value": [10 * key]}) for key in (7, 8)]
    rows = [row for batch in edit._RowMaker(state)(batches) for row in batch.to_pylist()]
    assert [
        (row["uid"], CODEC.loads(row["key_bytes"], "a key"), CODEC.loads(row["value_bytes"], "a value")) for row in rows
    ] == [
        ("f", 7, 70),
        ("f", 8, 80),
    ]


def test_dead_letters_see_only_the_edits_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def local_rows(_: Any, rows: Any) -> Any:
        return SimpleNamespace(mapInArrow=lambda make, schema: [*make(to_row_batches(rows))])

    monkeypatch.setattr(edit, "local_rows", local_rows)
    replay, edits = SimpleNamespace(rows=[row_of(7, 70)], after=1), (DropOperator("f"), RenameOperator("f", "g"))
    draft: Any = SimpleNamespace(given=(), replays=(replay,), edits=edits)
    no_session: Any = None
    (batches,) = edit._given_rows(no_session, draft, ExitStack())
    assert [row["uid"] for batch in batches for row in batch.to_pylist()] == ["g"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("error", "raised"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError("full"), JobError)])
def test_edit_that_does_not_end_removes_what_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, raised: type[BaseException]
) -> None:
    def fail(_: object, folder: LocalFolder, draft: object) -> None:
        folder.write("state/part", b"")
        raise error

    for name, replacement in (
        ("check_spark", lambda spark: None),
        ("open_folder", lambda spark, path: LocalFolder(path)),
        ("check_new_folder", lambda folder, draft: None),
        ("_write", fail),
    ):
        monkeypatch.setattr(edit, name, replacement)
    draft: Any = SimpleNamespace(info=SimpleNamespace(origin=SimpleNamespace(job_name="words")))
    with pytest.raises(raised):
        edit.write_on_spark(Mock(spec=SparkSession), str(tmp_path), draft)
    assert LocalFolder(str(tmp_path)).tree("state") == {}
