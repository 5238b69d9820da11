"""Event time that sources send follows the rules of senders, over micro-batches and restarts (FLIP-326)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, NOTHING_SENT, orders
from dsv2.sinks import CollectSink
from dsv2.sources import HybridSource, RoundRobinSplitAssigner, SourceReader, SourceReaderContext
from dsv2.testing import ManualClock
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult
from dsv2.watermark.event_time import LONG_MIN
from tests.spans import Item, Span, Spans, number_of
from tests.support import local_environment, operator_named

TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
FLAG = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION
NOW = 1_000
BY_CLOCK = "No event time can be emitted after use_processing_time"


Script: TypeAlias = Mapping[int, Sequence[Watermark | None]]


class ScriptedSpans(Spans):
    """Sends the watermarks of ``script`` after the records with these numbers. None becomes idle."""

    def __init__(self, ends: Mapping[str, int], script: Script) -> None:
        super().__init__(ends)
        self.script = script

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [TIME, FLAG]

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[Item, Span]:
        return _ScriptedReader(self, ctx)


class _ScriptedReader(SourceReader[Item, Span]):
    def __init__(self, source: ScriptedSpans, ctx: SourceReaderContext) -> None:
        self.source, self.ctx = source, ctx

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        for number in range(start.position, stop.position):
            yield RecordBatch([Item(start.name, number)])
            for watermark in self.source.script.get(number, ()):
                if watermark is None:
                    self.ctx.mark_idle()
                else:
                    self.ctx.emit_watermark(watermark)


class WatermarkRecorder(OneInputStreamProcessFunction[Any, Any]):
    """Emits each watermark except the last one, and nothing else."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(watermark.value)
        return WatermarkHandlingResult.PEEK


def environment(*, batch: int = 1, checks: bool = True) -> ExecutionEnvironment:
    return ExecutionEnvironment.get_instance(
        LocalRuntime(batches=(batch,), checks=checks, clock=ManualClock(now_ms=NOW))
    )


def heard(script: Script, **options: Any) -> list[Any]:
    env, sink = environment(**options), CollectSink[Any]()
    env.from_source(ScriptedSpans({"a": 6}, script)).process(WatermarkRecorder()).to_sink(sink)
    env.execute()
    return sink.results


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("batch", [1, 6])
def test_reader_may_not_send_event_time_after_the_flag(batch: int, checks: bool) -> None:
    with pytest.raises(UserFunctionError, match=BY_CLOCK) as caught:
        heard({1: [FLAG.new_watermark(True)], 4: [TIME.new_watermark(NOW)]}, batch=batch, checks=checks)
    assert (caught.value.callback, caught.value.cause_type) == ("read", "ContractError")


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("batch", [1, 6])
def test_flag_of_a_reader_must_wait_for_the_clock(batch: int, checks: bool) -> None:
    ahead: Script = {1: [TIME.new_watermark(NOW + 1)], 4: [FLAG.new_watermark(True)]}
    with pytest.raises(UserFunctionError, match=rf"the wall clock \({NOW} ms\) is behind .* \({NOW + 1} ms\)"):
        heard(ahead, batch=batch, checks=checks)
    there: Script = {1: [TIME.new_watermark(NOW)], 4: [FLAG.new_watermark(True)]}
    assert heard(there, batch=batch, checks=checks) == [NOW, True, 2**63 - 1]


@pytest.mark.parametrize("checks", [True, False])
def test_event_time_of_an_idle_reader_does_not_count(checks: bool) -> None:
    script: Script = {1: [None], 2: [TIME.new_watermark(NOW + 1)], 4: [FLAG.new_watermark(True)]}
    assert heard(script, checks=checks)[-2:] == [True, 2**63 - 1]


def test_false_flag_and_earlier_time_are_not_forwarded() -> None:
    script: Script = {0: [FLAG.new_watermark(False), TIME.new_watermark(5)], 1: [TIME.new_watermark(4)]}
    assert heard(script) == [5, 2**63 - 1]


@pytest.mark.parametrize("checks", [True, False])
def test_generator_at_the_source_sends_no_time_after_the_flag(checks: bool) -> None:
    env = environment(checks=checks)
    generator = EventTimeExtension.new_watermark_generator_builder(number_of).build_as_process_function()
    source = ScriptedSpans({"a": 6}, {3: [FLAG.new_watermark(True)]})
    env.from_source(source).process(generator).with_uid("times").to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match=BY_CLOCK) as caught:
        env.execute()
    assert (caught.value.operator, caught.value.callback) == ("Process (uid 'times')", "end_portion")


def history_and_then(times: int) -> HybridSource[Item]:
    """Sends the flag at the end of the first source, whose records are ``times`` ms apart."""

    class Wide(Spans):
        def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
            for run in super().read(start, stop):
                yield RecordBatch(run.records, [item.number * times for item in run.records])

    return HybridSource([Wide({"a": 3}), Wide({"b": 3})], watermark_at_switch=FLAG)


def test_flag_of_an_enumerator_must_wait_for_the_clock() -> None:
    strategy = EventTimeExtension.new_watermark_strategy_builder().build_as_watermark_strategy()
    env = environment()
    env.from_source(history_and_then(NOW), watermarks=strategy).to_sink(CollectSink())
    with pytest.raises(UserFunctionError, match=r"the wall clock \(1000 ms\) is behind .* \(1999 ms\)") as caught:
        env.execute()
    assert caught.value.callback == "emit_watermark"


@pytest.mark.parametrize("checks", [True, False])
def test_event_time_of_splits_ends_with_the_flag(checks: bool) -> None:
    strategy = EventTimeExtension.new_watermark_strategy_builder().build_as_watermark_strategy()
    env, sink = environment(checks=checks), CollectSink[Any]()
    env.from_source(history_and_then(100), watermarks=strategy).process(WatermarkRecorder()).to_sink(sink)
    env.execute()
    assert sink.results == [-1, 99, 199, True, 2**63 - 1]


@pytest.mark.parametrize("checks", [True, False])
def test_strategy_without_watermarks_sends_the_flag(checks: bool) -> None:
    strategy = EventTimeExtension.new_watermark_generator_builder(number_of).no_watermark()
    env, sink = environment(checks=checks), CollectSink[Any]()
    items = env.from_source(Spans({"a": 3}), watermarks=strategy.build_as_watermark_strategy()).with_parallelism(2)
    items.process(WatermarkRecorder()).with_parallelism(1).to_sink(sink)
    env.execute()
    assert sink.results == [True]


# --- After a restart --------------------------------------------------------------------------------------------------


def senders(before: list[Any], parallelism: int) -> list[Any]:
    """State of the senders at the first offset of a run, after a run whose readers ended with ``before``."""
    ends = {f"s{number}": 2 for number in range(4)}
    source = Spans(ends, bounded=False, assigner=RoundRobinSplitAssigner())

    def run(readers: int) -> SourceCoordinator:
        env = local_environment(readers)
        env.from_source(source).with_uid("in").to_sink(CollectSink())
        return SourceCoordinator(source, operator_named(env.build_plan(), "in"), ManualClock())

    there = run(len(before)).next(BEFORE_START)
    for reader, sender in zip(there["readers"], before, strict=True):
        reader["sender"] = sender
    source.ends = dict.fromkeys(ends, 3)
    after = run(parallelism).next(json.loads(json.dumps(there)))
    return [order.sender for order in orders(after, source.split_serializer)]


def test_each_reader_continues_from_its_state() -> None:
    before = [(True, 5, False), (False, LONG_MIN, True)]
    assert senders(before, 2) == before


@pytest.mark.parametrize("others", [True, False])
def test_rescaled_readers_keep_only_a_common_flag(others: bool) -> None:
    before = [(True, True, 5, True), (False, True, 7, others)]
    assert senders(before, 3) == [(False, False, LONG_MIN, others)] * 3


def test_readers_that_have_sent_nothing_start_fresh() -> None:
    assert senders([list(NOTHING_SENT)] * 2, 3) == [NOTHING_SENT] * 3
