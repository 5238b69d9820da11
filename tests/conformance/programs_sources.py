"""Programs for sources with splits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from dsv2 import Collector, NonPartitionedContext, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model import RecordBatch
from dsv2.sources import HybridSource, RoundRobinSplitAssigner, SourceReader, SourceReaderContext
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.conformance.harness import Pipeline, Program, Run
from tests.spans import Item, Span, Spans, everything

ENDS = {"a": 14, "b": 3, "c": 0, "d": 8, "e": 1}
HISTORY = {"x": 9, "y": 2}
ALL = sum(ENDS.values())
READ = new_builder("sources/read").type_long().combine_function_max().build()
LIVE = new_builder("sources/live").type_bool().combine_function_and().combine_wait_for_all_channels(True).build()


class Counting(Spans):
    """Its readers send the number of the last record of each batch, and use the numbers as timestamps."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [READ]

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[Item, Span]:
        return CountingReader(self, ctx)


class CountingReader(SourceReader[Item, Span]):
    def __init__(self, source: Spans, ctx: SourceReaderContext) -> None:
        self.source, self.ctx = source, ctx

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        for run in self.source.read(start, stop):
            yield RecordBatch(run.records, [item.number for item in run.records])
            self.ctx.emit_watermark(READ.new_watermark(run.records[-1].number))


class Noted(OneInputStreamProcessFunction[Item, Any]):
    """Emits each record with its timestamp, and each watermark, with the subtask."""

    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect((record, ctx.timestamp, ctx.task_info.index_of_this_subtask))

    def on_watermark(
        self, watermark: Watermark, output: Collector[Any], ctx: NonPartitionedContext[Any]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == READ.identifier:  # other programs of the job have event time, whose end arrives here
            output.collect((watermark.value, None, ctx.task_info.index_of_this_subtask))
        return WatermarkHandlingResult.PEEK


class SplitsAreReadOnceAndInOrder(Program):
    """Every record of every split is read once, each split in order, with timestamps and watermarks."""

    def build(self, p: Pipeline) -> None:
        source = Counting(ENDS, limit=p.records_per_batch(ALL), assigner=RoundRobinSplitAssigner())
        p.collect(p.env.from_source(source).process(Noted()))

    def check(self, run: Run) -> None:
        records = [(record, stamp, subtask) for record, stamp, subtask in run.out() if isinstance(record, Item)]
        assert sorted(record for record, *_ in records) == everything(ENDS)
        assert all(stamp == record.number for record, stamp, _ in records)
        for name in ENDS:
            numbers = [record.number for record, *_ in records if record.span == name]
            assert numbers == sorted(numbers)
            assert len({subtask for record, _, subtask in records if record.span == name}) <= 1
        for subtask in range(run.parallelism):
            own = [what for what, _, where in run.out() if where == subtask]
            for before, what in pairwise(own):  # a watermark arrives where its reader sent it
                assert isinstance(what, Item) or before.number == what


class SplitsGoTheirWay(Program):
    """A function that is chained to the source, followed by an exchange by key."""

    def build(self, p: Pipeline) -> None:
        source = Spans(ENDS, limit=p.records_per_batch(ALL))
        doubled = p.env.from_source(source).flat_map(lambda item: [item, item._replace(number=-item.number)])
        p.collect(doubled.key_by(lambda item: item.number % 3).process(Noted()))

    def check(self, run: Run) -> None:
        expected = [item._replace(number=number) for item in everything(ENDS) for number in (item.number, -item.number)]
        assert sorted(record for record, *_ in run.out()) == sorted(expected)
        by_key = {(record.number % 3, subtask) for record, _, subtask in run.out()}
        assert len(by_key) == 3


class Followed(OneInputStreamProcessFunction[Item, Any]):
    """Forwards records, and emits the end of history."""

    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(record)

    def on_watermark(
        self, watermark: Watermark, output: Collector[Any], ctx: NonPartitionedContext[Any]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == LIVE.identifier:
            output.collect(watermark.value)
        return WatermarkHandlingResult.PEEK


class EnumeratorsSendWatermarksBetweenSplits(Program):
    """Every reader sends the enumerator's watermark between history and the stream."""

    def build(self, p: Pipeline) -> None:
        limit, dealt = p.records_per_batch(ALL + sum(HISTORY.values())), RoundRobinSplitAssigner()
        sources = [Spans(HISTORY, limit=limit, assigner=dealt), Spans(ENDS, limit=limit, assigner=dealt)]
        both = p.env.from_source(HybridSource(sources, watermark_at_switch=LIVE))
        p.collect(both.process(Followed()).with_parallelism(1))
        p.collect(both.process(Followed()).with_parallelism(p.parallelism), "each")

    def check(self, run: Run) -> None:
        switch = run.out().index(True)
        assert sorted(item for item in run.out()[:switch] if item.span in HISTORY) == everything(HISTORY)
        assert sorted(item for item in run.out() if item is not True) == everything({**HISTORY, **ENDS})
        assert all(item.span in HISTORY for item in run.out()[:switch]) or run.parallelism > 1
        assert run.out().count(True) == 1
        assert run.out("each").count(True) == run.parallelism


PROGRAMS = (SplitsAreReadOnceAndInOrder(), SplitsGoTheirWay(), EnumeratorsSendWatermarksBetweenSplits())
