"""Sources with splits as Spark reads them: the offsets of a streaming job, and the orders of a BATCH job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv2.graph import Operator
from dsv2.runtime.sources.offsets import ReaderOrder
from dsv2.sinks import CollectSink
from dsv2.sources import Portion
from dsv2.testing import ManualClock
from runtime_spark.checkpoint.source_reports import ReportFile
from runtime_spark.source.feeds import SplitFeed, whole_orders
from tests.spans import Item, Span, Spans, everything
from tests.support import local_environment, operator_named

ENDS = {"a": 40, "b": 7, "c": 0, "d": 23}


class Late(Spans):
    """Has nothing to read until the planner has paused twice."""

    def __init__(self, **options: Any) -> None:
        super().__init__(ENDS, **options)
        self.pauses = 0

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        return None if self.pauses < 2 else super().advance(split, limit)


@pytest.fixture(params=[Spans, Late], ids=["at once", "late"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Spans:
    def pause(seconds: float) -> None:
        assert isinstance(source, Late)
        source.pauses += 1

    source: Spans = Late(limit=5) if request.param is Late else Spans(ENDS, limit=5)
    monkeypatch.setattr("runtime_spark.source.feeds.sleep", pause)
    return source


def operator_of(source: Spans) -> Operator:
    env = local_environment()
    stream: Any = env.from_source(source).with_uid("spans").with_parallelism(3)
    stream.to_sink(CollectSink())
    return operator_named(env.build_plan(), "spans")


def read(source: Spans, orders: list[ReaderOrder]) -> list[Item]:
    portions = [portion for order in orders for portion in order.portions]
    batches = [batch for portion in portions for batch in source.read(portion.start, portion.stop)]
    return [record for batch in batches for record in batch.records]


def test_orders_of_a_batch_job_cover_the_whole_source(source: Spans) -> None:
    orders = whole_orders(source, operator_of(source), ManualClock())
    assert [(order.subtask, order.first, order.last) for order in orders] == [(n, True, True) for n in range(3)]
    assert sorted(read(source, orders)) == everything(ENDS)


def test_planner_goes_on_until_the_source_has_ended(source: Spans, tmp_path: Path) -> None:
    reports = ReportFile(str(tmp_path), 0)
    planner = SplitFeed(source, reports).planner(operator_of(source), ManualClock())
    offset, found = planner.initial(), list[Item]()
    while (there := planner.latest(offset, only_available=True)) != offset:
        portions = list(planner.portions(offset, there))
        assert len(read(source, portions)) <= 5
        found += read(source, portions)
        planner.commit(there)
        offset = there
    assert sorted(found) == everything(ENDS)
    assert planner.portions(offset, offset) == []
    planner.close()
