"""Late records, by the rule in docs/event_time.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink
from tests.durations import ms
from tests.profiles import examples
from tests.spans import Span, Spans

STEP, GAP, BACK = 10, 25, 95


class Stamped(NamedTuple):
    span: str
    number: int
    at: int


def at(number: int) -> int:
    """Every seventh record is earlier than the previous ones of its split, but never by more than ``BACK``."""
    return number * STEP - (BACK if number % 7 == 6 else 0)


class Files(Spans):
    """Three splits of the same time, like three files of one day."""

    def __init__(self) -> None:
        super().__init__({"a": 24, "b": 24, "c": 24}, run=5)

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Any]]:
        for run in super().read(start, stop):
            yield RecordBatch([Stamped(*item, at(item.number)) for item in run.records])


class Counting(OneInputWindowStreamProcessFunction[Stamped, tuple[str, int]]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(("in windows", len(window.get_all_records())))

    def on_late_record(self, record: Stamped, output: Any, ctx: Any) -> None:
        output.collect(("late", 1))


def counts(*, slack: int, parallelism: int, batch: int | None, seed: int) -> Counter[str]:
    env = ExecutionEnvironment.get_instance(
        LocalRuntime(seed=seed, batches=() if batch is None else (batch,), fast=True)
    )
    env.set_parallelism(parallelism)
    builder: Any = EventTimeExtension.new_watermark_generator_builder(lambda record: record.at)
    builder.with_max_out_of_order_time(timedelta(milliseconds=slack)).per_event_watermark()
    stream = env.from_source(Files(), watermarks=builder.build_as_watermark_strategy())
    sink = CollectSink[tuple[str, int]]()
    stream.key_by(lambda record: record.span).window(WindowStrategy.session(ms(GAP))).process(Counting()).to_sink(sink)
    env.execute()
    found = Counter[str]()
    for where, count in sink.results:
        found[where] += count
    return found


@examples(13)
@given(parallelism=st.integers(1, 3), batch=st.none() | st.sampled_from([4, 9]), seed=st.integers(0, 1000))
def test_record_in_order_of_its_channel_is_never_late(parallelism: int, batch: int | None, seed: int) -> None:
    assert counts(slack=BACK, parallelism=parallelism, batch=batch, seed=seed) == {"in windows": 72}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_lateness_depends_on_the_other_channels(parallelism: int) -> None:
    settings = [(batch, seed) for batch in (None, 4) for seed in range(3)]
    found = [counts(slack=0, parallelism=parallelism, batch=batch, seed=seed) for batch, seed in settings]
    assert all(sum(each.values()) == 72 for each in found)  # no record is lost
    assert len({each["late"] for each in found}) > 1
