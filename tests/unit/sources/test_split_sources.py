"""Sources with splits on the local runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.errors import RecordMutatedError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink
from dsv2.sources import SourceReader, SourceReaderContext
from dsv2.testing import ManualClock
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.spans import Item, Span, Spans, everything

READ = new_builder("read").type_long().combine_function_min().combine_wait_for_all_channels(True).build()


def run(source: Spans, runtime: LocalRuntime, parallelism: int = 3, mode: Any = None) -> list[Item]:
    env = ExecutionEnvironment.get_instance(runtime)
    env.set_parallelism(parallelism)
    if mode is not None:
        env.set_execution_mode(mode)
    sink = CollectSink[Item]()
    env.from_source(source).map(lambda item: item).to_sink(sink)
    env.execute()
    return sink.results


class Announcing(Spans):
    """Declares and sends a watermark with the number of records that a reader has read."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [READ]

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[Item, Span]:
        return _Announcing(self, ctx)


class _Announcing(SourceReader[Item, Span]):
    def __init__(self, source: Spans, ctx: SourceReaderContext) -> None:
        self.source, self.ctx = source, ctx

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        if self.ctx.parallelism == 2 and self.ctx.subtask == 0:
            self.ctx.mark_idle()
        for run in self.source.read(start, stop):
            yield run
            self.ctx.emit_watermark(READ.new_watermark(run.records[-1].number))


class Recorder(OneInputStreamProcessFunction[Item, str]):
    """Emits its input in order."""

    def process_record(self, record: Item, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        output.collect(str(record.number))

    def on_watermark(
        self, watermark: Watermark, output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        output.collect(f"read {watermark.value}")
        return WatermarkHandlingResult.PEEK


def heard(source: Spans, parallelism: int) -> list[str]:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    sink = CollectSink[str]()
    env.from_source(source).with_parallelism(parallelism).process(Recorder()).with_parallelism(1).to_sink(sink)
    env.execute()
    return sink.results


def test_idle_reader_is_not_waited_for() -> None:
    # Reader 0 has read up to 2 and reader 1 up to 5, but reader 0 is idle.
    source = Announcing({"a": 3, "b": 6}, run=10)
    owners = {name: number for number, name in enumerate("ab")}

    class ByName:
        def assign(self, splits: Any, held: Any, /) -> list[int]:
            return [owners[split.name] for split in splits]

    source._assigner = ByName()
    assert "read 5" in heard(source, 2)


class Failing(Spans):
    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        yield RecordBatch([Item("a", 0)])
        raise OSError("the disk is gone")


def test_failing_reader_is_named() -> None:
    with pytest.raises(UserFunctionError, match="OSError: the disk is gone") as caught:
        run(Failing({"a": 3}), LocalRuntime(), parallelism=1)
    assert caught.value.operator.startswith("Source (uid 'Failing-")
    assert caught.value.callback == "read"


class Bare(Spans):
    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        yield [Item("a", 0)]  # type: ignore[misc]  # the mistake


class Mismatched(Spans):
    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        yield RecordBatch([Item("a", 0)], [1, 2])


@pytest.mark.parametrize(
    ("source", "message"),
    [(Bare, r"Yield RecordBatch\(records\)"), (Mismatched, "got 1 records and 2 timestamps")],
)
def test_batches_of_a_reader_are_checked(source: type[Spans], message: str) -> None:
    with pytest.raises(UserFunctionError, match=message):
        run(source({"a": 1}), LocalRuntime(), parallelism=1)


class Closing(Spans):
    opened = 0

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[Item, Span]:
        self.opened += 1
        return super().create_reader(ctx)

    def close(self) -> None:
        self.opened -= 1


@pytest.mark.parametrize("ends", [{"a": 3, "b": 3}, {"a": -1}])
def test_readers_and_enumerator_are_closed(ends: dict[str, int]) -> None:
    class Broken(Closing):
        def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
            if stop.position < 0:
                raise ValueError("broken")
            return super().read(start, stop)

    source = Broken(ends)
    if "b" in ends:
        run(source, LocalRuntime(), parallelism=2)
    else:
        with pytest.raises(UserFunctionError, match="broken"):
            run(source, LocalRuntime(), parallelism=1)
    assert source.opened == -1  # every reader once, and the enumerator


class Mutating(Spans):
    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Any]]:
        record = [0]
        for number in range(2):
            record[0] = number
            yield RecordBatch([record])


def test_reader_that_mutates_its_records_is_detected() -> None:
    with pytest.raises(RecordMutatedError, match=r"Source \(uid 'Mutating-\w+'\)"):
        run(Mutating({"a": 2}), LocalRuntime(), parallelism=1)


class Growing(Spans):
    """Its spans grow by one number with every poll, up to their end."""

    looks = 0

    def refresh(self) -> None:
        self.looks += 1

    def advance(self, split: Span, limit: int | None, /) -> Any:
        return super().advance(split, 1) if split.position < self.looks // 3 else None


def test_bounded_source_is_polled_until_its_end() -> None:
    assert run(Growing({"a": 4}), LocalRuntime(clock=ManualClock()), parallelism=1) == everything({"a": 4})
