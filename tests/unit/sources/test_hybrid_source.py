"""Hybrid sources: which source is read when, with restarts at every point, and the watermark of the switch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset, WatermarkOrder, orders
from dsv2.runtime.sources.readers import Readers
from dsv2.sinks import CollectSink
from dsv2.sources import (
    HybridSource,
    HybridSplit,
    Portion,
    ReaderInfo,
    RoundRobinSplitAssigner,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from dsv2.testing import ManualClock
from dsv2.watermark import Watermark, WatermarkHandlingResult, new_builder
from tests.spans import Item, Span, Spans, everything
from tests.support import local_environment, operator_named

LIVE = new_builder("live").type_bool().combine_wait_for_all_channels(True).build()
IS_LIVE = WatermarkOrder("live", True)
HISTORY, STREAM = {"a": 9, "b": 4, "c": 0}, {"x": 6, "a": 3}


def hybrid(**options: Any) -> HybridSource[Item]:
    first = Spans(HISTORY, limit=4, assigner=RoundRobinSplitAssigner())
    second = Spans(STREAM, bounded=False, limit=5, assigner=RoundRobinSplitAssigner())
    return HybridSource([first, second], **options)


def coordinator(source: HybridSource[Any], parallelism: int = 2) -> SourceCoordinator:
    env = local_environment(parallelism)
    env.from_source(source).with_uid("in").to_sink(CollectSink())
    return SourceCoordinator(source, operator_named(env.build_plan(), "in"), ManualClock())


def offsets(
    source: HybridSource[Any], start: SourceOffset = BEFORE_START, parallelism: int = 2
) -> Iterator[SourceOffset]:
    driver = coordinator(source, parallelism)
    while (there := driver.next(start)) != start:
        start = json.loads(json.dumps(there))
        yield start


def read(source: HybridSource[Any], offset: SourceOffset) -> list[tuple[int, str, int]]:
    return [
        (split.start.source, split.start.split.name, number)
        for order in orders(offset, source.split_serializer)
        for split in order.portions
        for number in range(split.start.split.position, split.stop.split.position)
    ]


def test_second_source_starts_after_the_first() -> None:
    source = hybrid()
    found = list(offsets(source))
    numbers = [offset["enumerator"]["source"] for offset in found]
    assert numbers == [0, 0, 0, 0, 1, 1]  # 13 records in batches of 4, then 9 in batches of 5
    by_source = [{number for number, *_ in read(source, offset)} for offset in found]
    assert by_source == [{0}, {0}, {0}, {0}, {1}, {1}]
    records = Counter(record for offset in found for record in read(source, offset))
    history = Counter((0, name, number) for name, number in everything(HISTORY))
    assert records == history + Counter((1, name, number) for name, number in everything(STREAM))
    assert not any(order.last for offset in found for order in orders(offset, source.split_serializer))


@pytest.mark.parametrize("parallelism", [2, 1, 3])
def test_restart_at_any_point_reads_the_same_rest(parallelism: int) -> None:
    source = hybrid(watermark_at_switch=LIVE)
    whole = list(offsets(source))
    for index, offset in enumerate(whole):
        rest = list(offsets(source, offset, parallelism))
        if parallelism == 2:
            assert rest == whole[index + 1 :]
        expected = sorted(record for later in whole[index + 1 :] for record in read(source, later))
        assert sorted(record for later in rest for record in read(source, later)) == expected


def test_every_reader_sends_the_switch_watermark_once() -> None:
    source = hybrid(watermark_at_switch=LIVE)
    assert LIVE in source.declare_watermarks()
    sent = [
        [order.steps.index(IS_LIVE) for order in orders(offset, source.split_serializer) if IS_LIVE in order.steps]
        for offset in offsets(source, parallelism=3)
    ]
    assert [index for index, of_batch in enumerate(sent) if of_batch] == [4]
    assert sent[4] == [0] * 3  # including a reader without splits


def test_empty_sources_are_skipped_at_once() -> None:
    source = HybridSource([Spans({}), Spans({"e": 0}), Spans({}), Spans(STREAM)], watermark_at_switch=LIVE)
    found = list(offsets(source))
    assert [offset["enumerator"]["source"] for offset in found] == [1, 3]
    assert sorted(read(source, found[1])) == sorted((3, name, number) for name, number in everything(STREAM))


class Recorder(OneInputStreamProcessFunction[Item, Any]):
    """Forwards records and emits a record when the stream is live."""

    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(record)

    def on_watermark(
        self, watermark: Watermark, output: Collector[Any], ctx: NonPartitionedContext[Any]
    ) -> WatermarkHandlingResult:
        output.collect(watermark.identifier)
        return WatermarkHandlingResult.PEEK


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_records_of_the_second_source_come_after_the_first(seed: int, checks: bool) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(seed=seed, batches=(1, 2), checks=checks))
    env.set_parallelism(3)
    sink = CollectSink[Any]()
    source = HybridSource([Spans(HISTORY), Spans(STREAM)], watermark_at_switch=LIVE)
    env.from_source(source).process(Recorder()).with_parallelism(1).to_sink(sink)
    env.execute()
    assert sorted(sink.results[:13]) == everything(HISTORY)
    assert sorted(entry for entry in sink.results[13:] if entry != "live") == everything(STREAM)
    assert sink.results.count("live") == 1


class Kept(Source[Item, Span, int]):
    """Its readers keep their splits over a restart. The enumerator assigns one split to reader 0 at first."""

    bounded = True

    def create_enumerator(
        self, ctx: SplitEnumeratorContext[Span], restored: int | None, /
    ) -> SplitEnumerator[Span, int]:
        return _Kept(ctx, 0 if restored is None else restored)

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[Item, Span]:
        return _KeptReader()

    @property
    def split_serializer(self) -> Any:
        return Spans({}).split_serializer

    @property
    def enumerator_state_serializer(self) -> Any:
        return _Plain()


class _Plain:
    def to_json(self, value: int, /) -> int:
        return value

    from_json = to_json


class _Kept(SplitEnumerator[Span, int]):
    def __init__(self, ctx: SplitEnumeratorContext[Span], given: int) -> None:
        self.ctx, self.given = ctx, given

    def add_reader(self, reader: ReaderInfo[Span], /) -> None:
        assert reader.reported_splits_on_registration == ()

    def add_splits_back(self, splits: Sequence[Span], subtask: int, /) -> None:
        raise AssertionError

    def refresh(self) -> None:
        if not self.given:
            self.given = 1
            self.ctx.assign_splits({0: [Span("k", 0, 5)]})
        for subtask in range(self.ctx.parallelism):
            self.ctx.signal_no_more_splits(subtask)

    @property
    def limit_per_batch(self) -> int | None:
        return 2

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        assert limit is not None
        stop = min(split.position + limit, split.end)
        return Portion(replace(split, position=stop), stop - split.position, stop == split.end)

    def snapshot_state(self) -> int:
        return self.given


class _KeptReader(SourceReader[Item, Span]):
    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        yield RecordBatch([Item(start.name, number) for number in range(start.position, stop.position)])


def test_source_whose_readers_keep_their_splits() -> None:
    source = HybridSource[Item]([Kept(), Spans(STREAM)])
    whole = list(offsets(source))
    assert [len(read(source, offset)) for offset in whole] == [2, 2, 1, 9]
    for index, offset in enumerate(whole):
        assert list(offsets(source, offset)) == whole[index + 1 :]
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    sink = CollectSink[Item]()
    env.from_source(source).to_sink(sink)
    env.execute()
    assert sorted(sink.results) == everything({**STREAM, "k": 5})


def test_splits_of_a_failed_reader_precede_the_next_source() -> None:
    source = HybridSource[Item]([Spans({"a": 3}), Spans(STREAM)])
    readers = Readers(1, ManualClock(), source.split_serializer, ())
    enumerator = source.create_enumerator(readers, None)
    readers.registered_readers[0] = ReaderInfo(0)
    enumerator.add_reader(readers.registered_readers[0])
    enumerator.refresh()
    (held,) = readers.all_held()
    readers.registered_readers.clear()
    readers.states[0].splits.clear()
    enumerator.add_splits_back([held.at], 0)
    enumerator.refresh()
    assert enumerator.snapshot_state().source == 0
    readers.registered_readers[0] = ReaderInfo(0)
    enumerator.add_reader(readers.registered_readers[0])
    assert [split.at for split in readers.all_held()] == [held.at]


def test_source_with_unassigned_splits_is_not_finished() -> None:
    class InTurn(Spans):
        """Assigns its splits one after the other, with a micro-batch in between."""

        looks = 0

        def refresh(self) -> None:
            self.looks += 1

        def ready(self, waiting: Sequence[Span], limit: int | None, /) -> Sequence[Span]:
            return waiting[:1] if self.looks % 2 else ()

    source = HybridSource[Item]([InTurn({"a": 1, "b": 2}), Spans(STREAM)])
    driver, offset, numbers = coordinator(source), BEFORE_START, list[tuple[int, str, int]]()
    for _ in range(6):
        offset = driver.next(offset)
        numbers += [entry for entry in read(source, offset) if entry not in numbers]
    assert numbers[:3] == [(0, "a", 0), (0, "b", 0), (0, "b", 1)]


def test_finished_sources_are_closed() -> None:
    class Closing(Spans):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    sources = [Closing({"a": 1}), Closing({"b": 1}), Closing({"c": 1})]
    source = HybridSource(sources, watermark_at_switch=LIVE)
    driver, offset, seen = coordinator(source), BEFORE_START, []
    for _ in sources:
        offset = driver.next(offset)
        told = [order for order in orders(offset, source.split_serializer) if IS_LIVE in order.steps]
        seen.append(([one.closed for one in sources], len(told)))
    assert seen == [([0, 0, 0], 0), ([1, 0, 0], 0), ([1, 1, 0], 2)]


def test_only_the_last_source_may_be_unbounded() -> None:
    with pytest.raises(ConfigurationError, match="Source 0 of a HybridSource, a Spans, is unbounded"):
        HybridSource([Spans({}, bounded=False), Spans({})])
    with pytest.raises(ConfigurationError, match="requires at least two sources"):
        HybridSource([Spans({})])
    assert not HybridSource([Spans({}), Spans({}, bounded=False)]).bounded
    assert HybridSource([Spans({}), Spans({})]).bounded


@pytest.mark.parametrize("written", [{}, [], {"source": 2, "split": {}, "state": {}}, {"source": "0", "split": {}}])
def test_foreign_splits_and_state_are_refused(written: Any) -> None:
    with pytest.raises(CorruptDataError, match="split of a HybridSource"):
        hybrid().split_serializer.from_json(written)
    with pytest.raises(CorruptDataError, match="state of a HybridSource"):
        hybrid().enumerator_state_serializer.from_json(written)
    assert HybridSplit(1, Span("a", 0, 1)).split_id == "1/a"
