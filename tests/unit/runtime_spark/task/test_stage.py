"""A level as a stage, one micro-batch of one slot at a time, without Spark."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.report.progress import job_progress
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.page_store import PageStores, in_blob, in_entries
from dsv2.sinks import CollectSink
from runtime_spark import StateLayout
from runtime_spark.frames import state_limit
from runtime_spark.frames.failures import job_failure
from runtime_spark.frames.layout import REPORT_SLOT, Layout
from runtime_spark.frames.rows import FrameEncoder, decode_reports
from runtime_spark.frames.state_limit import StateSizes
from runtime_spark.frames.worker import pack_job
from runtime_spark.task import stage
from tests.support import KeptEntries


class NoState:
    """A slot that was never written."""

    now_ms = 0
    journal = None

    def __init__(self, layout: StateLayout) -> None:
        self._layout = layout

    def page_stores(self, codec: Codec) -> PageStores:
        return in_blob if self._layout is StateLayout.BLOB else in_entries(KeptEntries(), codec)

    def read(self) -> bytes | bytearray | None:
        return None

    def write(self, blob: bytearray) -> None: ...

    def wake_at(self, deadline_ms: int | None) -> None: ...


class Remembering(OneInputStreamProcessFunction[bytes, int]):
    """Keeps its records in a field, which is checked in either layout. ``most`` limits it to the newest records."""

    def __init__(self, most: int | None = None) -> None:
        self.kept: list[bytes] = []
        self.most = most

    def process_record(self, record: bytes, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        self.kept.append(record)
        if self.most is not None:
            self.kept = self.kept[-self.most :]


class Kept(NoState):
    """The checkpointed state of one slot."""

    blob: bytes | bytearray | None = None

    def read(self) -> bytes | bytearray | None:
        return self.blob

    def write(self, blob: bytearray) -> None:
        self.blob = blob


class Slot:
    """The only slot of a job. ``run`` returns its reports after a micro-batch with one more record."""

    def __init__(self, layout: StateLayout, function: Remembering, state: Kept) -> None:
        env = ExecutionEnvironment.get_instance("local")
        env.from_collection([b""]).process(function).with_uid("f").to_sink(CollectSink())
        self.plan = env.build_plan()
        self.layout = Layout.of(self.plan, state=layout)
        registry = TypeRegistry.of(self.plan)
        self._packed = pack_job(self.plan, self.layout, registry)
        self._codec = Codec(registry)
        (self._head,) = self.plan.chains
        self._state = state

    def run(self, record: bytes) -> list[dict[str, Any]]:
        encoder = FrameEncoder(self.plan, self.layout, self._codec)
        encoder.emit(Frame(self._head, 0, 0, RecordBatch([record]), []))
        frames = pd.DataFrame([row[1:] for row in encoder.take()], columns=["channel", "seq", "payload"])
        slot = self.layout.slots[self._head, 0]
        sent = pd.concat(stage.run_slot(self._packed, 0, slot, iter([frames]), self._state))
        reports = decode_reports(sent[sent["slot"] == REPORT_SLOT]["payload"].iloc[-1])
        return [report for report in reports if "uid" in report]


LAYOUTS = pytest.mark.parametrize("layout", StateLayout)


@LAYOUTS
def test_job_with_too_large_state_can_be_corrected(layout: StateLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_limit, "LARGEST_STATE", 10_000)
    state = Kept(layout)
    greedy = Slot(layout, Remembering(), state)
    greedy.run(b"a" * 6_000)
    before = state.blob
    with pytest.raises(Exception, match="has grown to") as raised:
        greedy.run(b"b" * 6_000)
    assert state.blob == before
    said = str(job_failure(raised.value, "job"))
    assert "(uid 'f'), subtask 0: its state has grown to" in said
    assert "start it again from the same checkpoint" in said
    assert ("function fields and states of the subtask" in said) == (layout is StateLayout.MAP)

    Slot(layout, Remembering(most=1), state).run(b"b" * 6_000)
    assert state.blob != before


@LAYOUTS
def test_state_size_warnings_start_at_half_the_limit(
    layout: StateLayout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_limit, "LARGEST_STATE", 80_000)
    job = Slot(layout, Remembering(), Kept(layout))
    sizes = StateSizes(job.plan, job.layout)
    warned = []
    for _ in range(7):
        caplog.clear()
        (report,) = job.run(b"a" * 10_000)
        sizes.note([report])
        sizes.note([report])
        warned.append([record.getMessage() for record in caplog.records])
    assert [len(messages) for messages in warned] == [0, 0, 0, 1, 1, 1, 1]
    assert "(uid 'f'), subtask 0: its state has grown to 4" in warned[3][0]
    assert "At 80000 bytes the job will fail." in warned[3][0]
    assert (job_progress(job.plan, 0, [report]).operators["f"].state_bytes or 0) > 70_000


@LAYOUTS
def test_slow_state_is_warned_of_at_64_mb_and_when_it_doubles(
    layout: StateLayout, caplog: pytest.LogCaptureFixture
) -> None:
    job = Slot(layout, Remembering(), Kept(layout))
    sizes = StateSizes(job.plan, job.layout)
    said = {}
    for mb in (63, 64, 65, 127, 128, 300, 511, 512, 600, 640, 650):
        caplog.clear()
        sizes.note([{"uid": "f", "subtask": 0, "state_bytes": mb << 20}])
        said[mb] = [record.getMessage() for record in caplog.records]
    assert {mb for mb, messages in said.items() if messages} == {64, 128, 300, 512, 640}
    (first,) = said[64]
    assert "(uid 'f'), subtask 0: its state has grown to 64 MB. Each micro-batch reads and writes all of it" in first
    assert "which takes about 0.3 to 1.3 s. " in first
    assert ("with StateLayout.MAP, where" in first) == (layout is StateLayout.BLOB)
    assert "docs/state.md" in first
    assert "the job will fail" in said[512][0]


@LAYOUTS
def test_subtasks_of_one_task_share_a_limit(
    layout: StateLayout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_limit, "LARGEST_OF_A_TASK", 2_000)
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(4)
    env.from_collection([b""]).key_by(len).process(Remembering()).with_uid("f").to_sink(CollectSink())
    plan = env.build_plan()
    sizes = StateSizes(plan, Layout.of(plan, partitions=2, state=layout))
    for size in (400, 600):
        assert not caplog.records
        sizes.note([{"uid": "f", "subtask": subtask, "state_bytes": size} for subtask in range(4)])
    messages = [record.getMessage() for record in caplog.records]
    if layout is StateLayout.BLOB:
        assert len(messages) == 2
        assert all("share a Spark task: their states have grown to 1200 bytes. At 2000" in said for said in messages)
    else:
        assert messages == []
