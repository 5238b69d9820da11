"""A level as a stage, one micro-batch of one slot at a time, without Spark."""

from __future__ import annotations

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.runtime.codec import Codec
from dsv2.runtime.page_store import PageStores, in_blob, in_entries
from dsv2.runtime.types import TypeRegistry
from dsv2.sinks import CollectSink
from runtime_spark import StateLayout, stage
from runtime_spark.failures import job_failure
from runtime_spark.layout import Layout
from runtime_spark.worker import pack_job
from tests.support import KeptEntries, one_input


class NoState:
    """A slot that was never written to."""

    now_ms = 0

    def __init__(self, layout: StateLayout) -> None:
        self._layout = layout

    def page_stores(self, codec: Codec) -> PageStores:
        return in_blob if self._layout is StateLayout.BLOB else in_entries(KeptEntries(), codec)

    def read(self) -> bytes | None:
        return None

    def write(self, blob: bytes) -> None: ...

    def wake_at(self, deadline_ms: int | None) -> None: ...


@pytest.mark.parametrize(
    ("layout", "way_out"),
    [
        (StateLayout.BLOB, "Raise the parallelism, or keep state of keys with StateLayout.MAP."),
        (StateLayout.MAP, "these are function fields and states of the subtask: keep less there"),
    ],
)
def test_a_blob_that_spark_could_not_keep_is_refused_with_a_way_out_that_is_left(
    layout: StateLayout, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ExecutionEnvironment.get_instance("local")
    stream = env.from_collection([1]).process(one_input()).with_uid("f")
    stream.to_sink(CollectSink())
    plan = env.build_plan()
    placed = Layout.of(plan, state=layout)
    packed = pack_job(plan, placed, TypeRegistry.of(plan))
    (head,) = plan.chains
    slot = placed.slots[head, 0]

    assert list(stage.run_slot(packed, 0, slot, iter([]), NoState(layout)))
    monkeypatch.setattr(stage, "_LARGEST_STATE", 10)
    with pytest.raises(Exception, match="has grown to") as raised:
        list(stage.run_slot(packed, 0, slot, iter([]), NoState(layout)))
    said = str(job_failure(raised.value, "job"))
    assert "(uid 'f'), subtask 0: its state has grown to" in said
    assert way_out in said
