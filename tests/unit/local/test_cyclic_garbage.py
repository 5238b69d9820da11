"""Micro-batches leave no cyclic garbage, for which Python's collector would interrupt the job."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import narwhals as nw
import pytest

from dsv2 import Collector, ExecutionEnvironment, NonKeyedPartitionStream, PartitionedContext
from dsv2.aggregates import Count, Key, WindowStart
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime, execution
from dsv2.sinks import ForeachBatchSink, Sink
from dsv2.state import StateDeclaration, StateDeclarations
from tests.durations import ms
from tests.spans import Item, Spans, number_of

BATCHES = 20
PER_BATCH = 8  # records
Build: TypeAlias = Callable[[NonKeyedPartitionStream[Item], Sink[Any]], None]
COUNT = StateDeclarations.value_state("count", int, default=0)


class Counts(OneInputStreamProcessFunction[Item, int]):
    def uses_states(self) -> Sequence[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: Item, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        state = ctx.state_manager.get_state(COUNT)
        state.update(state.value() + 1)
        output.collect(state.value())


class Total(NamedTuple):
    key: int
    start: int
    records: int


def counts(items: NonKeyedPartitionStream[Item], sink: Sink[Any]) -> None:
    items.key_by(lambda item: item.number % 3).process(Counts()).to_sink(sink)


def windows(items: NonKeyedPartitionStream[Item], sink: Sink[Any]) -> None:
    times = EventTimeExtension.new_watermark_generator_builder(number_of).build_as_process_function()
    keyed = items.process(times).key_by(lambda item: item.number % 3)
    window = keyed.window(WindowStrategy.tumbling(ms(5)))
    window.aggregate(Total, key=Key(), start=WindowStart(), records=Count()).to_sink(sink)


class Scaled(NamedTuple):
    span: str
    number: int
    scaled: int


def expressions(items: NonKeyedPartitionStream[Item], sink: Sink[Any]) -> None:
    items.where(nw.col("number") > 2).key_by("number").with_columns(Scaled, scaled=nw.col("number") * 2).to_sink(sink)


@pytest.mark.parametrize("build", [counts, windows, expressions])
def test_micro_batch_leaves_none(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(0, 1_000_000_000)
    monkeypatch.setattr(execution, "elapsed_ns", lambda: next(seconds))  # the progress is always stored
    found, before = [], gc.get_threshold()
    thresholds = set()

    def write(records: list[Any], batch_id: int) -> None:
        thresholds.add(gc.get_threshold())
        if batch_id % BATCHES == 0:
            found.append(gc.collect())

    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, durable=False))
    build(env.from_source(Spans({"a": 3 * BATCHES * PER_BATCH}, limit=PER_BATCH)), ForeachBatchSink(write))
    gc.disable()
    try:
        env.execute("job", checkpoint_location=tmp_path)
    finally:
        gc.enable()
    assert found[2:] == [0]
    assert before not in thresholds, "a micro-batch is not interrupted"
    assert gc.get_threshold() == before
