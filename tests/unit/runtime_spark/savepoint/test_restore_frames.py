"""Rows of a savepoint as frames for the slots that need them, without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from dsv2.checkpoint.program import ProgramDescription
from dsv2.checkpoint.record import SourcePosition
from dsv2.errors import CorruptDataError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.offsets import NOTHING_SENT
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.metadata import SavepointInfo
from dsv2.savepoint.reader import SavepointReader
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclarations
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.row_payload import EMPTY_ROWS, decode_rows, encode_rows
from runtime_spark.frames.rows import MAX_FRAME_BYTES, RESTORE_CHANNEL
from runtime_spark.frames.worker import pack_job
from runtime_spark.savepoint import restore_frames
from runtime_spark.savepoint.restore_frames import FrameMaker, empty_frames
from runtime_spark.savepoint.state_rows import to_row_batches
from runtime_spark.start.restoration import Restoration
from tests.support import local_environment

COUNT = StateDeclarations.value_state("count", int, default=0)
PARALLELISM = 3


class Counting(OneInputStreamProcessFunction[int, int]):
    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)


def plan_of() -> Plan:
    env = local_environment()
    stream = env.from_collection(list[int](), "in").key_by(abs).process(Counting()).with_uid("f")
    stream.with_parallelism(PARALLELISM).to_sink(CollectSink()).with_uid("out")
    return env.build_plan()


PLAN = plan_of()
LAYOUT, CODEC = Layout.of(PLAN), Codec(TypeRegistry.of(PLAN))


def of_key(key: int, value: Any = 1) -> tuple[str, StateRow]:
    return "f", StateRow(7, RowKind.KEYED, "count", CODEC.dumps(key), CODEC.dumps(value))


def frames_of(rows: Sequence[tuple[str, StateRow]]) -> list[tuple[int, int, int, bytes]]:
    make = FrameMaker(pack_job(PLAN, LAYOUT, TypeRegistry.of(PLAN)))
    batches = make(to_row_batches(rows))
    return [frame for b in batches for frame in zip(*(column.to_pylist() for column in b.columns), strict=True)]


def decoded(payload: bytes) -> list[tuple[str, StateRow]]:
    uid, rows = decode_rows(payload, CODEC, "rows")
    return [(uid, row) for row in rows]


def received(rows: Sequence[tuple[str, StateRow]]) -> dict[int, list[tuple[str, StateRow]]]:
    """The rows that each subtask receives."""
    found: dict[int, list[tuple[str, StateRow]]] = defaultdict(list)
    for slot, channel, seq, payload in frames_of(rows):
        assert (channel, seq) == (RESTORE_CHANNEL, -1)
        _, subtask = LAYOUT.addresses[slot]
        found[subtask] += decoded(payload)
    return found


def test_rows_of_keys_go_to_their_owners() -> None:
    rows = [of_key(key) for key in range(100)]
    found = received(rows)
    assert Counter(row for of_subtask in found.values() for row in of_subtask) == Counter(rows)
    for subtask, of_subtask in found.items():
        keys = [CODEC.loads(row.key, "key") for _, row in of_subtask if row.key is not None]
        assert {subtask_of(key, 128, PARALLELISM) for key in keys} == {subtask}


def test_rows_without_a_key_go_to_all_subtasks() -> None:
    rows = [("f", StateRow(old, RowKind.PART, "fields", None, b"bytes")) for old in range(2)]
    assert received(rows) == dict.fromkeys(range(PARALLELISM), rows)


def test_frames_are_split() -> None:
    large = [of_key(1, "x" * (MAX_FRAME_BYTES // 3)) for _ in range(10)]
    frames = frames_of(large)
    assert [row for frame in frames for row in decoded(frame[3])] == large
    assert all(len(frame[3]) < 1.1 * MAX_FRAME_BYTES for frame in frames)
    assert len({frame[0] for frame in frames}) == 1


def test_frames_are_passed_on_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [of_key(key) for key in range(100)]
    whole = frames_of(rows)
    monkeypatch.setattr(restore_frames, "OUTPUT_BYTES", 1)
    make = FrameMaker(pack_job(PLAN, LAYOUT, TypeRegistry.of(PLAN)))
    batches = [batch.num_rows for batch in make(to_row_batches(rows))]
    assert batches == [1] * len(whole) + [0]


def test_payload_of_no_rows() -> None:
    assert decoded(encode_rows("", EMPTY_ROWS, CODEC)) == []


def test_each_subtask_has_a_frame_that_it_can_load() -> None:
    frames = empty_frames(pack_job(PLAN, LAYOUT, TypeRegistry.of(PLAN)))
    assert sorted(LAYOUT.addresses[slot][1] for slot, *_ in frames) == list(range(PARALLELISM))
    for slot, *_, payload in frames:
        head, _ = LAYOUT.addresses[slot]
        uid, rows = decode_rows(payload, CODEC, "rows")
        assert uid in {operator.uid for operator in PLAN.chains[head]}
        assert list(rows) == []


def test_damaged_key_is_refused() -> None:
    with pytest.raises(Exception, match=r"Keyed state of .*f"):
        frames_of([("f", StateRow(0, RowKind.KEYED, "count", b"?", b"?"))])
    with pytest.raises(CorruptDataError, match="rows"):
        decoded(encode_rows("f", EMPTY_ROWS, CODEC)[:-1])
    (batch,) = to_row_batches([of_key(1)])
    unknown = batch.drop_columns("uid").set_column(1, "kind", pa.array(["other"]))
    with pytest.raises(CorruptDataError, match="rows are damaged: KeyError"):
        decoded(encode_rows("f", unknown, CODEC))


def test_empty_batches_have_no_frames() -> None:
    make = FrameMaker(pack_job(PLAN, LAYOUT, TypeRegistry.of(PLAN)))
    assert sum(batch.num_rows for batch in make(iter(list[pa.RecordBatch]()))) == 0


def reader(ended: int | None) -> dict[str, Any]:
    return {"ended": ended, "idle": False, "sender": NOTHING_SENT}


@pytest.mark.parametrize(
    ("parallelism", "offset", "ended"),
    [
        (2, {"batch": 7, "readers": [reader(None), reader(5)]}, [False, True]),
        (3, {"batch": 7, "readers": [reader(None), reader(5)]}, None),
        (3, {"batch": 7, "readers": [reader(4), reader(5)]}, [True, True, True]),
        (2, {"position": 9, "ended": True}, [True, True]),
        (2, {"position": 9}, None),
        (2, {"batch": -1}, None),
    ],
)
def test_subtasks_of_sources_that_had_ended(parallelism: int, offset: dict[str, Any], ended: list[bool] | None) -> None:
    env = local_environment()
    env.from_collection([1], "in").with_uid("in").with_parallelism(parallelism).to_sink(CollectSink()).with_uid("out")
    programs = [ProgramDescription(1, "", "", {}, {}, {})]
    info = SavepointInfo(job_id="id", batch_id=0, programs=programs, sources={"in": SourcePosition(offset)})
    restoration = Restoration(info, cast(SavepointReader, SimpleNamespace(info=info)))
    assert restoration.ended_subtasks(env.build_plan()) == ({} if ended is None else {"in": ended})
